"""`autoplan demo`: plan, train on two workers, verify, and compare with one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say

if TYPE_CHECKING:
    from autoplan.api import Plan

ACCURACY = "test accuracy"
LEARNING_RATE = 0.01
WEIGHT_DECAY = 5e-4
SAME_ACCURACY = 0.01
"""Accuracies of one process and of many may differ by this much: float32 sums are in another order."""


def demo(
    data: Annotated[
        Path | None, typer.Option(help="A folder with Planetoid's raw files, NAME/raw/ind.*.")
    ] = None,
    name: Annotated[str, typer.Option(help="Which graph of --data: Cora or CiteSeer.")] = "Cora",
    devices: options.Devices = "2xcpu",
    epochs: options.Epochs = 200,
    as_json: options.Json = False,
) -> None:
    """Plan a GCN for two CPU workers, train it on both, verify the plan, compare with one process.

    Without --data the graph is made of scikit-learn's digits: 1,797 images, each joined to its nearest neighbours.
    """
    with clean_stdout():
        from autoplan.api import optimize, verify
        from autoplan.cli.gcn import accuracy, gcn_for

        say("loading the graph")
        title, graph = _graph(data, name)
        say(f"planning for {devices}")
        chosen = optimize(gcn_for(graph), graph, devices)
        plan = optimize(gcn_for(graph), graph, devices, strategy="data")
    if not as_json:
        result(planning_text(title, graph, chosen))

    def train(used: Plan) -> Any:
        return used.train(
            gcn_for(graph),
            graph,
            epochs=epochs,
            lr=LEARNING_RATE,
            seed=0,
            weight_decay=WEIGHT_DECAY,
            metrics={ACCURACY: accuracy},
        )

    from autoplan.cli.run import training_document, training_text

    workers = len(plan.data.devices)
    with clean_stdout():
        say(f"training {epochs} epochs with strategy data on {workers} workers")
        spread = train(plan)
    if not as_json:
        result(training_text(plan.data, spread))
    with clean_stdout():
        say("verifying the plan against one device")
        verification = verify(plan, gcn_for(graph), graph, steps=3)
    if not as_json:
        result(f"Verified\n  {verification}\n")
    with clean_stdout():
        say(f"training {epochs} epochs on one process")
        alone = train(optimize(gcn_for(graph), graph, devices, strategy="single"))
    accuracies = (float(spread.metrics[ACCURACY]), float(alone.metrics[ACCURACY]))
    same = abs(accuracies[0] - accuracies[1]) <= SAME_ACCURACY
    if as_json:
        document(
            {
                "graph": title,
                "chosen": chosen.data.to_dict(),
                "training": training_document(plan.data, spread),
                "verified": verification.ok,
                "accuracy": {"workers": accuracies[0], "one process": accuracies[1]},
            }
        )
    else:
        result(
            f"Test accuracy\n"
            f"  {accuracies[0]:.4f} with {workers} workers, {accuracies[1]:.4f} with one process"
            f"{'' if same else ': these differ'}"
        )
    if not (verification.ok and same):
        raise typer.Exit(1)


def _graph(data: Path | None, name: str) -> tuple[str, Any]:
    """The graph and its title. Raises AutoplanError for files that are not there."""
    from autoplan.datasets import digits, planetoid

    if data is None:
        return "scikit-learn's digits", digits()
    return name, planetoid(data, name)


def planning_text(title: str, graph: Any, chosen: Plan) -> str:
    """The graph, every candidate's price, and why `auto` chose what it chose."""
    from rich.text import Text

    from autoplan.report import tables
    from autoplan.report.text import headline, reasons, render
    from autoplan.report.units import count

    sizes = ", ".join(
        (
            count(graph.num_nodes, "node"),
            count(graph.num_edges, "edge"),
            count(graph.num_node_features, "feature"),
        )
    )
    why = "\n".join([headline(chosen.data), *reasons(chosen.data)])
    return (
        render(
            (f"A two-layer GCN on {title}", Text(sizes)),
            ("Candidates", tables.candidates(chosen.data.alternatives)),
            ("The plan's choice", Text(why)),
        )
        + "\n"
    )
