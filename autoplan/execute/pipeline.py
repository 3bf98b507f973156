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
    """What a micro-batch keeps from its forward to its backward pass.

    Attributes:
        received: what asks for a gradient, which goes back.
        shapes: of what was sent and gets a gradient.
        gradients: of the loss, if it is made here, and of what was sent, as soon as they are there.
        root: backward starts here; None where nothing asks for a gradient.
    """

    received: dict[TensorKey, torch.Tensor]
    shapes: dict[TensorKey, tuple[int, ...]]
    gradients: list[torch.Tensor]
    root: torch.Tensor | None


class _Root(torch.autograd.Function):
    """Zero, whose gradient is that of the loss and of all that was sent.

    The graph does not keep what was sent, unless an op has saved it, and gradients live until their op is done: had
    `torch.autograd.backward` been given them, both would live through the whole pass.
    """

    @staticmethod
    def forward(ctx: Any, gradients: list[torch.Tensor], *values: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.zeros((), device=values[0].device)

    @staticmethod
    def backward(ctx: Any, *seed: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given = tuple(ctx.gradients)
        ctx.gradients.clear()
        return None, *given


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
            returned[number], kept = self._forward(
                number, batch, parameters, own, backward, only_loss
            )
            if backward:
                held[number] = kept
            del kept
        self._peers.finish()
        return returned

    def _forward(
        self,
        number: int,
        batch: MicroBatch,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        backward: bool,
        only_loss: bool,
    ) -> tuple[list[Any], _Held]:
        received = self._receive(number, batch.context, backward)
        program = self._program.program
        results = program.run(
            batch.context, parameters, buffers, batch.inputs, batch.capture, received
        )
        count = len(results) - len(program.sends)
        values = dict(zip(program.sends, results[count:], strict=True))
        self._send(number, batch.context, values)
        outputs = [
            value.detach() if isinstance(value, torch.Tensor) else value
            for value in results[: int(program.has_loss) if only_loss else count]
        ]
        held = _Held({key: v for key, v in received.items() if v.requires_grad}, {}, [], None)
        if backward:
            roots = results[: int(program.has_loss)]
            held.gradients = [torch.ones_like(loss, requires_grad=False) for loss in roots]
            for key in (key for message in self._back[1].values() for key in message.keys):
                if key not in held.shapes:
                    held.shapes[key] = tuple(values[key].shape)
                    roots.append(values[key])
            if any(root.requires_grad for root in roots):
                held.root = _Root.apply(held.gradients, *roots)  # type: ignore[no-untyped-call]
        return outputs, held

    def _backward(self, number: int, held: _Held) -> None:
        """One backward pass from the loss and from the gradients of all that was sent."""
        self._gradients(number, held)
        if held.root is not None:
            held.root.backward()  # type: ignore[no-untyped-call]
            held.root = None
        for source, message in self._back[0].items():
            values = {key: _gradient_of(held.received[key]) for key in message.keys}
            shapes = [tuple(values[key].shape) for key in message.keys]
            self._give(source, message, values, shapes, self._what("gradients", message, number))

    def _gradients(self, number: int, held: _Held) -> None:
        """Receives the gradients of all that was sent; of what several stages read, the sum."""
        found: dict[TensorKey, torch.Tensor] = {}
        for target, message in self._back[1].items():
            shapes = [held.shapes[key] for key in message.keys]
            what = self._what("gradients", message, number)
            buffer = self._take(target, message, shapes, what)
            for key, value in message.unpack(buffer, shapes).items():
                found[key] = found[key] + value if key in found else value
        device = None if held.root is None else held.root.device
        held.gradients += [found[key].to(device) for key in held.shapes]

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
