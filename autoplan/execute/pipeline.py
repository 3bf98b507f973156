"""One step of one rank of a pipeline: its stage of every micro-batch of its replica, forward and backward, then the sums.

Rank ``replica * stages + stage`` runs stage ``stage`` of replica ``replica``. Activations go straight from the stage that
makes them to each stage that reads them, gradients the same way back; what several stages and the stage itself read gets the
sum of their gradients. Gradients of the parameters add up over micro-batches, then over all ranks that hold a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.execute.message import Message
from autoplan.execute.point_to_point import Peers, Ranks
from autoplan.execute.stage_program import StageProgram
from autoplan.partition.halo import Shard
from autoplan.plan import Schedule
from autoplan.program.context import RankContext
from autoplan.program.rank_program import InputKey, TensorKey
from autoplan.schedule import actions

Capture = Callable[..., None]


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """One micro-batch as a rank computes it.

    Attributes:
        context: of the micro-batch's part of the batch; inputs: what the stage's program reads of it.
        capture: gets every op's results, where the program was written with ``capture=True``.
    """

    context: RankContext
    inputs: Mapping[InputKey, Any]
    capture: Capture | None = None


@dataclass(slots=True, eq=False)
class _Held:
    """What a micro-batch keeps from its forward to its backward pass."""

    received: dict[TensorKey, torch.Tensor]
    sent: dict[TensorKey, torch.Tensor]
    loss: torch.Tensor | None


class StageRunner:
    """Runs the stage of one rank.

    Attributes:
        rank: this rank; stage: of the program; replica: of the pipeline.
    """

    def __init__(
        self, program: StageProgram, schedule: Schedule, replica: int, peers: Peers
    ) -> None:
        self.stage = program.stage
        self.replica = replica
        self.rank = replica * program.stages + program.stage
        self._program = program
        self._schedule = schedule
        self._peers = peers
        self._ahead = self._messages(gradients=False)
        self._back = self._messages(gradients=True)

    def step(
        self,
        micro_batches: Sequence[MicroBatch | None],
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        *,
        backward: bool,
        only_loss: bool = False,
    ) -> list[list[Any] | None]:
        """Runs all micro-batches of this rank's replica, as its schedule orders them.

        Args:
            micro_batches: in order; None where a micro-batch has no rows, on all stages alike: it is skipped.
            parameters: by path; gradients are added to those that require them.
            buffers: by path; those that the program writes are changed once a step: every micro-batch starts from the same.
            backward: False: forward passes only.
            only_loss: of what the program returns, keep the loss, and nothing where it has none.

        Returns:
            By micro-batch, the outputs and keys that the program returns, detached.
        """
        count = len(micro_batches)
        returned: list[list[Any] | None] = [None] * count
        held: dict[int, _Held] = {}
        start = {name: buffers[name].clone() for name in self._program.program.written}
        first = next((i for i, batch in enumerate(micro_batches) if batch is not None), None)
        order = actions(self._schedule, self._program.stages, count, self.stage, backward=backward)
        for action in order:
            number = action.micro_batch
            batch = micro_batches[number]
            if batch is None:
                continue
            if action.kind == "backward":
                self._backward(number, held.pop(number))
                continue
            own = buffers
            if number != first:
                own = {**buffers, **{name: value.clone() for name, value in start.items()}}
            outputs, kept = self._forward(number, batch, parameters, own, backward)
            if only_loss:
                outputs = outputs[: int(self._program.program.has_loss)]
            returned[number] = outputs
            if backward:
                held[number] = kept
        self._peers.finish()
        return returned

    def _forward(
        self,
        number: int,
        batch: MicroBatch,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        backward: bool,
    ) -> tuple[list[Any], _Held]:
        held = _Held(self._receive(number, batch.context, backward), {}, None)
        program = self._program.program
        results = program.run(
            batch.context, parameters, buffers, batch.inputs, batch.capture, held.received
        )
        count = len(results) - len(program.sends)
        values = dict(zip(program.sends, results[count:], strict=True))
        self._send(number, batch.context, values)
        gradients = {key for message in self._back[1].values() for key in message.keys}
        held.sent = {key: value for key, value in values.items() if key in gradients}
        if program.has_loss:
            held.loss = results[0]
        outputs = [
            value.detach() if isinstance(value, torch.Tensor) else value
            for value in results[:count]
        ]
        return outputs, held

    def _backward(self, number: int, held: _Held) -> None:
        """One backward pass from the loss and from the gradients of all that was sent."""
        gradients: dict[TensorKey, torch.Tensor] = {}
        for target, message in self._back[1].items():
            shapes = [tuple(held.sent[key].shape) for key in message.keys]
            what = self._what("gradients", message, number)
            buffer = self._take(target, message, shapes, what)
            for key, value in message.unpack(buffer, shapes).items():
                gradients[key] = gradients[key] + value if key in gradients else value
        roots, seeds = [], []
        if held.loss is not None and held.loss.requires_grad:
            roots.append(held.loss)
            seeds.append(torch.ones_like(held.loss))
        for key, value in held.sent.items():
            if value.requires_grad:
                roots.append(value)
                seeds.append(gradients[key].to(value.device))
        if roots:
            torch.autograd.backward(roots, seeds)
        for source, message in self._back[0].items():
            values = {key: _gradient_of(held.received[key]) for key in message.keys}
            shapes = [tuple(values[key].shape) for key in message.keys]
            self._give(source, message, values, shapes, self._what("gradients", message, number))

    def _receive(
        self, number: int, context: RankContext, backward: bool
    ) -> dict[TensorKey, torch.Tensor]:
        """All that this stage reads of earlier ones; what needs a gradient is a leaf that asks for one."""
        found: dict[TensorKey, torch.Tensor] = {}
        for source, message in self._ahead[0].items():
            what = self._what("activations", message, number)
            sizes: list[int] = []
            if message.header:
                rank = self._rank_of(source)
                count = len(message.header)
                header = self._peers.receive(rank, count, torch.int64, f"sizes of {what}")
                sizes = header.tolist()
            shapes = message.shapes(context, sizes)
            buffer = self._take(source, message, shapes, what).to(context.device)
            found.update(message.unpack(buffer, shapes))
        if backward:
            wanted = {key for message in self._back[0].values() for key in message.keys}
            for key in wanted:
                found[key].requires_grad_()
        return found

    def _send(
        self, number: int, context: RankContext, values: Mapping[TensorKey, torch.Tensor]
    ) -> None:
        for target, message in self._ahead[1].items():
            what = self._what("activations", message, number)
            sizes = message.sizes(values)
            if message.header:
                self._peers.send(self._rank_of(target), sizes, f"sizes of {what}")
            shapes = message.shapes(context, sizes.tolist())
            self._give(target, message, values, shapes, what)

    def _give(
        self,
        stage: int,
        message: Message,
        values: Mapping[TensorKey, torch.Tensor],
        shapes: Sequence[tuple[int, ...]],
        what: str,
    ) -> None:
        """Sends a buffer, unless it is empty, which both sides know."""
        buffer = message.pack(values, shapes)
        if buffer.numel():
            self._peers.send(self._rank_of(stage), buffer, what)

    def _take(
        self, stage: int, message: Message, shapes: Sequence[tuple[int, ...]], what: str
    ) -> torch.Tensor:
        count = message.bytes(shapes)
        if not count:
            return torch.empty(0, dtype=torch.uint8)
        return self._peers.receive(self._rank_of(stage), count, torch.uint8, what)

    def _messages(self, *, gradients: bool) -> tuple[dict[int, Message], dict[int, Message]]:
        """By source what comes from it, and by target what goes to it; of gradients, the other way round."""
        program = self._program
        both: list[dict[int, Message]] = []
        for crossings, end in ((program.receives, "source"), (program.sends, "target")):
            found: dict[int, Message] = {}
            for stage in dict.fromkeys(getattr(crossing, end) for crossing in crossings):
                theirs = [c for c in crossings if getattr(c, end) == stage]
                message = Message.of(theirs, program.tensors, program.axes, gradients=gradients)
                if message.keys:
                    found[stage] = message
            both.append(found)
        return both[0], both[1]

    def _rank_of(self, stage: int) -> int:
        return self.replica * self._program.stages + stage

    def _what(self, kind: str, message: Message, number: int) -> str:
        names = ", ".join(tensor for tensor, _ in message.keys)
        return f"{kind} {names} of micro-batch {number}"


def _gradient_of(leaf: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def holders(programs: Sequence[StageProgram], replicas: int) -> dict[str, Ranks]:
    """By path of a parameter that gets a gradient, the ranks that read it: every replica of every stage that does."""
    found: dict[str, list[int]] = {}
    for program in programs:
        for name in program.program.trained:
            ranks = (replica * len(programs) + program.stage for replica in range(replicas))
            found.setdefault(name, []).extend(ranks)
    return {name: tuple(sorted(ranks)) for name, ranks in found.items()}


def groups(held_by: Mapping[str, Ranks]) -> tuple[Ranks, ...]:
    """The sets of two ranks or more that hold a parameter, in the order in which they sum."""
    return tuple(sorted({ranks for ranks in held_by.values() if len(ranks) > 1}))


def sum_gradients(
    peers: Peers, held_by: Mapping[str, Ranks], parameters: Mapping[str, torch.Tensor]
) -> None:
    """Replaces the gradients of this rank's parameters by their sums over all holders.

    One all-reduce for all parameters of one dtype with the same holders. Every rank calls it.

    Args:
        peers: the other ranks.
        held_by: by path, the ranks that hold the parameter (`holders`).
        parameters: by path, those of this rank; one without a gradient counts as zero.
    """
    for ranks in groups(held_by):
        if peers.rank not in ranks:
            continue
        mine = [parameters[name] for name, held in held_by.items() if held == ranks]
        for dtype in dict.fromkeys(parameter.dtype for parameter in mine):
            alike = [parameter for parameter in mine if parameter.dtype == dtype]
            flat = torch.cat([_gradient_of(parameter).reshape(-1) for parameter in alike])
            total = peers.sum(ranks, flat)
            pieces = torch.split(total, [parameter.numel() for parameter in alike])
            for parameter, piece in zip(alike, pieces, strict=True):
                parameter.grad = piece.view_as(parameter)


def share_written(
    peers: Peers,
    program: StageProgram,
    replicas: int,
    shard: Shard,
    buffers: Mapping[str, torch.Tensor],
) -> None:
    """Gives replicas that had nothing to compute in a step the buffers that the others have written.

    Written buffers are equal on all replicas, as no buffer may depend on the rows of a part. Replica 0 always has rows.

    Args:
        peers: the other ranks.
        program: this rank's.
        replicas: of the pipeline.
        shard: any part of the step's batch; all know which parts are empty.
        buffers: by path, those of this rank.
    """
    each = shard.parts // replicas
    empty = [part for part in range(shard.parts) if shard.is_empty(part)]
    idle = any(
        all(part in empty for part in range(replica * each, (replica + 1) * each))
        for replica in range(1, replicas)
    )
    if not idle:
        return
    ranks = tuple(range(program.stage, program.stages * replicas, program.stages))
    for name in program.program.written:
        mine = buffers[name]
        value = mine if peers.rank < program.stages else torch.zeros_like(mine)
        mine.copy_(peers.sum(ranks, value))
