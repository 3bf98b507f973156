"""A plan kept for another graph or for devices of other figures: priced anew, exact, and refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.nn.models import GCN, GraphSAGE

import autoplan
from autoplan.datasets import rings_and_trees
from autoplan.errors import InfeasibleError, PlanError
from autoplan.search import SearchOptions

from .graphs import awkward_graph
from .many import Classifier as OfMany
from .many import small_graphs


def model() -> GCN:
    torch.manual_seed(0)
    return GCN(8, 12, 2, 4)


def larger() -> Data:
    return awkward_graph(90, 400, seed=3)


@pytest.mark.parametrize("strategy", ["single", "data"])
def test_a_plan_is_kept_for_a_larger_graph(strategy: str) -> None:
    plan = autoplan.optimize(model(), awkward_graph(), "2xcpu", strategy=strategy)

    bound = plan.rebind(larger())

    assert bound.strategy == strategy
    assert bound.data.rebound
    assert bound.stages[0].choices == plan.stages[0].choices
    assert bound.predicted.peak_bytes[0].value > plan.predicted.peak_bytes[0].value
    assert autoplan.verify(bound, model(), larger()).ok
    text = str(bound.changes)
    assert "rows of edge" in text
    assert "it fits: " in text
    assert ("edges that cross" in text) == (strategy == "data")
    assert "kept from a plan for another graph" in bound.explain()
    names = [a.name for a in bound.alternatives]
    assert names == [a.name for a in plan.alternatives]


def test_prices_are_those_of_a_new_plan() -> None:
    plan = autoplan.optimize(model(), awkward_graph(), "2xcpu", strategy="data").rebind(larger())
    new = autoplan.optimize(model(), larger(), "2xcpu", strategy="data")
    if plan.stages[0].choices == new.stages[0].choices:
        assert plan.predicted == new.predicted
    assert plan.predicted.step_seconds.value >= new.predicted.step_seconds.value - 1e-12
    assert plan.data.partition == new.data.partition
    assert plan.data.fingerprints == new.data.fingerprints


def test_the_error_for_other_sizes_or_edges_suggests_it() -> None:
    plan = autoplan.optimize(model(), awkward_graph(), "cpu")
    for other in (larger(), awkward_graph(seed=1)):
        with pytest.raises(PlanError, match=r"another graph.*plan\.rebind\(graph\) keeps"):
            plan.predict(model(), other)
        plan.rebind(other).predict(model(), other)
    wider = awkward_graph()
    wider.edge_weight = torch.rand(260)
    with pytest.raises(
        PlanError, match=r"edge_weight was absent, here float32 \[edge\]"
    ) as refused:
        plan.predict(model(), wider)
    assert "rebind" not in str(refused.value)
    with pytest.raises(PlanError, match="edge_weight was absent"):
        plan.rebind(wider)


def test_a_list_for_a_plan_of_one_graph_and_one_graph_for_a_plan_of_many() -> None:
    graph = awkward_graph()
    plan = autoplan.optimize(model(), graph, "cpu")
    for call in (plan.rebind, lambda graphs: plan.predict(model(), graphs)):
        with pytest.raises(
            PlanError,
            match="made for one graph and here is a list of 1 graph; give the graph itself",
        ):
            call([graph])
        with pytest.raises(PlanError, match="a list of 2 graphs; plan for the list with"):
            call([graph, graph])
    many = autoplan.optimize(OfMany(5, 3), small_graphs(), "cpu")
    with pytest.raises(PlanError, match="made for a list of 9 graphs and here is one Data"):
        many.rebind(small_graphs()[0])


def test_nothing_changes_for_the_same_graph() -> None:
    plan = autoplan.optimize(model(), awkward_graph(), "2xcpu")
    bound = plan.rebind(awkward_graph())
    assert not bound.changes.changes
    assert str(bound.changes).startswith("nothing changed")
    assert bound.predicted == plan.predicted


def test_a_loaded_plan_asks_for_the_model(tmp_path: Path) -> None:
    autoplan.optimize(model(), awkward_graph(), "2xcpu", strategy="data").save(tmp_path / "p.json")
    plan = autoplan.Plan.load(tmp_path / "p.json")
    with pytest.raises(PlanError, match=r"holds no model; give it: plan\.rebind\(graph, model\)"):
        plan.rebind(larger())
    with pytest.raises(PlanError, match="another program"):
        plan.rebind(larger(), GraphSAGE(8, 12, 2, 4))
    bound = plan.rebind(larger(), model())
    bound.save(tmp_path / "new.json")
    again = autoplan.Plan.load(tmp_path / "new.json")
    assert again.data == bound.data
    assert autoplan.verify(again, model(), larger()).ok


def test_what_does_not_fit_any_more_is_infeasible() -> None:
    limits = [{"memory_bytes": 40_000}, {"memory_bytes": 40_000}]
    plan = autoplan.optimize(model(), awkward_graph(), limits, strategy="data")
    with pytest.raises(InfeasibleError, match=r"cannot be kept for this graph: .*short by"):
        plan.rebind(awkward_graph(900, 4000))
    one = awkward_graph().subgraph(torch.tensor([0]))
    with pytest.raises(InfeasibleError, match="over 2 devices and this graph has 1"):
        plan.rebind(one)


def test_devices_with_other_figures_are_refused_and_can_be_priced(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    plan = autoplan.optimize(model(), awkward_graph(), "2xcpu", strategy="data")
    document = json.loads(plan.data.to_json())
    (profile,) = document["cluster"]["profiles"]
    figures = dict(profile["figures"])
    figures["cores"] += 2
    profile["figures"] = list(figures.items())
    document["fingerprints"]["devices"] = "another machine's"
    path.write_text(json.dumps(document), encoding="utf-8")

    loaded = autoplan.Plan.load(path)
    with pytest.raises(PlanError, match=r"other devices: cpu: cores was \d+, here \d+; plan again"):
        loaded.predict(model(), awkward_graph())
    with pytest.raises(
        PlanError, match="other devices: 2 x cpu were planned for, here are 3 x cpu"
    ):
        autoplan.Plan.load(path, devices="3xcpu")
    with pytest.raises(PlanError, match="cores was"):
        autoplan.Plan.load(path, devices="2xcpu")
    bound = loaded.rebind(awkward_graph(), model())
    assert bound.predicted == plan.predicted
    bound.predict(model(), awkward_graph())


def test_limits_that_the_user_gave_are_kept_in_the_file(tmp_path: Path) -> None:
    devices = [{"name": "small", "memory_bytes": 200_000}, {"name": "large"}]
    autoplan.optimize(model(), awkward_graph(), devices, strategy="data").save(tmp_path / "p.json")
    autoplan.Plan.load(tmp_path / "p.json").predict(model(), awkward_graph())
    autoplan.Plan.load(tmp_path / "p.json", devices=devices).predict(model(), awkward_graph())
    with pytest.raises(PlanError, match=r"memory of device 0 \(cpu\) was 200,000 bytes"):
        autoplan.Plan.load(tmp_path / "p.json", devices="2xcpu")


def test_many_graphs() -> None:
    few = [awkward_graph(20 + i, 60, seed=i) for i in range(6)]
    more = [awkward_graph(24 + i, 70, seed=20 + i) for i in range(9)]
    plan = autoplan.optimize(model(), few, "2xcpu", batch_size=3, strategy="data")
    with pytest.raises(PlanError, match=r"another graph.*plan\.rebind\(graph\) keeps"):
        plan.predict(model(), more)
    bound = plan.rebind(more)
    assert "rows of node" in str(bound.changes)
    assert bound.data.batch is not None
    assert bound.data.batch.units == 9
    assert autoplan.verify(bound, model(), more).ok


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(GINConv(nn.Linear(width, 8)) for width in (1, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> object:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def stages_of(plan: autoplan.Plan) -> list[list[int]]:
    return [[choice.op for choice in stage.choices] for stage in plan.stages]


def test_stages_of_a_model_plan_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    plan = autoplan.optimize(model(), awkward_graph(), "2xcpu", strategy="model")

    bound = plan.rebind(larger())

    assert bound.strategy == "model"
    assert stages_of(bound) == stages_of(plan)
    assert [stage.devices for stage in bound.stages] == [stage.devices for stage in plan.stages]
    assert sum(bound.predicted.communication_bytes) > sum(plan.predicted.communication_bytes)
    assert "rows of edge" in str(bound.changes)
    graph = bound.to_networkx()
    assert list(graph) == sorted(op for stage in stages_of(bound) for op in stage)
    assert {stage for _, stage in graph.nodes(data="stage")} == {0, 1}
    assert all(graph.nodes[a]["stage"] <= graph.nodes[b]["stage"] for a, b in graph.edges)
    bound.save(path)
    loaded = autoplan.Plan.load(path)
    assert loaded.data == bound.data
    assert autoplan.verify(loaded, model(), larger()).ok


@pytest.mark.parametrize(
    ("strategy", "devices", "batch_size"),
    [("pipeline", "2xcpu", None), ("pipeline", "2xcpu", 7), ("hybrid", "4xcpu", None)],
)
def test_a_pipeline_is_kept_for_other_graphs(
    strategy: str, devices: str, batch_size: int | None, tmp_path: Path
) -> None:
    graphs, others = rings_and_trees(12), rings_and_trees(20, seed=1)
    options = SearchOptions(micro_batches=(3,), schedules=("gpipe",))
    plan = autoplan.optimize(
        Classifier(), graphs, devices, strategy=strategy, batch_size=batch_size, options=options
    )

    bound = plan.rebind(others)

    assert bound.strategy == strategy
    assert stages_of(bound) == stages_of(plan)
    now, before = bound.data.pipeline, plan.data.pipeline
    assert now is not None
    assert before is not None
    shape = (now.schedule, now.micro_batches, now.replicas)
    assert shape == ("gpipe", 3, before.replicas)
    assert "rows of graph" in str(bound.changes)
    path = tmp_path / "new.json"
    bound.save(path)
    loaded = autoplan.Plan.load(path)
    assert loaded.data == bound.data
    assert autoplan.verify(loaded, Classifier(), others, steps=2).ok


def test_too_few_graphs_for_the_micro_batches_are_infeasible() -> None:
    options = SearchOptions(micro_batches=(3,))
    kept = (
        r"cannot be kept for this graph: {} in a step are too few for 3 micro-batches{}; give fewer"
    )
    plan = autoplan.optimize(
        Classifier(), rings_and_trees(12), "2xcpu", strategy="pipeline", options=options
    )
    with pytest.raises(InfeasibleError, match=kept.format("2 graphs", "")):
        plan.rebind(rings_and_trees(2))
    plan = autoplan.optimize(
        Classifier(), rings_and_trees(12), "4xcpu", strategy="hybrid", options=options
    )
    with pytest.raises(InfeasibleError, match=kept.format("5 graphs", " for each of 2 replicas")):
        plan.rebind(rings_and_trees(5))
