"""What a run gives: raw seconds as CSV, a table, JSON."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.steps.protocol import SIDES
from benchmarks.steps.ratios import Ratio
from benchmarks.steps.run_case import Outcome

RESULTS = Path(__file__).resolve().parents[1] / "results"
COLUMNS = ("model", "graph", "round", "side", "seconds")


def store(path: Path, outcome: Outcome) -> None:
    """Writes a case's steps into a file, in place of those that it has of this case; other cases' stay."""
    kept: list[list[str]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            case = [outcome.case.model, outcome.case.graph]
            kept = [row for row in list(csv.reader(file))[1:] if row[:2] != case]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(kept)
        for side, steps in outcome.times.seconds.items():
            for number, seconds in steps.items():
                row = (outcome.case.model, outcome.case.graph, number, side, f"{seconds:.6f}")
                writer.writerow(row)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """A case's medians (seconds), ratios and verdict."""
    return {
        "model": outcome.case.model,
        "graph": outcome.case.graph,
        "seconds": {side: outcome.times.median(side) for side in (*SIDES, "probe")},
        "speed_up": {
            side: _ratio(outcome.times.ratio("plain", side)) for side in SIDES if side != "plain"
        },
        "bound": outcome.gate.bound,
        "bound_from": outcome.gate.words,
        "verdict": outcome.gate.verdict,
        "notes": list(outcome.notes),
    }


def _ratio(ratio: Ratio | None) -> dict[str, float] | None:
    if ratio is None:
        return None
    return {
        "median": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
        "half_width": ratio.half_width,
        "rounds": ratio.rounds,
    }


def table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each case."""
    shown = Table(title="One training step on one device, two threads: plain PyG against autoplan")
    for name in ("model", "graph"):
        shown.add_column(name, no_wrap=True)
    for name in ("plain", "autoplan", "speed-up", "hand", "ceiling", "bound"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("from")
    shown.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        times = outcome.times
        reached = times.ratio("plain", "autoplan")
        speed = f"{reached.median:.2f} ± {reached.half_width:.1%}" if reached else "-"
        bound = outcome.gate.bound
        shown.add_row(
            outcome.case.model,
            outcome.case.graph,
            _milliseconds(times.median("plain")),
            _milliseconds(times.median("autoplan")),
            speed,
            _times_faster(times.ratio("plain", "hand")),
            _times_faster(times.ratio("plain", "dense")),
            "-" if bound is None else f"{bound:.2f}",
            outcome.gate.words,
            outcome.gate.verdict,
        )
    return shown


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def _times_faster(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}"
