"""Enumeration of small problems: what proves the integer programme in the tests, and needs no solver."""

from __future__ import annotations

import itertools
import math
from typing import Literal

from autoplan.search.check import evaluate
from autoplan.search.problem import Problem
from autoplan.search.solution import Solution

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
