"""The best cut of the block order into runs, one a stage: a dynamic programme over (stage, position).

It is exact among assignments that are contiguous in the order of the blocks, so also on chains; the integer programme
(`search.stage_ilp`) looks at all others. Costs and memory of every run of blocks are matrices [B+1, B+1], entry (i, j)
for blocks i to j-1, as everything a stage pays depends only on its own run (`search.stage_problem`).

Time is ``sum of tau + weight * max of tau``. For a bound on the slowest stage the least sum is a shortest path; the bounds
are those of the Pareto front, from none downwards, until no better value is possible (Zheng et al. 2022, Alpa, section 5.2,
enumerate the bound the other way).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autoplan.search.stage_problem import FloatArray, Message, StageProblem

MOST_BOUNDS = 2000
"""Points of the Pareto front that are looked at, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """[S, B+1, B+1] seconds and bytes of each stage with each run of blocks; infinite where there is no run."""

    seconds: FloatArray
    bytes: FloatArray


def runs_of(problem: StageProblem, *, memory: bool = True) -> Runs:
    """Costs of every run on every stage. ``memory``: False leaves bytes at zero."""
    count = len(problem.blocks)
    start = np.arange(count + 1)[:, None]
    stop = np.arange(count + 1)[None, :]
    proper = start < stop
    payload, arrived = np.zeros((count + 1, count + 1)), np.zeros((count + 1, count + 1))
    for message in problem.messages:
        received = (start > message.maker) & (_next(message.readers, count)[:, None] < stop)
        back = (start > message.maker) & (_next(message.gradient, count)[:, None] < stop)
        payload += (received * 1.0 + back) * message.bytes
        if memory:
            arrived += received * message.bytes
    elapsed = np.concatenate(
        [np.zeros((len(problem.seconds), 1)), problem.seconds.cumsum(axis=1)], axis=1
    )
    seconds, used = [], []
    held = _held(problem, stop) if memory else np.zeros((count + 1, count + 1))
    transient = _transient(problem) if memory else np.zeros_like(held)
    update = _update(problem, stop) if memory else np.zeros_like(held)
    kept = _kept(problem, start, stop) if memory else np.zeros((len(problem.slots), 1, 1))
    for stage, slot in enumerate(problem.slots):
        times = elapsed[slot.kind]
        tau = times[None, :] - times[:, None] + slot.overhead + payload / slot.bytes_per_s
        seconds.append(np.where(proper, tau, math.inf))
        most = held + np.maximum(arrived + transient + kept[stage], update)
        used.append(np.where(proper, most, math.inf))
    return Runs(np.array(seconds), np.array(used))


