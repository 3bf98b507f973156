"""`autoplan plan`: plan and explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, result, say


def plan(
    target: options.TargetArgument,
    devices: options.Devices = "2xcpu",
    strategy: options.Strategy = "auto",
    objective: options.Objective = "time",
    optimizer: options.Optimizer = "adam",
    batch_size: options.BatchSize = None,
    graph_spec: options.GraphSpecName = None,
    micro_batches: options.MicroBatches = None,
    schedule: options.Schedule = None,
    exact: options.Exact = True,
    save: Annotated[Path | None, typer.Option(help="Write the plan to this JSON file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Plan a model and graph for devices; print the plan and why it was chosen."""
    with clean_stdout():
        from autoplan.cli.planning import check_writable, make_plan, with_sizes
        from autoplan.cli.target import load_target

        check_writable(save, "--save")
        made = make_plan(
            with_sizes(load_target(target), graph_spec),
            devices,
            strategy=strategy,
            objective=objective,
            optimizer=optimizer,
            batch_size=batch_size,
            micro_batches=micro_batches,
            schedule=schedule,
            exact=exact,
        )
        if save is not None:
            made.save(save)
            say(f"saved {save}")
    result(made.data.to_json() if as_json else made.explain())
