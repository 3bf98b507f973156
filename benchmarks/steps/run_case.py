"""Times one case with a process for each side."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.steps.bounds import Gate, gate
from benchmarks.steps.cases import Case
from benchmarks.steps.processes import Side, SideError, SideMissingError
from benchmarks.steps.protocol import (
    MOST_ROUNDS,
    PAIR,
    ROUNDS,
    SLOW,
    Times,
    TooSlowError,
    rounds,
    warm_up,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case's times, what it had to reach, and what was in the way, by side."""

    case: Case
    times: Times
    gate: Gate
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Effort:
    """Sides to run, and rounds."""

    sides: tuple[str, ...]
    least: int = ROUNDS
    most: int = MOST_ROUNDS


def run_case(case: Case, effort: Effort) -> Outcome:
    """Times a case; the one with fewer edges where a plain step takes over ten seconds.

    Sides that fail are noted; without plain or autoplan the case fails.
    """
    notes: list[str] = []
    try:
        times = _times(case, effort, notes)
    except TooSlowError as slow:
        assert case.smaller is not None
        smaller = run_case(case.smaller, effort)
        note = f"plain takes {slow.args[0]:.1f} s a step with 0.7 M edges: 0.14 M edges"
        return Outcome(smaller.case, smaller.times, smaller.gate, (note, *smaller.notes))
    return Outcome(case, times, gate(case.model, times), tuple(notes))


def _times(case: Case, effort: Effort, notes: list[str]) -> Times:
    with ExitStack() as stack:
        ready = []
        # one by one, so that no side's set-up is in another's way; plain first, so that a slow case ends early
        for name in effort.sides:
            _tell(f"{case.model} on {case.graph}: {name} is set up")
            side = stack.enter_context(Side(name, case.model, case.graph))
            try:
                side.wait_ready()
                warm_up([side], slow=SLOW if case.smaller is not None else None)
            except SideMissingError as error:
                notes.append(f"{name}: {error}")
            except SideError as error:
                notes.append(str(error))
                _tell(str(error))
            else:
                ready.append(side)
        if not {side.name for side in ready} >= set(PAIR):
            return Times()
        return rounds(ready, _progress(case, effort), least=effort.least, most=effort.most)


def _progress(case: Case, effort: Effort) -> Callable[[int, Times], None]:
    def tell(number: int, times: Times) -> None:
        reached = times.ratio(*PAIR)
        assert reached is not None
        _tell(
            f"{case.model} on {case.graph}: round {number + 1} of {effort.least} to {effort.most}: "
            f"{reached.median:.2f} x ± {reached.half_width:.1%}"
        )

    return tell


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text.splitlines()[-1][:110]}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Takes the line of progress away."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
