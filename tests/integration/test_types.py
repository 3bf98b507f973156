"""Graphs of several node types through the public surface: case H04, rows A22 and A23 of the cases' README, PyG's models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch

import autoplan
from autoplan.cli.target import InputError, load_target
from autoplan.errors import TraceError
from tests.integration.test_cases import case
from tests.trace.graphs import CITES, WRITES, WRITTEN, typed_graph

METADATA = typed_graph().metadata()

# the case's own, once in a process
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")


def of_papers(out: object, graph: object) -> torch.Tensor:
    scores = out["paper"] if isinstance(out, dict) else out
    return F.cross_entropy(scores, graph["paper"].y)


class Normed(nn.Module):
    """Made for one type; batch norm of PyG between lazy convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.SAGEConv((-1, -1), 8)
        self.norm = gnn.BatchNorm(8)
        self.second = gnn.SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


class Pooled(nn.Module):
    """Reads out whole graphs, which `to_hetero` does not convert."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index, batch):
        return gnn.global_mean_pool(self.conv(x, edge_index), batch)


class Relational(nn.Module):
    """Takes the graph; one convolution for each relation, one of them with edge features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.HeteroConv(
            {
                WRITES: gnn.SAGEConv((-1, -1), 8),
                WRITTEN: gnn.GATConv((-1, -1), 8, add_self_loops=False),
                CITES: gnn.GCNConv(-1, 8),
            }
        )
        self.out = nn.Linear(8, 3)

    def forward(self, data):
        return self.out(self.conv(data.x_dict, data.edge_index_dict)["paper"].relu())


