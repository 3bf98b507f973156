"""Is this assignment a solution, and what does it cost? Computed from the problem alone, never from a solver's values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autoplan.opgraph import State
from autoplan.pricing.memory import BoolArray, FloatArray
from autoplan.search.problem import Assignment, Problem


def tolerance_bytes(limit: float) -> float:
    """By how much a solver that counts in MiB and rounds at 1e-6 may overstep a limit."""
    return 16.0 + 4e-6 * limit


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What an assignment comes to.

    Attributes:
        seconds: of one step, fixed costs included. faults: why it is no solution; empty when it is one (memory aside).
        usage: by direction [points, ranks] bytes, empty without a memory model. peak: [ranks] bytes.
        loads: (tensor, state) that are loaded. excess: [ranks] bytes above the limit, never negative.
    """

    seconds: float
    faults: tuple[str, ...]
    usage: dict[str, FloatArray]
    peak: tuple[float, ...]
    loads: tuple[tuple[int, State], ...]
    excess: tuple[float, ...]

    @property
    def fits(self) -> bool:
        """Whether every rank stays within its limit, up to rounding."""
        return not any(self.excess)


def evaluate(problem: Problem, assignment: Assignment) -> Evaluation:
    """Check one assignment and price it."""
    chosen = [problem.blocks[b][k] for b, k in enumerate(assignment.choices)]
    seconds = problem.fixed_seconds + sum(choice.seconds for choice in chosen)
    seconds += sum(problem.tensors[t].moves[m].seconds for t, m in assignment.moves)
    given: dict[int, list[State]] = {}
    for choice in chosen:
        for tensor, state in choice.gives:
            given.setdefault(tensor, []).append(state)
    present = {
        tensor: reached(problem, tensor, states, assignment.moves)
        for tensor, states in given.items()
    }
    faults: list[str] = []
    loads: dict[tuple[int, State], None] = {}
    needed = [(need, f"block {b}") for b, choice in enumerate(chosen) for need in choice.needs]
    needed += [(need, "the program's output") for need in problem.required]
    for (tensor, state), reader in needed:
        row = problem.tensors[tensor]
        if state in row.loadable:
            loads[tensor, state] = None
        elif state not in present.get(tensor, {}):
            faults.append(f"{reader} needs {row.name} in {state}, which nothing brings it to")
    for tensor, move in assignment.moves:
        if problem.tensors[tensor].moves[move].source not in present.get(tensor, {}):
            faults.append(f"{problem.tensors[tensor].name} is moved from a state it is not in")
    usage: dict[str, FloatArray] = {}
    peak: tuple[float, ...] = tuple(0.0 for _ in problem.limits)
    if problem.memory is not None:
        here, kept = presence(problem, assignment, loads)
        usage = problem.memory.usage(here, kept, buffers(problem, assignment))
        columns = [array.max(axis=0, initial=0.0) for array in usage.values()]
        peak = tuple(float(max(column[r] for column in columns)) for r in range(len(peak)))
    excess = tuple(
        0.0 if limit is None or used <= limit + tolerance_bytes(limit) else used - limit
        for used, limit in zip(peak, problem.limits, strict=True)
    )
    return Evaluation(seconds, tuple(faults), usage, peak, tuple(loads), excess)


def reached(
    problem: Problem, tensor: int, given: Iterable[State], moves: Iterable[tuple[int, int]]
) -> dict[State, None]:
    """States a tensor is present in, from what its producer gives and the moves taken."""
    states = dict.fromkeys(given)
    taken = [problem.tensors[tensor].moves[m] for t, m in moves if t == tensor]
    grown = True
    while grown:
        grown = False
        for move in taken:
            if move.source in states and move.target not in states:
                states[move.target] = None
                grown = True
    return states


def presence(
    problem: Problem, assignment: Assignment, loads: Iterable[tuple[int, State]]
) -> tuple[BoolArray, BoolArray]:
    """[U] masks of the memory model: which units are present, and which are saved (blocks of one op only)."""
    memory = problem.memory
    assert memory is not None
    here = np.zeros(len(memory.units), dtype=bool)
    kept = np.zeros(len(memory.units), dtype=bool)

    def mark(mask: BoolArray, tensor: int, state: State) -> None:
        unit = memory.unit_of.get((problem.tensors[tensor].name, state))
        if unit is not None:
            mask[unit] = True

    for block, number in enumerate(assignment.choices):
        choice = problem.blocks[block][number]
        for need in choice.gives:
            mark(here, *need)
        for need in choice.saves:
            mark(kept, *need)
    for tensor, number in assignment.moves:
        move = problem.tensors[tensor].moves[number]
        if (move.source, move.target) != ("H", "O"):
            # the owned rows of H come first: O is a view of it
            mark(here, tensor, move.target)
    for need in loads:
        mark(here, *need)
    return here, kept


def buffers(problem: Problem, assignment: Assignment) -> tuple[float, ...]:
    """Bytes per rank of the largest exchange."""
    largest = [0.0] * len(problem.limits)
    for tensor, number in assignment.moves:
        sizes = problem.tensors[tensor].moves[number].buffer_bytes
        for rank, size in enumerate(sizes):
            largest[rank] = max(largest[rank], size)
    return tuple(largest)
