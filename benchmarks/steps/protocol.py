"""How a case is timed: all sides set up, warm-up, then rounds in which every side makes a step in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.steps.ratios import Ratio, ratio

PAIR = ("plain", "autoplan")
SIDES = (*PAIR, "hand", "dense")
ROUNDS, MOST_ROUNDS = 15, 45
REFERENCE_EVERY = 3
"""References (hand, dense) run in each third round: they are only a bound."""
SLOW = 10.0
"""Seconds a step, above which a case is moved to the smaller graph."""
_WARM_UP = {"plain": 2, "autoplan": 5, "hand": 2, "dense": 2}
"""Steps before the first round; autoplan's first ones are watched for memory and traffic."""


class Stepper(Protocol):
    """A side, as `Side`."""

    name: str

    def step(self) -> float:
        """Seconds of the next step."""

    def probe(self) -> float:
        """Seconds of the fixed piece of work."""


@dataclass(slots=True)
class Times:
    """Seconds of each side's steps, by round: {side: {round: seconds}}; ``probe`` among the sides."""

    seconds: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, round_number: int, side: str, seconds: float) -> None:
        """Records a step."""
        self.seconds.setdefault(side, {})[round_number] = seconds

    def ratio(self, over: str, under: str) -> Ratio | None:
        """Of the rounds in which both ran; None without any."""
        first, second = self.seconds.get(over, {}), self.seconds.get(under, {})
        both = sorted(first.keys() & second.keys())
        return ratio([first[n] for n in both], [second[n] for n in both]) if both else None

    def median(self, side: str) -> float | None:
        """Seconds of a side's step."""
        values = self.seconds.get(side, {}).values()
        return statistics.median(values) if values else None


class TooSlowError(Exception):
    """A step takes more than the bound; seconds."""


def warm_up(sides: Sequence[Stepper], *, slow: float | None = SLOW) -> None:
    """The first steps of each side, which are not recorded. Raises TooSlowError when plain's last one takes over ``slow``."""
    for side in sides:
        seconds = 0.0
        for _ in range(_WARM_UP.get(side.name, 2)):
            seconds = side.step()
        if side.name == "plain" and slow is not None and seconds > slow:
            raise TooSlowError(seconds)


def rounds(
    sides: Sequence[Stepper],
    tell: Callable[[int, Times], None],
    *,
    least: int = ROUNDS,
    most: int = MOST_ROUNDS,
    pair: tuple[str, str] = PAIR,
) -> Times:
    """Rounds until the pair's ratio is settled: at least ``least``, at most ``most``; their order alternates."""
    times = Times()
    for number in range(most):
        if number >= least:
            reached = times.ratio(*pair)
            if reached is None or reached.settled:
                break
        now = [side for side in sides if side.name in pair or number % REFERENCE_EVERY == 0]
        for side in now if number % 2 == 0 else reversed(now):
            times.add(number, side.name, side.step())
        times.add(number, "probe", sides[0].probe())
        tell(number, times)
    return times
