"""Solving one problem the quick way: contracted where that is exact, with memory rows only where they bind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from autoplan.search.blocks import contract
from autoplan.search.check import evaluate
from autoplan.search.ilp import solve
from autoplan.search.problem import Problem
from autoplan.search.solution import Solution, SolverLimits


def optimise(
    problem: Problem,
    *,
    followers: Mapping[int, int],
    objective: Literal["time", "memory"],
    sharded: bool,
    limits: SolverLimits,
) -> Solution:
    """The best assignment of a problem of one op a block.

    Time: the contracted problem without limits first; where its solution fits, no limit binds and it is optimal. Else the
    problem itself, with limits. Memory: the least peak first, then the least time at that peak.

    Args:
        problem: one op a block.
        followers: see `blocks.heaviest_inputs`.
        objective: see `ilp.solve`.
        sharded: see `ilp.solve`.
        limits: see `ilp.solve`.
    """
    if all(len(choices) == 1 for choices in problem.blocks) and not any(
        tensor.moves for tensor in problem.tensors
    ):
        return _only(problem, objective)
    if objective == "memory":
        least = solve(problem, objective="memory", sharded=sharded, limits=limits)
        if least.evaluation is None:
            return least
        if not least.evaluation.fits:
            return replace(least, status="infeasible")
        peak = max(least.evaluation.peak)
        bounded = replace(problem, limits=(peak,) * len(problem.limits))
        quick = solve(bounded, sharded=sharded, limits=limits)
        if quick.evaluation is None:
            return least
        return replace(quick, status=least.status, bound=least.bound, gap=least.gap)
    contraction = contract(problem, followers)
    free = solve(contraction.problem, sharded=sharded, limits=limits)
    if free.assignment is None:
        return free
    expanded = contraction.expand(free.assignment)
    evaluation = evaluate(problem, expanded)
    if evaluation.fits:
        return replace(free, assignment=expanded, evaluation=evaluation)
    return solve(problem, sharded=sharded, limits=limits)


def _only(problem: Problem, objective: str) -> Solution:
    """Nothing to choose, so no solver."""
    assignment = (0,) * len(problem.blocks)
    evaluation = evaluate(problem, assignment)
    if evaluation.faults or not evaluation.fits:
        return Solution(None, None, "infeasible", float("inf"), 0.0, True)
    value = evaluation.seconds if objective == "time" else max(evaluation.peak)
    return Solution(assignment, evaluation, "optimal", value, 0.0, True)
