"""Enumeration of small problems: what proves the integer programme in the tests, and needs no solver."""

from __future__ import annotations

import itertools
import math
from typing import Literal

from autoplan.search.check import evaluate
from autoplan.search.problem import Problem
from autoplan.search.solution import Solution
from autoplan.search.stage_ilp import StageSolution
from autoplan.search.stage_problem import StageProblem, evaluate_stages

MOST_ASSIGNMENTS = 200_000


def enumerate_all(
    problem: Problem,
    *,
    objective: Literal["time", "memory"] = "time",
    most: int = MOST_ASSIGNMENTS,
) -> Solution:
    """Try every choice of every block; of equals the first stays.

    Raises:
        ValueError: there are more than ``most`` assignments.
    """
    size = math.prod(len(choices) for choices in problem.blocks)
    if size > most:
        raise ValueError(f"{size} assignments, more than {most}")
    best = Solution(None, None, "infeasible", math.inf, 0.0, True)
    for choices in itertools.product(*(range(len(choices)) for choices in problem.blocks)):
        evaluation = evaluate(problem, choices)
        if evaluation.faults or not evaluation.fits:
            continue
        value = evaluation.seconds if objective == "time" else max(evaluation.peak)
        if value < best.bound:
            best = Solution(choices, evaluation, "optimal", value, 0.0, True)
    return best


def enumerate_stages(
    problem: StageProblem,
    *,
    objective: Literal["time", "memory"] = "time",
    most: int = MOST_ASSIGNMENTS,
) -> StageSolution:
    """Try every stage of every block; of equals the first stays.

    Raises:
        ValueError: there are more than ``most`` assignments.
    """
    size = len(problem.slots) ** len(problem.blocks)
    if size > most:
        raise ValueError(f"{size} assignments, more than {most}")
    best = StageSolution(None, None, "infeasible", math.inf, True)
    stages = range(len(problem.slots))
    for stage_of in itertools.product(stages, repeat=len(problem.blocks)):
        found = evaluate_stages(problem, stage_of)
        if found.faults or not found.fits:
            continue
        value = found.seconds if objective == "time" else max(found.bytes)
        if value < best.bound:
            best = StageSolution(stage_of, found, "optimal", value, True)
    return best
