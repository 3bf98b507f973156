"""Predicted beside measured: step time, memory and communication of a training run. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoplan.plan import Prediction
from autoplan.report.tables import RANKS_SHOWN, plain_table
from autoplan.report.units import seconds, seconds_range, size, size_range


def predicted_and_measured(
    predicted: Prediction,
    *,
    step_seconds: float,
    peak_bytes: Sequence[int],
    communication_bytes: Sequence[int],
) -> Table:
    """A table of what the plan expects of one training step and what a run gave.

    Args:
        predicted: of the plan that ran.
        step_seconds: a typical step's time on the slowest rank.
        peak_bytes: measured tensor memory at its highest, per rank.
        communication_bytes: payload of one step counted at the process group, per rank.
    """
    numbers = ("predicted", "measured")
    table = plain_table("per step", *numbers, "", numbers=numbers)
    time = predicted.step_seconds
    table.add_row(
        "time",
        seconds_range(time),
        seconds(step_seconds),
        _verdict(step_seconds, time.low, time.high),
    )
    many = len(peak_bytes) > RANKS_SHOWN
    fullest = max(range(len(peak_bytes)), key=lambda rank: peak_bytes[rank])
    for rank in [fullest] if many else range(len(peak_bytes)):
        peak = predicted.peak_bytes[rank]
        measured = peak_bytes[rank]
        table.add_row(
            f"peak memory, rank {rank}",
            size_range(peak),
            size(measured),
            _verdict(measured, peak.low, peak.high),
        )
    planned, counted = sum(predicted.communication_bytes), sum(communication_bytes)
    equal = tuple(predicted.communication_bytes) == tuple(communication_bytes)
    table.add_row(
        "bytes sent, all ranks",
        f"{planned:,}",
        f"{counted:,}",
        "equal on every rank" if equal else "not as planned",
    )
    return table


def _verdict(measured: float, low: float, high: float) -> str:
    if low <= measured <= high:
        return "within the range"
    if measured < low:
        return f"{low / measured:.1f} times below the range" if measured else "below the range"
    return f"{measured / high:.1f} times above the range" if high else "above the range"
