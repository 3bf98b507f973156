"""`autoplan show`: a saved plan, or a part of it."""

from __future__ import annotations

from typing import Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import document, result
from autoplan.report.parts import Part


def show(
    plan: options.SavedPlan,
    part: Annotated[Part | None, typer.Option(help="Show this part of the plan alone.")] = None,
    as_json: options.Json = False,
) -> None:
    """Show a saved plan, or one part of it. Needs neither torch nor the model."""
    from autoplan.cli.planning import read_plan
    from autoplan.report import text
    from autoplan.report.parts import part_document

    data = read_plan(plan)
    if part is None:
        result(data.to_json() if as_json else text.explain(data))
    elif as_json:
        document(part_document(data, part))
    else:
        result(text.explain_part(data, part))
