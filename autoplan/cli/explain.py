"""`autoplan explain`: a saved plan, or one made for the purpose, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, result

PLANNING = (
    "devices",
    "strategy",
    "objective",
    "optimizer",
    "batch_size",
    "micro_batches",
    "schedule",
    "exact",
)
"""Options that make a plan, and say nothing of a saved one."""


def explain(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="PLAN.json|FILE.py:FUNCTION",
            help="A saved plan (needs no torch), or a function to plan for.",
        ),
    ],
    devices: options.Devices = "2xcpu",
    strategy: options.Strategy = "auto",
    objective: options.Objective = "time",
    optimizer: options.Optimizer = "adam",
    batch_size: options.BatchSize = None,
    micro_batches: options.MicroBatches = None,
    schedule: options.Schedule = None,
    exact: options.Exact = True,
    as_json: options.Json = False,
) -> None:
    """Explain a plan: the answer, why, its price, memory, communication and states."""
    from autoplan.cli.planning import make_plan, read_plan, saved_plan_alone
    from autoplan.report import text

    with clean_stdout():
        if target.endswith(".json"):
            saved_plan_alone(context, *PLANNING, plan=target)
            data = read_plan(Path(target))
        else:
            from autoplan.cli.target import load_target

            data = make_plan(
                load_target(target),
                devices,
                strategy=strategy,
                objective=objective,
                optimizer=optimizer,
                batch_size=batch_size,
                micro_batches=micro_batches,
                schedule=schedule,
                exact=exact,
            ).data
    result(data.to_json() if as_json else text.explain(data))
