"""The differences of two plans as plain text and as a document. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from autoplan.report.comparison import Change, Subject, Unit, Value
from autoplan.report.tables import plain_table
from autoplan.report.text import render
from autoplan.report.units import count, digits, seconds, size

ROWS_SHOWN = 40
"""Of one part; `autoplan diff --json` has all."""

_TITLES: Mapping[Subject, str] = {
    "answer": "Answer",
    "fingerprints": "Fingerprints",
    "graph": "Graph",
    "devices": "Devices",
    "predicted": "Predicted step",
    "partition": "Partition",
    "stages": "Stages",
    "candidates": "Candidates",
    "memory": "Memory, most of a device",
    "communication": "Communication per step, payload sent by all devices",
    "states": "States by module",
    "document": "Elsewhere in the files",
}
_MADE_FOR: Mapping[str, str] = {
    "model": "another program or other shapes",
    "graph": "another schema, other sizes or other edges",
    "devices": "other devices or links",
}


def differences(changes: Sequence[Change], first: str, second: str) -> str:
    """Every difference, part by part; the plans are called by the names given, for example their files."""
    if not changes:
        return f"{first} and {second} are the same plan\n"
    summary = f"first: {first}\nsecond: {second}\n{count(len(changes), 'difference')}"
    for each in changes:
        if each.part == "fingerprints":
            summary += f"\nmade for {_MADE_FOR[each.name]}: the {each.name} fingerprints differ"
    return render(("Two plans", Text(summary)), *change_sections(changes, "first", "second"))


def change_sections(
    changes: Sequence[Change], first: str, second: str
) -> list[tuple[str, RenderableType]]:
    """A titled table for each part; the columns of the two plans are called as given."""
    parts = groupby(changes, key=lambda each: each.part)
    return [(_TITLES[part], _table(list(rows), first, second)) for part, rows in parts]


def _table(changes: Sequence[Change], first: str, second: str) -> Table:
    numbers = all(_numeric(change.first) and _numeric(change.second) for change in changes)
    columns = (first, second, "ratio") if numbers else (first, second)
    table = plain_table("", *columns, numbers=columns if numbers else ())
    for change in changes[:ROWS_SHOWN]:
        cells = [_shown(change.first, change.unit), _shown(change.second, change.unit)]
        if numbers:
            cells.append(_ratio(change.first, change.second))
        table.add_row(change.name, *cells)
    if len(changes) > ROWS_SHOWN:
        table.add_row(f"and {len(changes) - ROWS_SHOWN:,} more (--json has all)")
    return table


def _numeric(value: Value) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _shown(value: Value, unit: Unit) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "seconds":
        return seconds(value)
    if unit == "bytes":
        return size(value)
    return f"{value:,}" if isinstance(value, int) else digits(value)


def _ratio(first: Value, second: Value) -> str:
    """The second number against the first; empty where there are not two, or the first is nothing."""
    if isinstance(first, str | bool | None) or isinstance(second, str | bool | None) or not first:
        return ""
    return f"{second / first:.2f} x"


def differences_document(changes: Sequence[Change], first: str, second: str) -> dict[str, Any]:
    """`differences` in JSON's types; seconds and bytes, null where a plan has no such thing."""
    return {
        "equal": not changes,
        "first": first,
        "second": second,
        "changes": [asdict(change) for change in changes],
    }
