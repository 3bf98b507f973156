"""What it costs to bring one tensor from where it is made to where it is read: the moves of `states.way`, and their adjoints.

A move's adjoint is paid when a gradient crosses it: when a reader of its result differentiates the tensor, or a move that
starts from its result is crossed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from autoplan.opgraph import State
from autoplan.search.problem import Move, Tensor
from autoplan.states import way

Reads = tuple[tuple[State, bool], ...]
"""States in which a tensor is read, each once, and whether a gradient crosses there; sorted."""
STATES: tuple[State, ...] = ("R", "O", "H", "S")


def taken_moves(
    moves: tuple[Move, ...], produced: State, reads: Mapping[State, bool]
) -> tuple[tuple[int, bool], ...] | None:
    """Positions of the moves that are taken, in order, and whether each is crossed by a gradient; None: no way."""
    steps = way([move.transition for move in moves], produced, reads)
    if steps is None:
        return None
    crossed: dict[State, bool] = {}
    for step in reversed(steps):
        onward = any(crossed.get(s.target, False) for s in steps if s.source == step.target)
        crossed[step.target] = reads.get(step.target, False) or onward
    numbers = {move.transition: number for number, move in enumerate(moves)}
    return tuple((numbers[step], crossed[step.target]) for step in steps)


@lru_cache(maxsize=65536)
def move_seconds(moves: tuple[Move, ...], produced: State, reads: Reads) -> float:
    """Seconds of a tensor's moves, adjoints included; infinite where there is no way."""
    taken = taken_moves(moves, produced, dict(reads))
    if taken is None:
        return math.inf
    return sum(moves[m].seconds + crossed * moves[m].adjoint_seconds for m, crossed in taken)


@lru_cache(maxsize=65536)
def read_elsewhere(tensor: Tensor, before: Reads, after: Reads) -> float:
    """At most so many seconds more when one reader changes where it reads, whatever others read and wherever it is made."""
    if before == after:
        return 0.0
    if tensor.loadable:
        return 0.0 if all(state in tensor.loadable for state, _ in after) else math.inf
    changes = [
        _difference(
            move_seconds(tensor.moves, produced, _union(before, others)),
            move_seconds(tensor.moves, produced, _union(after, others)),
        )
        for produced in STATES
        for others in contexts()
    ]
    return max(changes)


@lru_cache(maxsize=65536)
def made_elsewhere(tensor: Tensor, before: State, after: State) -> float:
    """At most so many seconds more when a tensor is made in another state, wherever it is read."""
    if before == after:
        return 0.0
    return max(
        _difference(
            move_seconds(tensor.moves, before, reads), move_seconds(tensor.moves, after, reads)
        )
        for reads in contexts()
    )


def contexts() -> Iterator[Reads]:
    """Every combination of reads: each state not at all, without or with a gradient."""
    for flags in itertools.product((None, False, True), repeat=len(STATES)):
        yield tuple((s, f) for s, f in zip(STATES, flags, strict=True) if f is not None)


def _union(first: Reads, second: Reads) -> Reads:
    merged = dict(second)
    for state, crosses in first:
        merged[state] = merged.get(state, False) or crosses
    return tuple((state, merged[state]) for state in STATES if state in merged)


def _difference(before: float, after: float) -> float:
    """How much dearer; a case that was impossible before asks for nothing."""
    return -math.inf if math.isinf(before) else after - before
