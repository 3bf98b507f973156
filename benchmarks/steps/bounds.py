"""What autoplan must reach in each case, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.steps.protocol import Times

Verdict = Literal["holds", "fails", "not settled", "not gated"]

AT_LEAST = {"GCN": 4.3, "SAGE": 4.0, "GIN": 3.5, "SGC": 4.0, "APPNP": 4.0}
"""Times plain PyG's speed, by model."""
OR_MEASURED = ("SGC", "APPNP")
"""Of these, the measured bound where that is less: the lesser of ceiling and hand-lowered version."""
SHARE_OF_BOUND = 0.8
"""Of the measured bound, that every other model must reach."""
NEVER_BELOW = 1.0
SHORT_STEP = 0.020
"""Seconds; cases in which plain's step is shorter are reported, not gated."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a case must reach, in words, and whether it does."""

    bound: float | None
    words: str
    verdict: Verdict


def measured_bound(times: Times) -> tuple[float, str] | None:
    """The lesser speed-up of dense-only ceiling and hand-lowered version, and which it is; None without either."""
    found = [
        (each.median, name) for name in ("dense", "hand") if (each := times.ratio("plain", name))
    ]
    return min(found) if found else None


def gate(model: str, times: Times) -> Gate:
    """The verdict on a case.

    Args:
        model: its name in `benchmarks.steps.models`.
        times: of ``plain`` and ``autoplan``, and of ``hand`` and ``dense`` where they were run.
    """
    bound, words = _bound(model, times)
    reached = times.ratio("plain", "autoplan")
    plain = times.median("plain")
    if reached is None or plain is None:
        return Gate(bound, words, "fails")
    if plain < SHORT_STEP:
        return Gate(bound, words, "not gated")
    if not reached.settled:
        return Gate(bound, words, "not settled")
    if bound is None:
        return Gate(None, words, "fails")
    return Gate(bound, words, "holds" if reached.median >= bound else "fails")


def _bound(model: str, times: Times) -> tuple[float | None, str]:
    measured = measured_bound(times)
    fixed = AT_LEAST.get(model)
    if fixed is not None:
        if model in OR_MEASURED and measured is not None and measured[0] < fixed:
            value, name = measured
            return max(value, NEVER_BELOW), f"measured bound ({name})"
        return fixed, "fixed"
    if measured is None:
        return None, "no hand-lowered version and no ceiling: no pass"
    value, name = measured
    return max(SHARE_OF_BOUND * value, NEVER_BELOW), f"{SHARE_OF_BOUND:.0%} of {name}"
