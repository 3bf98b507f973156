"""`autoplan verify`: a plan against one device, step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result


def verify(
    context: typer.Context,
    target: options.TargetArgument,
    devices: options.Devices = "2xcpu",
    strategy: options.Strategy = "data",
    batch_size: options.BatchSize = None,
    micro_batches: options.MicroBatches = None,
    schedule: options.Schedule = None,
    plan: options.PlanFile = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps to compare.")] = 3,
    as_json: options.Json = False,
) -> None:
    """Train on one device and by the plan, both in float64, and compare loss, gradients and weights."""
    from autoplan.report.text import wrapped

    with clean_stdout():
        from autoplan.api import verify as verify_plan
        from autoplan.cli.planning import given, load_plan, make_plan, saved_plan_alone
        from autoplan.cli.target import load_target

        if plan is not None:
            saved_plan_alone(context, "strategy", "batch_size", "micro_batches", "schedule")
        loaded = load_target(target)
        used = (
            make_plan(
                loaded,
                devices,
                strategy=strategy,
                batch_size=batch_size,
                micro_batches=micro_batches,
                schedule=schedule,
            )
            if plan is None
            else load_plan(plan, loaded, devices if given(context, "devices") else None)
        )
        verification = verify_plan(used, loaded.model, loaded.graph, steps=steps)
    if as_json:
        document(
            {
                "ok": verification.ok,
                "loss_error": verification.loss_error,
                "gradient_error": verification.gradient_error,
                "worst_parameter": verification.worst_parameter,
                "sentence": str(verification),
            }
        )
    else:
        result(wrapped(str(verification)))
    if not verification.ok:
        raise typer.Exit(1)
