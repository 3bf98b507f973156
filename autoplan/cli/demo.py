"""`autoplan demo`: one graph and many, planned, trained with every strategy in turn, verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say
from autoplan.cli.strategies import Asked, Subject, ask_for_each
from autoplan.cli.target import InputError
from autoplan.report.measured import forced_candidates
from autoplan.report.text import headline, reasons, render
from autoplan.report.units import count

if TYPE_CHECKING:
    from autoplan.api import Plan
    from autoplan.execute.train import TrainResult

ACCURACY = "test accuracy"
MEASURED_EPOCHS = 20
"""Of strategies that the demo only measures: no more steps than a steady median needs."""
SAME_ACCURACY = 0.01
"""Accuracies of one process and of many may differ by this much: float32 sums are in another order."""
GRAPHS = 120
"""Rings and trees, all of them in each step: what a step sends is then the same in all."""


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
    """Plan a GCN on one graph and a GIN on many, train them with every strategy in turn, compare with one process.

    Without --data the graph is made of scikit-learn's digits: 1,797 images, each joined to its nearest neighbours. The many
    graphs are made from a seed.
    """
    show = _show_nothing if as_json else result
    with clean_stdout():
        from autoplan.cli.planning import check_present

        check_present(devices)
        say("loading the graph")
        one, many = _one_graph(data, name), _many_graphs()
    of_one, one_holds = _demo_of_one(one, devices, epochs, show)
    of_many, many_holds = _demo_of_many(many, devices, min(epochs, MEASURED_EPOCHS), show)
    if as_json:
        document({**of_one, "many_graphs": of_many})
    if not (one_holds and many_holds):
        raise typer.Exit(1)


def _show_nothing(text: str) -> None:
    """In place of `result` under ``--json``."""


def _demo_of_one(
    subject: Subject, devices: str, epochs: int, show: Any
) -> tuple[dict[str, object], bool]:
    """Everything at length. Returns its document, and whether all that must hold does."""
    with clean_stdout():
        from autoplan.api import verify
        from autoplan.cli.run import training_document, training_text

        say(f"planning for {devices}")
        chosen = subject.plan(devices)
        asked = ask_for_each(subject, devices, chosen)
    graph = subject.data
    sizes = (
        count(graph.num_nodes, "node"),
        count(graph.num_edges, "edge"),
        count(graph.num_node_features, "feature"),
    )
    title = f"A two-layer GCN on {subject.title}"
    show(planning_text(title, ", ".join(sizes), chosen) + "\n")

    plans = {one.strategy: one.plan for one in asked if one.plan is not None}
    spread = plans.get("data", chosen)
    runs: dict[str, TrainResult] = {}
    with clean_stdout():
        runs[spread.strategy] = subject.train(spread, epochs)
    show(training_text(spread.data, runs[spread.strategy]) + "\n")

    with clean_stdout():
        say("verifying the plan against one device")
        verification = verify(spread, subject.model(), graph, steps=3)
    show(_section("Verified", str(verification)) + "\n")

    with clean_stdout():
        for strategy, plan in plans.items():
            if strategy not in runs:
                shorter = epochs if strategy == "single" else min(epochs, MEASURED_EPOCHS)
                runs[strategy] = subject.train(plan, shorter)
    reached, expected = (float(runs[s].metrics[ACCURACY]) for s in (spread.strategy, "single"))
    same = abs(reached - expected) <= SAME_ACCURACY
    workers = len(spread.data.devices)
    accuracies = f"{reached:.4f} with {count(workers, 'worker')}, {expected:.4f} with one process"
    show(_section("Test accuracy", accuracies + ("" if same else ": these differ")) + "\n")
    show(_every_strategy("Every strategy, asked for in turn", asked, runs) + "\n")
    return {
        "graph": subject.title,
        "chosen": chosen.data.to_dict(),
        "training": training_document(spread.data, runs[spread.strategy]),
        "verified": verification.ok,
        "test_accuracy": {"workers": reached, "one_process": expected},
        "candidates": _documents(asked, runs),
    }, verification.ok and same


def _demo_of_many(
    subject: Subject, devices: str, epochs: int, show: Any
) -> tuple[dict[str, object], bool]:
    """In short: what one graph cannot show is a pipeline. Returns as `_demo_of_one` does."""
    with clean_stdout():
        from autoplan.api import verify

        say(f"planning for {devices}")
        chosen = subject.plan(devices)
        asked = ask_for_each(subject, devices, chosen)
    graphs = subject.data
    sizes = (
        count(sum(graph.num_nodes for graph in graphs), "node"),
        count(sum(graph.num_edges for graph in graphs), "edge"),
        "all in each step",
    )
    title = f"A three-layer GIN on {subject.title}"
    show(planning_text(title, ", ".join(sizes), chosen) + "\n")

    plans = {one.strategy: one.plan for one in asked if one.plan is not None}
    with clean_stdout():
        runs = {strategy: subject.train(plan, epochs) for strategy, plan in plans.items()}
        cut = plans.get("pipeline", chosen)
        say(f"verifying strategy {cut.strategy} against one device")
        verification = verify(cut, subject.model(), graphs, steps=3)
    show(_section("Verified", str(verification)) + "\n")
    show(_every_strategy("Every strategy on many graphs, asked for in turn", asked, runs))
    return {
        "graphs": subject.title,
        "chosen": chosen.data.to_dict(),
        "verified": verification.ok,
        "candidates": _documents(asked, runs),
    }, verification.ok


def _one_graph(data: Path | None, name: str | None) -> Subject:
    """Raises AutoplanError for files that are not there, InputError for a name without them."""
    from autoplan.cli.gcn import accuracy, gcn_for
    from autoplan.datasets import digits, planetoid

    if data is not None:
        title = name or "Cora"
        graph = planetoid(data, title)
    elif name is not None:
        raise InputError(f"--name {name} names a graph of --data; give that folder, too")
    else:
        title, graph = "scikit-learn's digits", digits()
    return Subject(title, lambda: gcn_for(graph), graph, {ACCURACY: accuracy}, weight_decay=5e-4)


def _many_graphs() -> Subject:
    from autoplan.cli.gin import accuracy, gin_for
    from autoplan.datasets import rings_and_trees

    graphs = rings_and_trees(GRAPHS)
    metrics = {"accuracy": accuracy}
    return Subject(f"{GRAPHS} rings and trees", lambda: gin_for(graphs), graphs, metrics)


def _every_strategy(title: str, asked: list[Asked], runs: dict[str, TrainResult]) -> str:
    return render(
        (title, forced_candidates([one.measured(runs.get(one.strategy)) for one in asked]))
    )


def _documents(asked: list[Asked], runs: dict[str, TrainResult]) -> list[dict[str, object]]:
    return [one.document(runs.get(one.strategy)) for one in asked]


def _section(title: str, text: str) -> str:
    from rich.text import Text

    return render((title, Text(text)))


def planning_text(title: str, sizes: str, chosen: Plan) -> str:
    """The data, every candidate's price, and why `auto` chose what it chose."""
    from rich.text import Text

    from autoplan.report import tables

    why = "\n".join([headline(chosen.data), *reasons(chosen.data)])
    return render(
        (title, Text(sizes)),
        ("Candidates", tables.candidates(chosen.data.alternatives)),
        ("The plan's choice", Text(why)),
    )
