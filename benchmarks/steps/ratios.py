"""Medians of ratios of interleaved times, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SETTLED = 0.03
"""The widest half-width, as a share of the median, of a ratio that a gate may use."""
_DRAWS = 4_000
_COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median ratio with the bootstrap's 95 % interval (percentiles of the medians of resampled rounds)."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def half_width(self) -> float:
        """Half of the interval's width, as a share of the median."""
        return (self.high - self.low) / 2 / self.median

    @property
    def settled(self) -> bool:
        """Whether the interval is narrow enough for a gate."""
        return self.half_width <= SETTLED


def ratio(over: Sequence[float], under: Sequence[float], *, seed: int = 0) -> Ratio:
    """``over[i] / under[i]`` of the rounds, which are what is resampled.

    Raises:
        ValueError: no rounds, or not as many on both sides.
    """
    if len(over) != len(under) or not over:
        raise ValueError(f"{len(over)} times cannot be paired with {len(under)}")
    ratios = np.asarray(over) / np.asarray(under)
    drawn = np.random.default_rng(seed).integers(0, len(ratios), (_DRAWS, len(ratios)))
    medians = np.median(ratios[drawn], axis=1)
    tail = (1 - _COVERAGE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Ratio(float(np.median(ratios)), float(low), float(high), len(ratios))
