"""Stages: every strategy that applies, forced, trains to one device's numbers (Cora and TU sets; the shared cases)."""

import functools
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import BatchNorm, GATConv, GCNConv, global_add_pool
from torch_geometric.nn.models import GCN

import autoplan
from autoplan import datasets
from autoplan.errors import InfeasibleError
from autoplan.search import SearchOptions

from .graphs import awkward_graph
from .many import Classifier, small_graphs
from .test_cases import case

DATA = Path(os.environ.get("AUTOPLAN_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
TU = DATA / "tu_graphs"
needs_tu = pytest.mark.skipif(not TU.exists(), reason="TU's files are absent (set AUTOPLAN_DATA)")
needs_cora = pytest.mark.skipif(
    not (DATA / "planetoid").exists(), reason="Planetoid's files are absent (set AUTOPLAN_DATA)"
)


class BatchNormClassifier(nn.Module):
    """A batch norm over all nodes of the batch, called ``norm``."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.conv = GCNConv(features, 8)
        self.norm = BatchNorm(8)
        self.last = GATConv(8, 8)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.norm(self.conv(x, edge_index)).relu()
        return self.head(global_add_pool(self.last(x, edge_index), batch))


@functools.cache
def tu(name: str) -> tuple[Data, ...]:
    return tuple(datasets.tu_graphs(TU / f"{name}.txt.gz"))


def classifier(graphs: tuple[Data, ...]) -> Classifier:
    torch.manual_seed(5)
    classes = 1 + max(int(graph.y) for graph in graphs)
    return Classifier(graphs[0].x.size(1), classes)


def options(micro_batches: int, schedule: str = "1f1b") -> SearchOptions:
    return SearchOptions(micro_batches=(micro_batches,), schedules=(schedule,))


@needs_tu
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", ["MUTAG", "PROTEINS", "NCI1"])
@pytest.mark.parametrize("strategy", ["single", "data", "model", "pipeline"])
def test_every_strategy_on_tu_graphs(name: str, strategy: str, workers: int) -> None:
    graphs = tu(name)
    model = classifier(graphs)
    plan = autoplan.optimize(model, graphs, f"{workers}xcpu", strategy=strategy, batch_size=50)

    result = autoplan.verify(plan, model, graphs, steps=2)

    assert plan.strategy == strategy
    assert plan.exact
    assert result.ok, str(result)
    if strategy in ("model", "pipeline"):
        assert len(plan.stages) == workers


@needs_tu
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("micro_batches", [2, 3, 5])
def test_uneven_micro_batches(micro_batches: int, schedule: str) -> None:
    """17 graphs a step; MUTAG's 188 end with a batch of one, so that some micro-batches are empty."""
    graphs = tu("MUTAG")
    model = classifier(graphs)
    plan = autoplan.optimize(
        model,
        graphs,
        "3xcpu",
        strategy="pipeline",
        batch_size=17,
        options=options(micro_batches, schedule),
    )

    result = autoplan.verify(plan, model, graphs, steps=12)

    assert plan.data.pipeline is not None
    assert plan.data.pipeline.micro_batches == micro_batches
    assert plan.data.pipeline.schedule == schedule
    assert result.ok, str(result)


@needs_tu
def test_two_replicas_of_two_stages() -> None:
    graphs = tu("MUTAG")[:40]
    model = classifier(graphs)
    plan = autoplan.optimize(
        model, graphs, "4xcpu", strategy="hybrid", batch_size=15, options=options(2)
    )

    result = autoplan.verify(plan, model, graphs, steps=3)

    assert plan.strategy == "hybrid"
    assert plan.data.pipeline is not None
    assert plan.data.pipeline.replicas == 2
    assert result.ok, str(result)


@needs_tu
@pytest.mark.parametrize("strategy", ["model", "pipeline"])
def test_workers_train_to_one_process_numbers(strategy: str) -> None:
    graphs = [graph.clone() for graph in tu("MUTAG")[:30]]
    for graph in graphs:
        graph.x = graph.x.double()
    alone, together = classifier(tuple(graphs)).double(), classifier(tuple(graphs)).double()
    single = autoplan.optimize(alone, graphs, "1xcpu", strategy="single", batch_size=8)
    plan = autoplan.optimize(together, graphs, "2xcpu", strategy=strategy, batch_size=8)

    one = single.train(alone, graphs, epochs=3, seed=4, progress=False)
    two = plan.train(together, graphs, epochs=3, seed=4, progress=False)

    assert two.losses == pytest.approx(one.losses, rel=1e-9)
    assert two.ran_as_planned
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(together.state_dict()[name], weight, rtol=1e-7, atol=1e-9)


@needs_cora
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("strategy", ["single", "data", "model", "pipeline"])
def test_every_strategy_on_cora(strategy: str, workers: int) -> None:
    torch.manual_seed(1)
    graph = datasets.planetoid(DATA / "planetoid", "Cora")
    model = GCN(1433, 16, 3, 7, dropout=0.5)
    plan = autoplan.optimize(model, graph, f"{workers}xcpu", strategy=strategy)

    result = autoplan.verify(plan, model, graph, steps=2)

    assert plan.strategy == strategy
    assert result.ok, str(result)


def test_a_pipeline_of_one_connected_graph_suggests_model() -> None:
    nodes = torch.arange(30)
    ring = torch.stack([nodes, nodes.roll(1)])
    graph = Data(x=torch.randn(30, 4), edge_index=ring, y=torch.randint(0, 2, (30,)))

    with pytest.raises(InfeasibleError, match="model"):
        autoplan.optimize(GCN(4, 8, 2, 2), graph, "2xcpu", strategy="pipeline")


def test_batch_norm_in_one_micro_batch_is_exact() -> None:
    graphs = small_graphs()
    model = BatchNormClassifier(5, 3)
    plan = autoplan.optimize(model, graphs, "2xcpu", strategy="model")

    assert plan.exact
    assert autoplan.verify(plan, model, graphs).ok


def test_batch_norm_in_more_micro_batches_is_refused_and_named() -> None:
    with pytest.raises(InfeasibleError, match=r"norm.*exact=False"):
        autoplan.optimize(BatchNormClassifier(5, 3), small_graphs(), "2xcpu", strategy="pipeline")


@pytest.mark.parametrize("exact", [True, False])
def test_a_loss_that_sorts_the_batch_is_refused_without_a_remedy_that_is_none(exact: bool) -> None:
    def hardest(out: Tensor, graph: Data) -> Tensor:
        return nn.functional.cross_entropy(out, graph.y, reduction="none").topk(2).values.mean()

    with pytest.raises(InfeasibleError, match=r"topk.*use strategy='model'$"):
        autoplan.optimize(
            Classifier(5, 3),
            small_graphs(),
            "2xcpu",
            loss=hardest,
            strategy="pipeline",
            exact=exact,
        )


def test_batch_norm_in_more_micro_batches_when_asked_for() -> None:
    graphs = small_graphs()
    model = BatchNormClassifier(5, 3)
    plan = autoplan.optimize(
        model, graphs, "2xcpu", strategy="pipeline", exact=False, options=options(2)
    )

    assert not plan.exact
    assert any("norm" in note for note in plan.data.notes)
    before = model.norm.module.running_mean.clone()
    result = plan.train(model, graphs, epochs=4, progress=False)
    assert result.losses[-1] < result.losses[0]
    assert not torch.equal(model.norm.module.running_mean, before)
    assert not autoplan.verify(plan, model, graphs).ok


def test_a_plan_with_stages_survives_its_file(tmp_path: Path) -> None:
    graphs = small_graphs()
    model = Classifier(5, 3)
    plan = autoplan.optimize(model, graphs, "2xcpu", strategy="pipeline", batch_size=4)
    plan.save(tmp_path / "plan.json")

    again = autoplan.Plan.load(tmp_path / "plan.json")

    assert again.data == plan.data
    assert autoplan.verify(again, model, graphs).ok


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # the case's own
@pytest.mark.parametrize("strategy", ["model", "data"])
def test_h06_batch_norm_on_the_readout(strategy: str) -> None:
    h06 = case("h06")
    b = h06.build()
    try:
        plan = autoplan.optimize(
            b["model"], b["graph"], h06.DEVICES, loss=b["loss"], strategy=strategy
        )
        step = plan.step(b["model"], b["graph"])
        observed = {
            "loss": float(step.loss),
            "running_mean": step.buffers["norm.running_mean"],
            "running_var": step.buffers["norm.running_var"],
            "error": None,
        }
    except InfeasibleError as error:
        observed = {"error": error}
    h06.check(observed, h06.reference())
    assert observed["error"] is None


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # the case's own
def test_h07_jumping_knowledge_over_three_stages() -> None:
    h07 = case("h07")
    b = h07.build()
    plan = autoplan.optimize(b["model"], b["graph"], h07.DEVICES, loss=b["loss"], strategy="model")

    step = plan.step(b["model"], b["graph"])

    assert len(plan.stages) == 3
    skips = [send for stage in plan.stages for send in stage.sends if send.target == 2]
    assert skips
    h07.check(
        {"out": step.outputs, "loss": float(step.loss), "grads": step.gradients}, h07.reference()
    )


def test_h08_big_integers_across_stages() -> None:
    h08 = case("h08")
    b = h08.build()
    plan = autoplan.optimize(b["model"], b["graph"], h08.DEVICES, strategy="model")

    out = plan.predict(b["model"], b["graph"])

    assert len(plan.stages) == 2
    h08.check({"out": out, "id_dtype": torch.int64}, h08.reference())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_one_full_graph_on_three_stages(dropout: float) -> None:
    torch.manual_seed(3)
    model, graph = GCN(8, 12, 4, 4, dropout=dropout, jk="cat"), awkward_graph()
    plan = autoplan.optimize(model, graph, "3xcpu", strategy="model")

    assert "no speed" in plan.explain()
    assert autoplan.verify(plan, model, graph, steps=3).ok


def test_a_batch_object_is_a_list_of_graphs() -> None:
    batch = Batch.from_data_list(small_graphs())
    model = Classifier(5, 3)
    plan = autoplan.optimize(model, batch, "2xcpu", strategy="pipeline")

    assert autoplan.verify(plan, model, batch).ok
