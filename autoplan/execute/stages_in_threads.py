"""A pipeline whose ranks are threads of this process: the check of a plan before it is offered, its verification, tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.execute.inputs import shard_inputs
from autoplan.execute.lockstep import Capture, StepResult, assemble, keys_of
from autoplan.execute.pipeline import (
    MicroBatch,
    StageRunner,
    holders,
    share_written,
    sum_gradients,
)
from autoplan.execute.point_to_point import Peers, run_peers
from autoplan.execute.stage_program import StageProgram
from autoplan.partition.halo import Shard
from autoplan.plan import Schedule
from autoplan.program.communicator import part_communicator
from autoplan.program.context import RankContext


@dataclass(frozen=True, slots=True, eq=False)
class _RankStep:
    """What one rank has after a step; by micro-batch."""

    returned: list[list[Any] | None]
    contexts: list[RankContext]
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]


def run_stages(
    programs: Sequence[StageProgram],
    schedule: Schedule,
    shards: Sequence[Shard],
    attributes: Mapping[str, torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    buffers: Mapping[str, torch.Tensor],
    *,
    replicas: int = 1,
    micro_batches: int = 1,
    seed: int = 0,
    step: int = 0,
    capture: Capture | None = None,
) -> StepResult:
    """Runs one forward pass, and a backward pass where there is a loss that has a gradient.

    Args:
        programs: of all stages, in order.
        schedule: order of the micro-batches.
        shards: the parts of the batch, ``replicas * micro_batches`` of them: part ``d * micro_batches + j`` is micro-batch j of
            replica d. One part is the whole graph; several belong to a closed partition.
        attributes: by name, the tensors of the whole batch.
        parameters: by path; not changed: every rank has copies.
        buffers: by path; not changed: every rank has copies.
        replicas: of the pipeline.
        micro_batches: of each replica.
        seed: of random draws.
        step: number of the step.
        capture: gets every op's results with the number of the part, where the programs were written with ``capture=True``.
            Called by several threads.

    Returns:
        What one device would have: the loss is the sum of the parts' losses, gradients the sums over all holders.

    Raises:
        AutoplanError: what the first failing rank raised.
    """
    stages = len(programs)
    held_by = holders(programs, replicas)
    backward = any(program.program.has_loss for program in programs)

    def work(peers: Peers) -> _RankStep:
        replica, stage = divmod(peers.rank, stages)
        program = programs[stage].program
        own = {
            name: parameters[name].detach().clone().requires_grad_(name in held_by)
            for name in program.parameters
        }
        own_buffers = {name: buffers[name].detach().clone() for name in program.buffers}
        contexts: list[RankContext] = []
        batches: list[MicroBatch | None] = []
        for shard in shards[replica * micro_batches : (replica + 1) * micro_batches]:
            communicator = part_communicator(shard.rank, shard.parts)
            context = RankContext.from_shard(shard, communicator, seed=seed, step=step)
            contexts.append(context)
            inputs = {} if shard.is_empty() else shard_inputs(program.inputs, attributes, shard)
            report = None if capture is None else _reporter(capture, shard.rank)
            batches.append(None if shard.is_empty() else MicroBatch(context, inputs, report))
        runner = StageRunner(programs[stage], schedule, replica, peers)
        returned = runner.step(batches, own, own_buffers, backward=backward)
        share_written(peers, programs[stage], replicas, shards[0], own_buffers)
        if backward:
            sum_gradients(peers, held_by, own)
        gradients = {name: own[name].grad for name in program.trained}
        return _RankStep(returned, contexts, gradients, own_buffers)

    ranks = run_peers(stages * replicas, work)
    outputs: dict[int, Any] = {}
    for program in programs:
        parts = [
            (context, returned)
            for replica in range(replicas)
            for context, returned in _parts(ranks[replica * stages + program.stage])
        ]
        for place, position in enumerate(program.positions):
            described = program.program.outputs[place]
            values = [returned[place] for _, returned in parts]
            if described.state == "S":
                outputs[position] = torch.stack(values).sum(0)
                continue
            keys = [keys_of(context, described, returned) for context, returned in parts]
            outputs[position] = assemble(described, values, keys)
    has_loss = any(program.program.has_loss for program in programs)
    in_order = [outputs[position] for position in sorted(outputs)]
    gradients: dict[str, torch.Tensor | None] = {}
    after: dict[str, torch.Tensor] = {}
    for rank in ranks[:stages]:
        gradients.update(rank.gradients)
        after.update({name: value for name, value in rank.buffers.items() if name not in after})
    for program, rank in zip(programs, ranks[:stages], strict=True):
        after.update({name: rank.buffers[name] for name in program.program.written})
    return StepResult(
        loss=in_order[0] if has_loss else None,
        outputs=tuple(in_order[1:] if has_loss else in_order),
        gradients=gradients,
        buffers=after,
    )


def _reporter(capture: Capture, part: int) -> Any:
    def report(*result: Any) -> None:
        capture(part, *result)

    return report


def _parts(rank: _RankStep) -> list[tuple[RankContext, list[Any]]]:
    """The micro-batches that were run."""
    pairs = zip(rank.contexts, rank.returned, strict=True)
    return [(context, returned) for context, returned in pairs if returned is not None]
