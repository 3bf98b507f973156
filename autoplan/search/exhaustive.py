"""Enumeration of small problems: what proves the integer programme in the tests, and needs no solver."""

from __future__ import annotations

import itertools
import math
from typing import Literal

from autoplan.opgraph import State
from autoplan.search.check import evaluate
from autoplan.search.problem import Assignment, Problem
from autoplan.search.routes import routes
from autoplan.search.solution import Solution

MOST_ASSIGNMENTS = 200_000


def enumerate_all(
    problem: Problem,
    *,
    objective: Literal["time", "memory"] = "time",
    most: int = MOST_ASSIGNMENTS,
) -> Solution:
    """Try every choice of every block with every irreducible set of moves.

    Raises:
        ValueError: there are more than ``most`` choices.
    """
    size = math.prod(len(choices) for choices in problem.blocks)
    if size > most:
        raise ValueError(f"{size} assignments, more than {most}")
    best: Solution | None = None
    best_value = math.inf
    for numbers in itertools.product(*(range(len(choices)) for choices in problem.blocks)):
        for moves in _all_moves(problem, numbers):
            assignment = Assignment(numbers, moves)
            evaluation = evaluate(problem, assignment)
            if evaluation.faults or not evaluation.fits:
                continue
            value = evaluation.seconds if objective == "time" else max(evaluation.peak)
            if value < best_value:
                best_value = value
                best = Solution(assignment, evaluation, "optimal", value, 0.0, True)
    return best or Solution(None, None, "infeasible", math.inf, 0.0, True)


def _all_moves(
    problem: Problem, numbers: tuple[int, ...]
) -> itertools.chain[tuple[tuple[int, int], ...]]:
    """Every combination of irreducible routes of the tensors that need moving."""
    given: dict[int, dict[State, None]] = {}
    needed: dict[int, dict[State, None]] = {}
    for block, number in enumerate(numbers):
        choice = problem.blocks[block][number]
        for tensor, state in choice.gives:
            given.setdefault(tensor, {})[state] = None
        for tensor, state in choice.needs:
            needed.setdefault(tensor, {})[state] = None
    for tensor, state in problem.required:
        needed.setdefault(tensor, {})[state] = None
    options = [
        [
            tuple((tensor, move) for move in route)
            for route in routes(problem.tensors[tensor].moves, given.get(tensor, {}), states)
        ]
        for tensor, states in needed.items()
        if not problem.tensors[tensor].loadable
    ]
    return itertools.chain(
        tuple(sorted(itertools.chain(*combination))) for combination in itertools.product(*options)
    )
