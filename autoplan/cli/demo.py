"""`autoplan demo`: plan, train on two workers, verify, and compare with one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say
from autoplan.cli.target import InputError

if TYPE_CHECKING:
    from autoplan.api import Plan
    from autoplan.execute.train import TrainResult

ACCURACY = "test accuracy"
LEARNING_RATE = 0.01
WEIGHT_DECAY = 5e-4
SAME_ACCURACY = 0.01
"""Accuracies of one process and of many may differ by this much: float32 sums are in another order."""


def demo(
    data: Annotated[
        Path | None, typer.Option(help="A folder with Planetoid's raw files, NAME/raw/ind.*.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Which graph of --data: Cora, the default, or CiteSeer.")
    ] = None,
    devices: options.Devices = "2xcpu",
    epochs: options.Epochs = 200,
    as_json: options.Json = False,
) -> None:
    """Plan a GCN for two CPU workers, train it on both, verify the plan, compare with one process.

    Without --data the graph is made of scikit-learn's digits: 1,797 images, each joined to its nearest neighbours.
    """
    show = _show_nothing if as_json else result
    with clean_stdout():
        from autoplan.api import verify
        from autoplan.cli.gcn import gcn_for
        from autoplan.cli.planning import check_present
        from autoplan.cli.run import training_document, training_text

        check_present(devices)
        say("loading the graph")
        title, graph = _graph(data, name)
        say(f"planning for {devices}")
        plans = _plans(graph, devices)
        workers = len(plans.data.data.devices)
    show(planning_text(title, graph, plans.chosen) + "\n")

    with clean_stdout():
        say(f"training {epochs} epochs with strategy data on {workers} workers")
        spread = _train(plans.data, graph, epochs)
    show(training_text(plans.data.data, spread) + "\n")

    with clean_stdout():
        say("verifying the plan against one device")
        verification = verify(plans.data, gcn_for(graph), graph, steps=3)
    show(_section("Verified", str(verification)) + "\n")

    with clean_stdout():
        say(f"training {epochs} epochs on one process")
        alone = _train(plans.single, graph, epochs)
    reached, expected = float(spread.metrics[ACCURACY]), float(alone.metrics[ACCURACY])
    same = abs(reached - expected) <= SAME_ACCURACY
    accuracies = f"{reached:.4f} with {workers} workers, {expected:.4f} with one process"
    show(_section("Test accuracy", accuracies + ("" if same else ": these differ")))

    if as_json:
        document(
            {
                "graph": title,
                "chosen": plans.chosen.data.to_dict(),
                "training": training_document(plans.data.data, spread),
                "verified": verification.ok,
                "test_accuracy": {"workers": reached, "one_process": expected},
            }
        )
    if not (verification.ok and same):
        raise typer.Exit(1)


def _show_nothing(text: str) -> None:
    """In place of `result` under ``--json``."""


@dataclass(frozen=True, slots=True)
class _Plans:
    """What `auto` chose, and a plan of each strategy that the demo trains."""

    chosen: Plan
    data: Plan
    single: Plan


def _plans(graph: Any, devices: str) -> _Plans:
    from autoplan.api import optimize
    from autoplan.cli.gcn import gcn_for

    chosen = optimize(gcn_for(graph), graph, devices)

    def forced(strategy: str) -> Plan:
        if chosen.strategy == strategy:
            return chosen
        return optimize(gcn_for(graph), graph, devices, strategy=strategy)

    return _Plans(chosen, forced("data"), forced("single"))


def _train(plan: Plan, graph: Any, epochs: int) -> TrainResult:
    """From the same weights and seed each time."""
    from autoplan.cli.gcn import accuracy, gcn_for

    return plan.train(
        gcn_for(graph),
        graph,
        epochs=epochs,
        lr=LEARNING_RATE,
        seed=0,
        weight_decay=WEIGHT_DECAY,
        metrics={ACCURACY: accuracy},
    )


def _graph(data: Path | None, name: str | None) -> tuple[str, Any]:
    """The graph and its title. Raises AutoplanError for files that are not there, InputError for a name without them."""
    from autoplan.datasets import digits, planetoid

    if data is not None:
        name = name or "Cora"
        return name, planetoid(data, name)
    if name is not None:
        raise InputError(f"--name {name} names a graph of --data; give that folder, too")
    return "scikit-learn's digits", digits()


def _section(title: str, text: str) -> str:
    from rich.text import Text

    from autoplan.report.text import render

    return render((title, Text(text)))


def planning_text(title: str, graph: Any, chosen: Plan) -> str:
    """The graph, every candidate's price, and why `auto` chose what it chose."""
    from rich.text import Text

    from autoplan.report import tables
    from autoplan.report.text import headline, reasons, render
    from autoplan.report.units import count

    sizes = (
        count(graph.num_nodes, "node"),
        count(graph.num_edges, "edge"),
        count(graph.num_node_features, "feature"),
    )
    why = "\n".join([headline(chosen.data), *reasons(chosen.data)])
    return render(
        (f"A two-layer GCN on {title}", Text(", ".join(sizes))),
        ("Candidates", tables.candidates(chosen.data.alternatives)),
        ("The plan's choice", Text(why)),
    )