def _next(blocks: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """[B+1] the first of the blocks at or after each position; B + 1 where there is none."""
    found = np.full(count + 1, count + 1, dtype=np.int64)
    for block in sorted(blocks, reverse=True):
        found[: block + 1] = block
    return found


def _held(problem: StageProblem, stop: NDArray[np.int64]) -> FloatArray:
    count = len(problem.blocks)
    total = np.zeros((count + 1, count + 1))
    for each in problem.held:
        total += each.bytes * (_next(each.readers, count)[:, None] < stop)
    return total


def _update(problem: StageProblem, stop: NDArray[np.int64]) -> FloatArray:
    """Temporaries of the optimizer in each run."""
    count = len(problem.blocks)
    most, total = np.zeros((count + 1, count + 1)), np.zeros((count + 1, count + 1))
    for each in problem.held:
        if each.update or each.together:
            here = _next(each.readers, count)[:, None] < stop
            most = np.maximum(most, each.update * here)
            total += each.together * here
    return most + total


def _transient(problem: StageProblem) -> FloatArray:
    count = len(problem.blocks)
    table = np.zeros((count + 1, count + 1))
    for start in range(count):
        table[start, start + 1 :] = np.maximum.accumulate(problem.transient[start:])
    return table


def _kept(problem: StageProblem, start: NDArray[np.int64], stop: NDArray[np.int64]) -> FloatArray:
    """[S, B+1, B+1] what is kept for backward: saved in the run, or crossing into or out of it with a gradient."""
    count = len(problem.blocks)
    table = np.zeros((len(problem.slots), count + 1, count + 1))
    crossing: dict[int, list[Message]] = {}
    for message in problem.messages:
        if message.gradient and message.unit is not None:
            crossing.setdefault(message.unit, []).append(message)
    for number, unit in enumerate(problem.units):
        if not problem.kept[:, number].any():
            continue
        here = _next(unit.savers, count)[:, None] < stop
        for message in crossing.get(number, ()):
            here |= (start > message.maker) & (_next(message.gradient, count)[:, None] < stop)
            made = (start <= message.maker) & (message.maker < stop)
            here |= made & (max(message.gradient) >= stop)
        for stage in range(len(problem.slots)):
            table[stage] += problem.kept[stage, number] * here
    return table


def best_cuts(
    problem: StageProblem, *, objective: Literal["time", "memory"] = "time"
) -> tuple[int, ...] | None:
    """The stage of each block in the best contiguous assignment, or None where none fits.

    Args:
        problem: blocks in order.
        objective: step time; or the fullest stage, then time.
    """
    if len(problem.blocks) < len(problem.slots):
        return None
    runs = runs_of(problem, memory=objective == "memory" or problem.limited)
    limits = [math.inf if slot.limit is None else slot.limit for slot in problem.slots]
    if objective == "memory":
        room = np.array(limits)[:, None, None]
        fullest = _least_of_fullest(np.where(runs.bytes <= room, runs.bytes, math.inf))
        limits = [min(limit, fullest) for limit in limits]
    room = np.array(limits)[:, None, None]
    allowed = runs.bytes <= room * (1 + 1e-9) + 16
    cuts = _fastest(np.where(allowed, runs.seconds, math.inf), problem.weight)
    if cuts is None:
        return None
    stage_of = np.zeros(len(problem.blocks), dtype=np.int64)
    for cut in cuts:
        stage_of[cut:] += 1
    return tuple(int(stage) for stage in stage_of)


def _fastest(seconds: FloatArray, weight: float) -> tuple[int, ...] | None:
    """The cuts with the least ``sum + weight * max``."""
    least = _least_of_fullest(seconds)
    if math.isinf(least):
        return None
    best: tuple[float, tuple[int, ...]] | None = None
    # the most even cuts first: a good value to stop at
    for bound in (math.nextafter(least, math.inf), math.inf):
        for _ in range(MOST_BOUNDS):
            found = _least_sum(np.where(seconds < bound, seconds, math.inf))
            if found is None:
                break
            total, cuts = found
            edges = (0, *cuts, seconds.shape[1] - 1)
            slowest = max(
                float(run[i, j]) for run, (i, j) in zip(seconds, pairwise(edges), strict=True)
            )
            value = total + weight * slowest
            if best is None or value < best[0] * (1 - 1e-12):
                best = value, cuts
            if total + weight * least >= best[0] * (1 - 1e-12):
                break
            bound = slowest
    return None if best is None else best[1]


def _least_sum(seconds: FloatArray) -> tuple[float, tuple[int, ...]] | None:
    """Shortest path through the stages: its length and its S - 1 cuts."""
    reach = seconds[0, 0, :]
    back = []
    for stage in range(1, len(seconds)):
        ways = reach[:, None] + seconds[stage]
        back.append(ways.argmin(axis=0))
        reach = ways.min(axis=0)
    if math.isinf(reach[-1]):
        return None
    position = seconds.shape[1] - 1
    cuts: list[int] = []
    for step in reversed(back):
        position = int(step[position])
        cuts.append(position)
    return float(reach[-1]), tuple(reversed(cuts))


def _least_of_fullest(cost: FloatArray) -> float:
    """The least that the greatest cost of a stage can be."""
    reach = cost[0, 0, :]
    for stage in range(1, len(cost)):
        reach = np.maximum(reach[:, None], cost[stage]).min(axis=0)
    return float(reach[-1])
