"""From good cuts to better ones: the integer programme over fewer blocks, and how far the answer may be from the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autoplan.plan import Status
from autoplan.search.result import SearchOptions
from autoplan.search.solution import SolverLimits
from autoplan.search.stage_blocks import coarser, merged
from autoplan.search.stage_ilp import solve_stages
from autoplan.search.stage_problem import StageProblem, evaluate_stages

MOST_BLOCKS = 30
MOST_BINARIES = 96
"""Blocks times stages of the integer programme."""
MOST_NODES = 100
GOOD_ENOUGH = 0.02
"""Cuts of many blocks that are proven to be so near to the best are not improved."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Stages of a problem's blocks; status and gap as in `autoplan.search.result.Candidate`.

    ``gap`` is of the closed form of the objective, relative: 0 where the integer programme proved it for blocks that no cut
    may separate.
    """

    problem: StageProblem
    stage_of: tuple[int, ...]
    status: Status = "heuristic"
    gap: float = 1.0


def refine(
    cuts: Cuts,
    modules: Mapping[int, str],
    *,
    objective: Literal["time", "memory"],
    options: SearchOptions,
    exact: bool,
) -> Cuts:
    """Looks at assignments that are not contiguous, over blocks that keep the cuts there are.

    Args:
        cuts: from the dynamic programme.
        modules: op index -> its module.
        objective: see `solve_stages`.
        options: of the search.
        exact: the blocks are those that no cut may separate.
    """
    problem = cuts.problem
    value = _value(problem, cuts.stage_of, objective)
    bound = least_possible(problem, objective)
    if len(problem.slots) == 1 or value <= bound * (1 + options.gap):
        return Cuts(problem, cuts.stage_of, "optimal", 0.0)
    small_enough = exact and len(problem.blocks) * len(problem.slots) <= MOST_BINARIES
    if not small_enough and value <= bound * (1 + GOOD_ENOUGH):
        return Cuts(problem, cuts.stage_of, "feasible", (value - bound) / value)
    most = max(len(problem.slots), min(MOST_BLOCKS, MOST_BINARIES // len(problem.slots)))
    firsts = [
        ops[0]
        for block, ops in enumerate(problem.blocks)
        if block and cuts.stage_of[block] != cuts.stage_of[block - 1]
    ]
    seconds = {
        op: float(problem.seconds[:, block].mean()) / len(ops)
        for block, ops in enumerate(problem.blocks)
        for op in ops
    }
    blocks = merged(problem.blocks, seconds, modules, most, keep=firsts)
    small = coarser(problem, blocks)
    found = solve_stages(
        small,
        objective=objective,
        limits=SolverLimits(
            options.gap, min(options.node_limit, MOST_NODES), options.time_limit_seconds
        ),
        at_most=value,
    )
    whole = exact and len(blocks) == len(problem.blocks)
    if whole and found.status in ("optimal", "feasible"):
        bound = max(bound, found.bound)
    best = cuts
    if found.stage_of is not None and found.evaluation is not None:
        better = _value(small, found.stage_of, objective)
        if better < value * (1 - 1e-9):
            best, value = Cuts(small, found.stage_of), better
    gap = max(0.0, value - bound) / value if value else 0.0
    proven = gap <= max(options.gap, 1e-5)
    return Cuts(best.problem, best.stage_of, "optimal" if proven else "feasible", gap)


def least_possible(problem: StageProblem, objective: str) -> float:
    """No assignment is better: all blocks on their fastest stage, the slowest stage with its share; bytes likewise."""
    stages = len(problem.slots)
    if objective == "memory":
        return sum(each.bytes for each in problem.held) / stages
    rows = problem.seconds[[slot.kind for slot in problem.slots]]
    fastest = rows.min(axis=0)
    total = float(fastest.sum()) + sum(slot.overhead for slot in problem.slots)
    return total + problem.weight * max(total / stages, float(fastest.max()))


def _value(problem: StageProblem, stage_of: tuple[int, ...], objective: str) -> float:
    found = evaluate_stages(problem, stage_of)
    return found.seconds if objective == "time" else max(found.bytes)
