"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from autoplan.graphsizes import PUBLIC

_PUBLIC = "; ".join(f"{spec.name}: {spec.attributes}" for spec in PUBLIC)

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:FUNCTION",
        help="A function that returns (model, graph), (model, graph, loss) or a dict of model, graph, loss, batch_size.",
    ),
]
Devices = Annotated[
    str,
    typer.Option(
        help="The devices: 2xcpu (two worker processes), 4xcuda, 8xa100_sxm4_80gb; several kinds joined by +. "
        "`autoplan devices` lists the names."
    ),
]
Strategy = Annotated[
    Literal["auto", "single", "data", "model", "model:stages", "pipeline", "hybrid"],
    typer.Option(
        metavar="NAME",
        help="Force one: single, data, model (or model:stages, the same), pipeline or hybrid; auto takes the best by price.",
    ),
]
Objective = Annotated[
    Literal["time", "memory"],
    typer.Option(help="What is least: the time of a step, or the memory of the fullest device."),
]
Optimizer = Annotated[
    str,
    typer.Option(
        help="The optimizer to train with, of torch.optim in lower case (adam, adamw, sgd, ...); "
        "its state is part of the planned memory."
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Of a list of graphs, how many make a step; without it all of them do."
    ),
]
MicroBatches = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Of a pipeline, into how many micro-batches each replica cuts a step; without it several are tried.",
    ),
]
Schedule = Annotated[
    Literal["1f1b", "gpipe"] | None,
    typer.Option(help="Of a pipeline, the order of its micro-batches; without it both are tried."),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact/--lossy",
        help="Only plans that train to one device's numbers; or also pipelines that normalise each micro-batch alone.",
    ),
]
GraphSpecName = Annotated[
    str | None,
    typer.Option(
        "--graph-spec",
        metavar="NAME",
        help="Instead of the function's graph the sizes of a public one, for planning only; the model must take its "
        f"features and give its classes. {_PUBLIC}.",
    ),
]
SavedPlan = Annotated[
    Path, typer.Argument(metavar="PLAN.json", help="A plan that `autoplan plan --save` wrote.")
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        help="Use this saved plan instead of making one; it carries devices, strategy and optimizer. "
        "--devices beside it says which devices these must be.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Epochs = Annotated[
    int, typer.Option(min=1, help="Training steps over the whole graph, or passes over all graphs.")
]
LearningRate = Annotated[float, typer.Option("--lr", min=0.0, help="Learning rate.")]
WeightDecay = Annotated[float, typer.Option(min=0.0, help="Weight decay of the optimizer.")]
Seed = Annotated[int, typer.Option(help="Seed of dropout and other noise.")]
