"""`autoplan diff`: what differs between two saved plans."""

from __future__ import annotations

import typer

from autoplan.cli import options
from autoplan.cli.output import document, result

DIFFER = 1
"""Exit code for plans that differ, as of diff(1)."""


def diff(
    first: options.SavedPlan,
    second: options.SavedPlan,
    as_json: options.Json = False,
) -> None:
    """Compare two saved plans by meaning; exit with 0 when they are equal, 1 when they differ."""
    from autoplan.cli.planning import read_plan
    from autoplan.report.comparison import compare
    from autoplan.report.comparison_text import differences, differences_document

    changes = compare(read_plan(first), read_plan(second))
    if as_json:
        document(differences_document(changes, str(first), str(second)))
    else:
        result(differences(changes, str(first), str(second)))
    if changes:
        raise typer.Exit(DIFFER)
