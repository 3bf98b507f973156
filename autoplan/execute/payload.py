"""What the ranks of a pipeline send in one step, worked out from its programs and the parts of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from autoplan.execute.message import Message
from autoplan.execute.pipeline import holders
from autoplan.execute.stage_program import StageProgram
from autoplan.opgraph import SUMMED_BYTES
from autoplan.partition.halo import Shard
from autoplan.program.communicator import part_communicator
from autoplan.program.context import RankContext


def step_payload(
    programs: Sequence[StageProgram],
    shards: Sequence[Shard],
    parameters: Mapping[str, torch.Tensor],
    *,
    replicas: int,
) -> tuple[int, ...] | None:
    """[ranks] bytes that each rank hands over in one training step, as `audit.CollectiveCounter` counts them.

    Args:
        programs: of all stages.
        shards: the parts of the step's batch, those of replica 0 first.
        parameters: by path.
        replicas: of the pipeline.

    Returns:
        None where a message holds rows whose number only the data tells.
    """
    stages = len(programs)
    sent = [0] * (stages * replicas)
    contexts = [
        RankContext.from_shard(shard, part_communicator(shard.rank, shard.parts))
        for shard in shards
    ]
    each = len(shards) // replicas
    for program in programs:
        for target in dict.fromkeys(crossing.target for crossing in program.sends):
            theirs = [crossing for crossing in program.sends if crossing.target == target]
            ahead = Message.of(theirs, program.tensors, program.axes)
            back = Message.of(theirs, program.tensors, program.axes, gradients=True)
            if ahead.header:
                return None
            for shard, context in zip(shards, contexts, strict=True):
                if shard.is_empty():
                    continue
                first = shard.rank // each * stages
                sent[first + program.stage] += ahead.bytes(ahead.shapes(context, ()))
                sent[first + target] += back.bytes(back.shapes(context, ()))
    for name, ranks in holders(programs, replicas).items():
        if len(ranks) > 1:
            parameter = parameters[name]
            element = SUMMED_BYTES[str(parameter.dtype).removeprefix("torch.")]
            for rank in ranks:
                sent[rank] += parameter.numel() * element
    return tuple(sent)