class Attending(nn.Module):
    """A linear layer for each type, then a convolution over all of them."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.lin = gnn.HeteroDictLinear({"paper": 4, "author": 5}, 8)
        self.conv = conv
        self.out = nn.Linear(8, 3)

    def forward(self, x_dict, edge_index_dict):
        return self.out(self.conv(self.lin(x_dict), edge_index_dict)["paper"])


MODELS: dict[str, Callable[[], nn.Module]] = {
    "to_hetero": lambda: gnn.to_hetero(Normed(), METADATA),
    "to_hetero of GraphSAGE": lambda: gnn.to_hetero(gnn.GraphSAGE((-1, -1), 8, 2, 3), METADATA),
    "HeteroConv": Relational,
    "HGTConv": lambda: Attending(gnn.HGTConv(8, 8, METADATA, heads=2)),
    "HANConv": lambda: Attending(gnn.HANConv(8, 8, METADATA, heads=2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_run_as_planned(name):
    graph, model = typed_graph(), MODELS[name]()
    plan = autoplan.optimize(model, graph, "cpu", loss=of_papers)  # lazy layers have no sizes yet
    assert plan.data.generality == "general"
    assert plan.strategy == "single"

    def out() -> object:
        return model(graph) if name == "HeteroConv" else model(graph.x_dict, graph.edge_index_dict)

    model.eval()
    out()  # sizes them
    model.train()
    step = plan.step(model, graph)
    loss = of_papers(out(), graph)
    loss.backward()
    assert float(step.loss) == pytest.approx(float(loss.detach()), abs=1e-5)
    for parameter, value in model.named_parameters():
        found = step.gradients.get(parameter)
        assert (found is None) == (value.grad is None), parameter
        assert found is None or torch.allclose(found, value.grad, atol=1e-5), parameter


def test_h04_hetero_dead_edge_type():
    h04 = case("h04")
    reference = h04.reference()
    b = h04.build()
    model, graph = b["model"], b["graph"]
    plan = autoplan.optimize(
        model, graph, h04.DEVICES, loss=b["loss"], optimizer="sgd", strategy="single"
    )
    gradients = plan.step(model, graph).gradients
    notes = " ".join(plan.data.notes)
    dead = sorted(name for name, _ in model.named_parameters() if name in notes)
    result = plan.train(model, graph, epochs=2, lr=0.1)
    seen = {"losses": list(result.losses), "grads": gradients, "dead": dead, "error": None}
    h04.check(seen, reference)


def test_a22_batch_norm_of_each_type_is_its_own():
    graph, model = typed_graph(), gnn.to_hetero(Normed(), METADATA)
    plan = autoplan.optimize(model, graph, "cpu", loss=of_papers)
    step = plan.step(model, graph)
    for kind, rows in (("paper", 60), ("author", 40)):
        assert f"norm.{kind}.module.weight" in step.gradients
        assert f"norm.{kind}.module.running_mean" in step.buffers
        sizes = dict(plan.data.graph_rows)
        assert sizes[f"node[{kind}]"] == rows
    norms = {
        op.module for op in autoplan.trace(model, graph, of_papers).ops if "batch_norm" in op.name
    }
    assert norms == {"norm.paper.module", "norm.author.module"}


def test_a23_readouts_are_named_with_the_remedy(tmp_path):
    graph = typed_graph()
    for kind in graph.node_types:
        graph[kind].batch = torch.zeros(graph[kind].num_nodes, dtype=torch.long)
    with pytest.raises(
        TraceError,
        match=r"to_hetero\(model, graph.*global_mean_pool reads out.*pool per node type outside",
    ):
        autoplan.optimize(Pooled(), graph, "cpu", loss=lambda out, g: out.sum())
    # converted in build(): torch.fx's own message says nothing of readouts
    file = tmp_path / "pooled.py"
    file.write_text(
        "from tests.integration.test_types import METADATA, Pooled, gnn, typed_graph\n"
        "def build():\n"
        "    return gnn.to_hetero(Pooled(), METADATA), typed_graph()\n"
    )
    with pytest.raises(
        InputError, match=r"global_mean_pool reads out whole graphs.*pool per node type outside"
    ):
        load_target(f"{file}:build")


def test_half_precision_of_one_type_is_named():
    graph = typed_graph()
    graph["author"].x = graph["author"].x.half()
    with pytest.raises(
        TraceError, match=r"author\.x is float16.*graph\['author'\]\.x\.to\(torch\.float32\)"
    ):
        autoplan.optimize(gnn.to_hetero(Normed(), METADATA), graph, "cpu", loss=of_papers)


def test_double_precision():
    graph, model = typed_graph(), Relational().double()
    for kind in graph.node_types:
        graph[kind].x = graph[kind].x.double()
    plan = autoplan.optimize(model, graph, "cpu", loss=of_papers)
    assert plan.step(model, graph).outputs.dtype == torch.float64


class Readout(nn.Module):
    """One number for each class and graph, pooled from both types."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.HeteroConv(
            {WRITES: gnn.SAGEConv((5, 4), 8), WRITTEN: gnn.SAGEConv((4, 5), 8)}
        )
        self.out = nn.Linear(8, 3)

    def forward(self, x_dict, edge_index_dict, batch_dict):
        h = self.conv(x_dict, edge_index_dict)
        pooled = [gnn.global_mean_pool(h[kind], batch_dict[kind]) for kind in ("paper", "author")]
        return self.out(torch.stack(pooled).sum(0))


def test_batches_of_graphs_of_several_types():
    graphs = [typed_graph(papers, papers - 2) for papers in (8, 9, 12, 7, 10)]
    for number, graph in enumerate(graphs):
        del graph["paper"].y
        graph.y = torch.tensor([number % 3])
    batch, model = Batch.from_data_list(graphs), Readout()
    plan = autoplan.optimize(model, batch, "cpu")
    assert "cross-entropy over all rows" in plan.data.loss
    out = model(batch.x_dict, batch.edge_index_dict, batch.batch_dict)
    wanted = F.cross_entropy(out, batch.y)
    assert float(plan.step(model, batch).loss) == pytest.approx(float(wanted.detach()), abs=1e-5)
    with pytest.raises(TraceError, match=r"is a HeteroData.*Batch\.from_data_list\(graphs\)"):
        autoplan.optimize(model, graphs, "cpu")
