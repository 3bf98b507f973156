"""`autoplan demo`: plan, train with every strategy in turn, verify, and compare with one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say
from autoplan.cli.target import InputError
from autoplan.errors import InfeasibleError
from autoplan.report.measured import Forced, forced_candidates
from autoplan.report.text import headline, reasons, render
from autoplan.report.units import count

if TYPE_CHECKING:
    from autoplan.api import Plan
    from autoplan.execute.train import TrainResult

ACCURACY = "test accuracy"
LEARNING_RATE = 0.01
WEIGHT_DECAY = 5e-4
MEASURED_EPOCHS = 20
"""Of strategies that the demo only measures."""
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
    """Plan a GCN, train it with every strategy in turn, verify the plan for all devices, compare with one process.

    Without --data the graph is made of scikit-learn's digits: 1,797 images, each joined to its nearest neighbours.
    """
    show = _show_nothing if as_json else result
    with clean_stdout():
        from autoplan.api import optimize, verify
        from autoplan.cli.gcn import gcn_for
        from autoplan.cli.planning import check_present
        from autoplan.cli.run import training_document, training_text

        check_present(devices)
        say("loading the graph")
        title, graph = _graph(data, name)
        say(f"planning for {devices}")
        chosen = optimize(gcn_for(graph), graph, devices)
        asked = _forced(graph, devices, chosen)
    show(planning_text(title, graph, chosen) + "\n")

    plans = {one.strategy: one.plan for one in asked if one.plan is not None}
    spread = plans.get("data", chosen)
    runs: dict[str, TrainResult] = {}
    with clean_stdout():
        runs[spread.strategy] = _train(spread, graph, epochs)
    show(training_text(spread.data, runs[spread.strategy]) + "\n")

    with clean_stdout():
        say("verifying the plan against one device")
        verification = verify(spread, gcn_for(graph), graph, steps=3)
    show(_section("Verified", str(verification)) + "\n")

    with clean_stdout():
        for strategy, plan in plans.items():
            if strategy not in runs:
                # what is only measured needs no more steps than a steady median
                runs[strategy] = _train(
                    plan, graph, epochs if strategy == "single" else min(epochs, MEASURED_EPOCHS)
                )
    reached, expected = (float(runs[s].metrics[ACCURACY]) for s in (spread.strategy, "single"))
    same = abs(reached - expected) <= SAME_ACCURACY
    workers = len(spread.data.devices)
    accuracies = f"{reached:.4f} with {count(workers, 'worker')}, {expected:.4f} with one process"
    show(_section("Test accuracy", accuracies + ("" if same else ": these differ")) + "\n")
    rows = [_measured(one, runs.get(one.strategy)) for one in asked]
    show(render(("Every strategy, asked for in turn", forced_candidates(rows))))

    if as_json:
        document(
            {
                "graph": title,
                "chosen": chosen.data.to_dict(),
                "training": training_document(spread.data, runs[spread.strategy]),
                "verified": verification.ok,
                "test_accuracy": {"workers": reached, "one_process": expected},
                "candidates": [
                    {"strategy": one.strategy, "reason": one.reason}
                    if one.plan is None
                    else {
                        **training_document(one.plan.data, runs[one.strategy]),
                        "strategy": one.strategy,
                        "reason": None,
                    }
                    for one in asked
                ],
            }
        )
    if not (verification.ok and same):
        raise typer.Exit(1)


def _show_nothing(text: str) -> None:
    """In place of `result` under ``--json``."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A strategy that was asked for: its plan, or the reason why there is none."""

    strategy: str
    plan: Plan | None
    reason: str | None


def _forced(graph: Any, devices: str, chosen: Plan) -> list[_Asked]:
    """Every family that the search knows, one after the other."""
    from autoplan.api import optimize
    from autoplan.cli.gcn import gcn_for
    from autoplan.search.result import FAMILIES

    found = []
    for strategy in FAMILIES:
        try:
            plan = (
                chosen
                if chosen.strategy == strategy
                else optimize(gcn_for(graph), graph, devices, strategy=strategy)
            )
        except InfeasibleError as error:
            found.append(_Asked(strategy, None, str(error)))
        else:
            found.append(_Asked(strategy, plan, None))
    return found


def _measured(asked: _Asked, run: TrainResult | None) -> Forced:
    if asked.plan is None or run is None:
        return Forced(asked.strategy, reason=asked.reason)
    return Forced(
        asked.strategy,
        asked.plan.data,
        None,
        run.step_seconds,
        run.peak_bytes,
        run.communication_bytes,
    )


def _train(plan: Plan, graph: Any, epochs: int) -> TrainResult:
    """From the same weights and seed each time."""
    from autoplan.cli.gcn import accuracy, gcn_for

    workers = len(plan.data.devices)
    say(f"training {epochs} epochs with strategy {plan.strategy} on {count(workers, 'worker')}")
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

    return render((title, Text(text)))


def planning_text(title: str, graph: Any, chosen: Plan) -> str:
    """The graph, every candidate's price, and why `auto` chose what it chose."""
    from rich.text import Text

    from autoplan.report import tables

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
