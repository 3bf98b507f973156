"""`autoplan run`: plan and train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say

if TYPE_CHECKING:
    from autoplan.execute.train import TrainResult
    from autoplan.plan import PlanData


def run(
    context: typer.Context,
    target: options.TargetArgument,
    devices: options.Devices = "2xcpu",
    strategy: options.Strategy = "auto",
    plan: options.PlanFile = None,
    rebind: Annotated[
        bool,
        typer.Option(
            "--rebind",
            help="With --plan: keep its strategies for a graph of other sizes or edges, and tell what changed.",
        ),
    ] = False,
    epochs: options.Epochs = 100,
    lr: options.LearningRate = 0.01,
    weight_decay: options.WeightDecay = 0.0,
    seed: options.Seed = 0,
    optimizer: options.Optimizer = "adam",
    batch_size: options.BatchSize = None,
    micro_batches: options.MicroBatches = None,
    schedule: options.Schedule = None,
    exact: options.Exact = True,
    save_weights: Annotated[
        Path | None, typer.Option(help="Write the trained model's state_dict to this file.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Plan, train, and print predicted beside measured."""
    with clean_stdout():
        from autoplan.cli.planning import (
            check_present,
            check_writable,
            given,
            load_plan,
            make_plan,
            saved_plan_alone,
        )
        from autoplan.cli.target import InputError, load_target
        from autoplan.report.text import headline, reasons

        of_batches = ("batch_size", "micro_batches", "schedule")
        if plan is not None:
            saved_plan_alone(context, "strategy", "optimizer", *of_batches, "exact")
        elif rebind:
            raise InputError("--rebind is for a saved plan; give it with --plan")
        if plan is None or given(context, "devices"):
            check_present(devices)
        check_writable(save_weights, "--save-weights")
        loaded = load_target(target)
        if plan is None:
            used = make_plan(
                loaded,
                devices,
                strategy=strategy,
                optimizer=optimizer,
                batch_size=batch_size,
                micro_batches=micro_batches,
                schedule=schedule,
                exact=exact,
            )
            say("\n".join([headline(used.data), *reasons(used.data)]))
        else:
            used = load_plan(plan, loaded, devices if given(context, "devices") else None)
            if rebind:
                used = used.rebind(loaded.graph, loaded.model)
                say(str(used.changes))
        say(f"training {epochs} epochs with strategy {used.strategy}")
        trained = used.train(
            loaded.model, loaded.graph, epochs=epochs, lr=lr, seed=seed, weight_decay=weight_decay
        )
        if save_weights is not None:
            import torch

            torch.save(loaded.model.state_dict(), save_weights)
            say(f"saved {save_weights}")
    if as_json:
        document(training_document(used.data, trained))
    else:
        result(training_text(used.data, trained))


def training_document(data: PlanData, trained: TrainResult) -> dict[str, object]:
    """What a run gave, beside what the plan expected, in JSON's types; seconds and bytes."""
    predicted = data.predicted
    return {
        "strategy": data.strategy,
        "devices": data.devices_text,
        "losses": list(trained.losses),
        "metrics": dict(trained.metrics),
        "step_seconds": {
            "predicted": predicted.step_seconds.value,
            "low": predicted.step_seconds.low,
            "high": predicted.step_seconds.high,
            "measured": trained.step_seconds,
        },
        "peak_bytes": {
            "predicted": [peak.value for peak in predicted.peak_bytes],
            "measured": list(trained.peak_bytes),
        },
        "communication_bytes": {
            "predicted": list(predicted.communication_bytes),
            "measured": list(trained.communication_bytes),
            "as_planned": trained.ran_as_planned,
        },
    }


def training_text(data: PlanData, trained: TrainResult) -> str:
    """First and last loss, metrics, and predicted beside measured."""
    from rich.text import Text

    from autoplan.report.measured import predicted_and_measured
    from autoplan.report.text import render
    from autoplan.report.units import count

    numbers = [f"loss {trained.losses[0]:.4g} at first, {trained.losses[-1]:.4g} at last"]
    numbers += [f"{name} {value:.4g}" for name, value in trained.metrics.items()]
    where = f"{data.strategy} on {count(len(data.devices), 'device')}"
    table = predicted_and_measured(
        data.predicted,
        step_seconds=trained.step_seconds,
        peak_bytes=trained.peak_bytes,
        communication_bytes=trained.communication_bytes,
        as_planned=trained.ran_as_planned,
    )
    per_epoch = 1 if data.batch is None else data.batch.steps_per_epoch
    epochs = count(len(trained.losses) // per_epoch, "epoch")
    steps = "" if per_epoch == 1 else f" of {per_epoch} steps"
    return render(
        (f"Trained {epochs}{steps} with {where}", Text("\n".join(numbers))),
        ("Predicted and measured", table),
    )
