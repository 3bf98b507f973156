"""`autoplan rebind`: a saved plan for a graph of other sizes or edges."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say


def rebind(
    plan: options.SavedPlan,
    target: options.TargetArgument,
    save: Annotated[Path | None, typer.Option(help="Write the new plan to this JSON file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Keep a saved plan's strategies for another graph: measure, partition and price it anew, and tell what changed."""
    with clean_stdout():
        from autoplan.cli.planning import check_writable, load_plan
        from autoplan.cli.target import load_target

        check_writable(save, "--save")
        loaded = load_target(target)
        rebound = load_plan(plan, loaded).rebind(loaded.graph, loaded.model)
        if save is not None:
            rebound.save(save)
            say(f"saved {save}")
    changes = rebound.changes
    assert changes is not None
    if as_json:
        document(
            {
                "changes": [asdict(change) for change in changes.changes],
                "verdict": changes.verdict,
                "plan": rebound.data.to_dict(),
            }
        )
    else:
        from autoplan.report.text import wrapped

        *tables, verdict = str(changes).rstrip().split("\n")
        result("\n".join([*tables, wrapped(verdict)]))
