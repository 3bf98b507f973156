"""What it costs to bring one tensor from where it is made to where it is read: the moves of `states.way`, and their adjoints.

A move's adjoint is paid when a gradient crosses it: when a reader of its result differentiates the tensor, or a move that
starts from its result is crossed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autoplan.opgraph import State
from autoplan.search.problem import Move, Tensor
from autoplan.states import Transition, way

Reads = tuple[tuple[State, bool], ...]
"""States in which a tensor is read, each once and sorted, and whether a gradient crosses there."""
FloatArray = NDArray[np.float64]


def taken_moves(
    moves: Sequence[Move], produced: State, reads: Mapping[State, bool]
) -> tuple[tuple[int, bool], ...] | None:
    """Positions of the moves that are taken, in order, and whether each is crossed by a gradient; None: no way."""
    return _taken(tuple(move.transition for move in moves), produced, tuple(sorted(reads.items())))


@lru_cache(maxsize=4096)
def _taken(
    transitions: tuple[Transition, ...], produced: State, reads: Reads
) -> tuple[tuple[int, bool], ...] | None:
    steps = way(transitions, produced, dict(reads))
    if steps is None:
        return None
    differentiated = dict(reads)
    crossed: dict[State, bool] = {}
    for step in reversed(steps):
        onward = any(crossed.get(s.target, False) for s in steps if s.source == step.target)
        crossed[step.target] = differentiated.get(step.target, False) or onward
    return tuple((transitions.index(step), crossed[step.target]) for step in steps)


@dataclass(frozen=True, slots=True, eq=False)
class _Cases:
    """Every case of a set of transitions: p states it can be made in, c combinations of reads, m moves.

    Attributes:
        states: [p]. reads: [c], position: of each. union: [c, c] position of two combinations taken together.
        taken, crossed: [p, c, m] which moves happen, and which adjoints. possible: [p, c].
    """

    states: tuple[State, ...]
    reads: tuple[Reads, ...]
    position: Mapping[Reads, int]
    union: NDArray[np.int64]
    taken: FloatArray
    crossed: FloatArray
    possible: NDArray[np.bool_]


@lru_cache(maxsize=64)
def _cases(transitions: tuple[Transition, ...]) -> _Cases:
    states = tuple(sorted({s for t in transitions for s in (t.source, t.target)}))
    reads = tuple(
        tuple((s, f) for s, f in zip(states, flags, strict=True) if f is not None)
        for flags in itertools.product((None, False, True), repeat=len(states))
    )
    position = {each: number for number, each in enumerate(reads)}
    shape = (len(states), len(reads), len(transitions))
    taken, crossed = np.zeros(shape), np.zeros(shape)
    possible = np.zeros(shape[:2], dtype=bool)
    for p, state in enumerate(states):
        for c, each in enumerate(reads):
            found = _taken(transitions, state, each)
            possible[p, c] = found is not None
            for move, crosses in found or ():
                taken[p, c, move] = 1.0
                crossed[p, c, move] = float(crosses)
    union = np.array([[position[_union(a, b)] for b in reads] for a in reads])
    return _Cases(states, reads, position, union, taken, crossed, possible)


def _union(first: Reads, second: Reads) -> Reads:
    merged = dict(second)
    for state, crosses in first:
        merged[state] = merged.get(state, False) or crosses
    return tuple(sorted(merged.items()))


class Routes:
    """Costs of one tensor's moves in all cases at once.

    Args:
        tensor: whose moves they are.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._cases = _cases(tuple(move.transition for move in tensor.moves))
        seconds = np.array([move.seconds for move in tensor.moves])
        adjoints = np.array([move.adjoint_seconds for move in tensor.moves])
        cost = self._cases.taken @ seconds + self._cases.crossed @ adjoints
        self._seconds: FloatArray = np.where(self._cases.possible, cost, math.inf)
        self._changes: dict[tuple[object, object], float] = {}

    def seconds(self, produced: State, reads: Reads) -> float:
        """Seconds of the moves, adjoints included; infinite where there is no way."""
        cases = self._cases
        if not self._tensor.moves:
            return 0.0 if all(state == produced for state, _ in reads) else math.inf
        if produced not in cases.states or reads not in cases.position:
            return math.inf
        return float(self._seconds[cases.states.index(produced), cases.position[reads]])

    def read_elsewhere(self, before: Reads, after: Reads) -> float:
        """At most so many seconds more when one reader reads elsewhere, whatever others read and wherever it is made."""
        if before == after:
            return 0.0
        if self._tensor.loadable:
            return 0.0 if all(state in self._tensor.loadable for state, _ in after) else math.inf
        position = self._cases.position
        if before not in position or after not in position:
            return math.inf
        key = (before, after)
        if key not in self._changes:
            union = self._cases.union
            was = self._seconds[:, union[position[before]]]
            now = self._seconds[:, union[position[after]]]
            self._changes[key] = _most(was, now)
        return self._changes[key]

    def made_elsewhere(self, before: State, after: State) -> float:
        """At most so many seconds more when it is made in another state, wherever it is read."""
        if before == after:
            return 0.0
        states = self._cases.states
        if before not in states or after not in states:
            return math.inf
        key = (before, after)
        if key not in self._changes:
            was, now = self._seconds[states.index(before)], self._seconds[states.index(after)]
            self._changes[key] = _most(was, now)
        return self._changes[key]


def _most(was: FloatArray, now: FloatArray) -> float:
    """The greatest rise over all cases; one that was impossible before asks for nothing."""
    possible = np.isfinite(was)
    return float((now[possible] - was[possible]).max(initial=-math.inf))
