"""The simulator of pipelines: every action of every rank at its time, by the schedule and by what it waits for.

A rank runs its actions one after the other (`schedule.actions`). Forward waits until the stages that it reads from have run
that micro-batch, then receives and computes; backward waits until all stages that send gradients back have run theirs, then
computes and sends its own gradients back. Receiving and sending occupy the receiver of the activation; the other side only
hands over. After the last backward, gradients are summed over all ranks that hold a parameter, and each rank updates its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autoplan.plan import MemorySheet, Prediction, Range, Schedule
from autoplan.pricing.parts import FloatArray
from autoplan.schedule import actions
from autoplan.simulate import MEMORY_RANGE

ActionKind = Literal["forward", "backward", "gradients", "optimizer"]


@dataclass(frozen=True, slots=True)
class ActionEntry:
    """One thing that a rank does in a step: from ``start``, for ``seconds`` of which ``communication`` is messages."""

    kind: ActionKind
    rank: int
    micro_batch: int | None
    start: float
    seconds: float
    communication: float


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """What a stage receives from an earlier one; the first axis of times is value, low, high.

    Attributes:
        source, target: stages.
        seconds: [3, D, m] of receiving it for each micro-batch. back: likewise of its gradients; zeros where none.
        gradient: some gradient goes back, so that the source's backward waits for the target's.
    """

    source: int
    target: int
    seconds: FloatArray
    back: FloatArray
    gradient: bool


@dataclass(frozen=True, slots=True, eq=False)
class GradientSum:
    """One all-reduce of gradients: the ranks that hold the parameters, bytes, and [3] seconds."""

    ranks: tuple[int, ...]
    bytes: int
    seconds: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class PipelineCosts:
    """Everything that a pipeline's step is made of. S stages, D replicas, m micro-batches; rank ``d * S + s``.

    Attributes:
        schedule: order of micro-batches. training: forward, backward, update; or forward alone.
        forward, backward: [3, S, D, m] seconds of computing.
        arrivals: between stages. sums: of gradients, in the order they happen.
        optimizer: [3, ranks] seconds of the update.
    """

    schedule: Schedule
    training: bool
    forward: FloatArray
    backward: FloatArray
    arrivals: tuple[Arrival, ...]
    sums: tuple[GradientSum, ...]
    optimizer: FloatArray


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """Attributes: seconds of the step; entries, in order of their start; bubble, mean share of the step that ranks wait."""

    seconds: float
    entries: tuple[ActionEntry, ...]
    bubble: float


def run_pipeline(costs: PipelineCosts, case: int = 0) -> PipelineRun:
    """Play one step. ``case``: 0 with the expected times, 1 with the low ones, 2 with the high ones."""
    _, stages, replicas, _ = costs.forward.shape
    entries: list[ActionEntry] = []
    free = [0.0] * (stages * replicas)
    for replica in range(replicas):
        entries += _play(costs, case, replica, free)
    if costs.training:
        for each in costs.sums:
            start = max(free[rank] for rank in each.ranks)
            seconds = float(each.seconds[case])
            for rank in each.ranks:
                entries.append(ActionEntry("gradients", rank, None, start, seconds, seconds))
                free[rank] = start + seconds
        for rank, seconds in enumerate(map(float, costs.optimizer[case])):
            if seconds:
                entries.append(ActionEntry("optimizer", rank, None, free[rank], seconds, 0.0))
                free[rank] += seconds
    step = max(free)
    busy = sum(entry.seconds for entry in entries)
    bubble = 1 - busy / (step * len(free)) if step else 0.0
    entries.sort(key=lambda entry: (entry.start, entry.rank))
    return PipelineRun(step, tuple(entries), max(0.0, bubble))


def _play(costs: PipelineCosts, case: int, replica: int, free: list[float]) -> list[ActionEntry]:
    """All forwards and backwards of one replica; ``free`` is when each rank has nothing more to do."""
    _, stages, _, micro_batches = costs.forward.shape
    waiting = [
        list(actions(costs.schedule, stages, micro_batches, s, backward=costs.training))
        for s in range(stages)
    ]
    into = [[a for a in costs.arrivals if a.target == s] for s in range(stages)]
    out = [[a for a in costs.arrivals if a.source == s and a.gradient] for s in range(stages)]
    done: dict[tuple[str, int, int], float] = {}
    entries: list[ActionEntry] = []
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            rank = replica * stages + stage
            while waiting[stage]:
                action = waiting[stage][0]
                number = action.micro_batch
                if action.kind == "forward":
                    before = [("forward", a.source, number) for a in into[stage]]
                    messages = sum(float(a.seconds[case, replica, number]) for a in into[stage])
                    compute = float(costs.forward[case, stage, replica, number])
                else:
                    before = [("backward", a.target, number) for a in out[stage]]
                    messages = sum(float(a.back[case, replica, number]) for a in into[stage])
                    compute = float(costs.backward[case, stage, replica, number])
                if any(key not in done for key in before):
                    break
                start = max([free[rank], *(done[key] for key in before)])
                seconds = messages + compute
                entries.append(ActionEntry(action.kind, rank, number, start, seconds, messages))
                free[rank] = done[action.kind, stage, number] = start + seconds
                waiting[stage].pop(0)
                moved = True
    if any(waiting):
        raise RuntimeError(f"the schedule {costs.schedule} waits for itself")
    return entries


def predict_pipeline(
    costs: PipelineCosts, sheets: Sequence[MemorySheet], payload: Sequence[int]
) -> tuple[Prediction, PipelineRun]:
    """The prediction of one step, and how it runs.

    Args:
        costs: of the step.
        sheets: one per rank.
        payload: bytes each rank hands to others, forward, backward and in gradient sums.
    """
    expected, low, high = (run_pipeline(costs, case) for case in range(3))
    compute = [0.0] * len(sheets)
    communication = [0.0] * len(sheets)
    for entry in expected.entries:
        compute[entry.rank] += entry.seconds - entry.communication
        communication[entry.rank] += entry.communication
    small, large = MEMORY_RANGE
    prediction = Prediction(
        step_seconds=Range(
            expected.seconds,
            min(low.seconds, expected.seconds),
            max(high.seconds, expected.seconds),
        ),
        peak_bytes=tuple(Range(s.peak, s.peak * small, s.peak * large) for s in sheets),
        communication_bytes=tuple(payload),
        compute_seconds=max(compute),
        communication_seconds=max(communication),
    )
    return prediction, expected
