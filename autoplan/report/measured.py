"""Predicted beside measured: step time, memory and communication of a training run. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoplan.plan import PlanData, Prediction
from autoplan.report.tables import RANKS_SHOWN, plain_table
from autoplan.report.units import percent, seconds, seconds_range, size, size_range


def predicted_and_measured(
    predicted: Prediction,
    *,
    step_seconds: float,
    peak_bytes: Sequence[int],
    communication_bytes: Sequence[int],
    as_planned: bool | None = None,
) -> Table:
    """A table of what the plan expects of one training step and what a run gave.

    Args:
        predicted: of the plan that ran.
        step_seconds: a typical step's time on the slowest rank.
        peak_bytes: measured tensor memory at its highest, per rank.
        communication_bytes: payload of one step counted at the process group, per rank.
        as_planned: whether that is what the plan sends in the counted step, whose graphs may be others than those that were
            priced; None where the data decide what crosses.
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
    if tuple(predicted.communication_bytes) == tuple(communication_bytes):
        sent = "equal on every rank"
    elif as_planned:
        sent = "as planned for that step"
    else:
        sent = "not as planned" if as_planned is False else "the data decide how much"
    table.add_row("bytes sent, all ranks", f"{planned:,}", f"{counted:,}", sent)
    return table


def _verdict(measured: float, low: float, high: float) -> str:
    if low <= measured <= high:
        return "within the range"
    if measured < low:
        return f"{_factor(low / measured)} below the range" if measured else "below the range"
    return f"{_factor(measured / high)} above the range" if high else "above the range"


def _factor(ratio: float) -> str:
    """A ratio above one: ``4 %``, or from a half on ``2.5 times``."""
    return f"{ratio:.1f} times" if ratio >= 1.5 else percent(ratio - 1)


@dataclass(frozen=True, slots=True)
class Forced:
    """A strategy that was asked for, and what came of it.

    Attributes:
        strategy: the family; plan: what was planned, None where it was refused; reason: why it was.
        step_seconds, peak_bytes, communication_bytes: measured, as of `predicted_and_measured`; None without a run.
    """

    strategy: str
    plan: PlanData | None = None
    reason: str | None = None
    step_seconds: float | None = None
    peak_bytes: Sequence[int] = ()
    communication_bytes: Sequence[int] = ()


def forced_candidates(rows: Sequence[Forced]) -> Group:
    """Every strategy's prediction beside what its run gave: a step, the fullest device's peak, bytes that all devices send.

    Those that were refused follow with their reasons.
    """
    numbers = ("step", "run", "peak", "run ", "sent", "run  ")
    table = plain_table("strategy", "devices", *numbers, numbers=("devices", *numbers))
    for row in rows:
        if row.plan is None or row.step_seconds is None:
            continue
        predicted = row.plan.predicted
        table.add_row(
            row.strategy,
            str(len(row.plan.devices)),
            seconds(predicted.step_seconds.value),
            seconds(row.step_seconds),
            size(max(peak.value for peak in predicted.peak_bytes)),
            size(max(row.peak_bytes)),
            size(sum(predicted.communication_bytes)),
            size(sum(row.communication_bytes)),
        )
    lines: list[RenderableType] = [
        table,
        Text(
            "per step: as predicted, then as run; peak of the fullest device, bytes sent by all devices"
        ),
    ]
    refused = [row for row in rows if row.reason is not None]
    if refused:
        reasons = Table.grid(padding=(0, 2))
        for row in refused:
            reasons.add_row(row.strategy, f"refused: {row.reason}")
        lines += [Text(""), reasons]
    return Group(*lines)
