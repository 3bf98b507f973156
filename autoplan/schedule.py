"""Pipeline schedules: in which order a stage runs its micro-batches, forward and backward. Data only, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoplan.plan import Schedule


@dataclass(frozen=True, slots=True)
class Action:
    """One pass of one micro-batch through one stage."""

    kind: Literal["forward", "backward"]
    micro_batch: int


def actions(
    schedule: Schedule, stages: int, micro_batches: int, stage: int, *, backward: bool = True
) -> tuple[Action, ...]:
    """What a stage does in one step, in order.

    ``gpipe`` runs all micro-batches forward, then all backward in the same order (Huang et al. 2019, GPipe, section 2.3).
    ``1f1b`` runs ``in_flight - 1`` of them forward, then one forward and one backward in turn, then the backwards that are
    left (Narayanan et al. 2021, Memory-efficient pipeline-parallel DNN training, PipeDream-Flush).

    Args:
        schedule: which.
        stages: number of stages.
        micro_batches: at least 1.
        stage: counted from 0.
        backward: False: forward passes only.
    """
    forwards = [Action("forward", number) for number in range(micro_batches)]
    if not backward:
        return tuple(forwards)
    backwards = [Action("backward", number) for number in range(micro_batches)]
    ahead = in_flight(schedule, stages, micro_batches, stage)
    if schedule == "gpipe":
        return (*forwards, *backwards)
    order = forwards[: ahead - 1]
    for number in range(micro_batches):
        order += forwards[ahead - 1 + number : ahead + number]
        order.append(backwards[number])
    return tuple(order)


def in_flight(schedule: Schedule, stages: int, micro_batches: int, stage: int) -> int:
    """The most micro-batches whose activations a stage holds at one time: m for GPipe, min(m, S - s) for 1F1B."""
    if schedule == "gpipe":
        return micro_batches
    return min(micro_batches, stages - stage)
