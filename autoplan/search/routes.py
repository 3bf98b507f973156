"""The cheapest moves that bring one tensor into the states its readers need. Exact: a tensor has few moves, all sets are tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from autoplan.opgraph import State
from autoplan.search.problem import Move, Problem

Route = tuple[int, ...]
"""Positions in a tensor's ``moves``."""


def routes(moves: Sequence[Move], given: Iterable[State], needed: Iterable[State]) -> list[Route]:
    """Every irreducible set of moves that reaches all needed states from the given ones, cheapest first."""
    given, needed = tuple(given), tuple(needed)
    found: list[Route] = []
    for size in range(len(moves) + 1):
        for subset in itertools.combinations(range(len(moves)), size):
            if any(set(smaller) <= set(subset) for smaller in found):
                continue
            if set(needed) <= _reach([moves[m] for m in subset], given):
                found.append(subset)
    return sorted(found, key=lambda route: (route_seconds(moves, route), route))


def _reach(moves: Sequence[Move], given: Iterable[State]) -> set[State]:
    states = set(given)
    for _ in moves:
        states.update(move.target for move in moves if move.source in states)
    return states


def route_seconds(moves: Sequence[Move], route: Route) -> float:
    """Seconds of a set of moves."""
    return sum(moves[m].seconds for m in route)


def distance(problem: Problem, tensor: int, source: State, target: State) -> float:
    """Seconds of the cheapest way from a state to another; infinite where there is none, zero for what is loaded."""
    row = problem.tensors[tensor]
    if source == target:
        return 0.0
    if row.loadable:
        return 0.0 if target in row.loadable else math.inf
    found = routes(row.moves, (source,), (target,))
    return route_seconds(row.moves, found[0]) if found else math.inf
