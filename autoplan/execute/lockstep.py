"""A rank program on ranks that are threads of this process: the check of a plan before it is offered, and in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.execute.inputs import shard_inputs
from autoplan.execute.threads import run_ranks
from autoplan.partition.halo import Shard, gather_order
from autoplan.program.communicator import Communicator
from autoplan.program.context import RankContext
from autoplan.program.rank_program import RankOutput, RankProgram

Capture = Callable[[int, int, str, str, torch.Tensor, torch.Tensor | None], None]
"""Called with (rank, op index, tensor, state, value, keys of its rows)."""


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """One step of all ranks.

    Attributes:
        loss: the first rank's loss (None without one); the ranks' losses are equal.
        outputs: in the program's order, rows in the order of the whole graph; without the loss.
        gradients: by parameter, the mean over ranks: what one device would have. None for those that get none.
        buffers: by path, after the step, of the first rank.
    """

    loss: torch.Tensor | None
    outputs: tuple[Any, ...]
    gradients: Mapping[str, torch.Tensor | None]
    buffers: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class _RankStep:
    """What one rank has after a step."""

    returned: list[Any]
    keys: list[torch.Tensor | None]
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]


def run_lockstep(
    program: RankProgram,
    shards: Sequence[Shard],
    attributes: Mapping[str, torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    buffers: Mapping[str, torch.Tensor],
    *,
    seed: int = 0,
    step: int = 0,
    capture: Capture | None = None,
) -> StepResult:
    """Runs one forward pass, and a backward pass where there is a loss that has a gradient.

    Args:
        program: the program of one rank.
        shards: one per rank.
        attributes: by name, the tensors of the whole graph.
        parameters: by path; not changed: every rank has copies.
        buffers: by path; not changed: every rank has copies.
        seed: of random draws.
        step: number of the step.
        capture: gets every op's results, where the program was written with ``capture=True``. Called by several threads.

    Raises:
        AutoplanError: what the first failing rank raised.
    """
    gathered = {axis: gather_order(shards, axis) for axis in program.gathered}

    def work(communicator: Communicator) -> _RankStep:
        rank = communicator.rank
        context = RankContext.from_shard(
            shards[rank], communicator, seed=seed, step=step, gathered=gathered
        )
        own = {
            name: parameters[name].detach().clone().requires_grad_(name in program.trained)
            for name in program.parameters
        }
        own_buffers = {name: buffers[name].detach().clone() for name in program.buffers}
        inputs = shard_inputs(program.inputs, attributes, shards[rank])
        report = None
        if capture is not None:

            def report(*result: Any) -> None:
                capture(rank, *result)

        returned = program.run(context, own, own_buffers, inputs, report)
        if program.has_loss and returned[0].requires_grad:
            returned[0].backward()
        keys = [keys_of(context, output, returned) for output in program.outputs]
        gradients = {name: own[name].grad for name in program.trained if name in own}
        return _RankStep(returned, keys, gradients, own_buffers)

    ranks = run_ranks(len(shards), work)
    outputs = [
        assemble(
            output,
            [rank.returned[position] for rank in ranks],
            [rank.keys[position] for rank in ranks],
        )
        for position, output in enumerate(program.outputs)
    ]
    loss = outputs[0] if program.has_loss else None
    return StepResult(
        loss=loss,
        outputs=tuple(outputs[1:] if program.has_loss else outputs),
        gradients={
            name: _mean([rank.gradients[name] for rank in ranks]) for name in ranks[0].gradients
        },
        buffers=ranks[0].buffers,
    )


def keys_of(
    context: RankContext, output: RankOutput, returned: Sequence[Any]
) -> torch.Tensor | None:
    """The keys of an output's rows on this rank; None where it is whole."""
    if output.state != "O" or output.axis is None:
        return None
    if output.keys is not None:
        keys: torch.Tensor = returned[output.keys]
        return keys
    return context.keys(output.axis, "O")


def assemble(output: RankOutput, values: Sequence[Any], keys: Sequence[torch.Tensor | None]) -> Any:
    """An output of one device from those of all ranks; ``keys``: of their rows, from `keys_of`."""
    if not isinstance(values[0], torch.Tensor):
        return values[0]
    if output.dim is None or any(part is None for part in keys):
        return values[0].detach()
    return in_order(values, [part for part in keys if part is not None], output.dim).detach()


def in_order(parts: Sequence[torch.Tensor], keys: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """The ranks' rows along ``dim``, sorted by their keys: the order of one device."""
    return torch.cat(list(parts), dim).index_select(dim, torch.cat(list(keys)).argsort())


def _mean(gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """DistributedDataParallel's mean: it removes the factor that comes from every rank's loss being whole."""
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return None
    return torch.stack(present).sum(0) / len(gradients)
