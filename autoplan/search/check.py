"""Is this assignment a solution, and what does it cost? Computed from the problem alone, never from a solver's values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.opgraph import State
from autoplan.pricing.memory import BoolArray, FloatArray
from autoplan.search.problem import Place, Problem
from autoplan.search.routes import taken_moves


def tolerance_bytes(limit: float) -> float:
    """By how much a solver that counts in MiB and rounds at 1e-6 may overstep a limit."""
    return 16.0 + 4e-6 * limit


@dataclass(frozen=True, slots=True)
class TakenMove:
    """Tensor (by position) takes a move (position in its ``moves``); ``crossed``: its adjoint happens too."""

    tensor: int
    move: int
    crossed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What an assignment comes to.

    Attributes:
        seconds: of one step, fixed costs included. faults: why it is no solution; empty when it is one (memory aside).
        moves: in the order of their tensors. loads: what is loaded; owned rows are a view of owned and halo rows.
        usage: by direction [points, ranks] bytes, empty without a memory model. peak: [ranks] bytes.
        excess: [ranks] bytes above the limit, never negative.
    """

    seconds: float
    faults: tuple[str, ...]
    moves: tuple[TakenMove, ...]
    loads: tuple[Place, ...]
    usage: dict[str, FloatArray]
    peak: tuple[float, ...]
    excess: tuple[float, ...]

    @property
    def fits(self) -> bool:
        """Whether every rank stays within its limit, up to rounding."""
        return not any(self.excess)


def evaluate(problem: Problem, choices: Sequence[int]) -> Evaluation:
    """Check one assignment (the number of each block's choice) and price it."""
    chosen = [problem.blocks[block][number] for block, number in enumerate(choices)]
    seconds = problem.fixed_seconds + sum(choice.seconds for choice in chosen)
    given: dict[int, State] = {place.tensor: place.state for c in chosen for place in c.gives}
    reads: dict[int, dict[State, bool]] = {}
    for read in (*(read for choice in chosen for read in choice.reads), *problem.required):
        states = reads.setdefault(read.tensor, {})
        states[read.state] = states.get(read.state, False) or read.crosses
    faults: list[str] = []
    moves: list[TakenMove] = []
    loads: list[Place] = []
    for number in sorted(reads):
        tensor, states = problem.tensors[number], reads[number]
        if tensor.loadable:
            for state in states:
                if state not in tensor.loadable:
                    faults.append(f"{tensor.name} is read in {state}, which it cannot be loaded in")
                elif state != "O" or "H" not in states:
                    loads.append(Place(number, state))
            continue
        taken = taken_moves(tensor.moves, given[number], states)
        if taken is None:
            faults.append(
                f"{tensor.name} is made in {given[number]} and read in {', '.join(sorted(states))}"
            )
            continue
        for move, crossed in taken:
            moves.append(TakenMove(number, move, crossed))
            seconds += tensor.moves[move].seconds
            seconds += tensor.moves[move].adjoint_seconds if crossed else 0.0
    usage: dict[str, FloatArray] = {}
    peak = tuple(0.0 for _ in problem.limits)
    if problem.memory is not None:
        here, kept = presence(problem, choices, moves, loads)
        usage = problem.memory.usage(here, kept, buffers(problem, moves))
        columns = [array.max(axis=0, initial=0.0) for array in usage.values()]
        peak = tuple(float(max(column[r] for column in columns)) for r in range(len(peak)))
    excess = tuple(
        0.0 if limit is None or used <= limit + tolerance_bytes(limit) else used - limit
        for used, limit in zip(peak, problem.limits, strict=True)
    )
    return Evaluation(seconds, tuple(faults), tuple(moves), tuple(loads), usage, peak, excess)


def presence(
    problem: Problem,
    choices: Sequence[int],
    moves: Iterable[TakenMove],
    loads: Iterable[Place],
) -> tuple[BoolArray, BoolArray]:
    """[U] masks of the memory model: which units are present, and which are saved (blocks of one op only)."""
    memory = problem.memory
    assert memory is not None
    here = np.zeros(len(memory.units), dtype=bool)
    kept = np.zeros(len(memory.units), dtype=bool)

    def mark(mask: BoolArray, places: Iterable[Place]) -> None:
        for place in places:
            unit = memory.unit_of.get((problem.tensors[place.tensor].name, place.state))
            if unit is not None:
                mask[unit] = True

    for block, number in enumerate(choices):
        mark(here, problem.blocks[block][number].gives)
        mark(kept, problem.blocks[block][number].saves)
    for taken in moves:
        step = problem.tensors[taken.tensor].moves[taken.move].transition
        if (step.source, step.target) != ("H", "O"):
            # the owned rows of H come first: O is a view of it
            mark(here, [Place(taken.tensor, step.target)])
    mark(here, loads)
    return here, kept


def buffers(problem: Problem, moves: Iterable[TakenMove]) -> tuple[float, ...]:
    """Bytes per rank of the largest exchange."""
    largest = [0.0] * len(problem.limits)
    for taken in moves:
        sizes = problem.tensors[taken.tensor].moves[taken.move].buffer_bytes
        for rank, size in enumerate(sizes):
            largest[rank] = max(largest[rank], size)
    return tuple(largest)
