"""What stages send, and the memory that they need, are as planned: known to the byte before a run, and measured in it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

import autoplan
from autoplan.search import SearchOptions
from tests.integration.test_many_graphs import skewed


def gin(first: int, second: int) -> GINConv:
    return GINConv(nn.Linear(first, second))


class Nodes(nn.Module):
    """Three layers, classes of nodes."""

    def __init__(self, conv, features: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv(a, b) for a, b in ((features, 16), (16, 16), (16, 2)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, edge_index).relu()
        return self.layers[-1](x, edge_index)


class Graphs(Nodes):
    """Three layers, classes of graphs."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(super().forward(x, edge_index), batch)


def components(count: int, seed: int = 0) -> Data:
    """A graph of several components, some nodes of which have labels to train on."""
    parts = skewed(count, seed)
    edges, first = [], 0
    for part in parts:
        edges.append(part.edge_index + first)
        first += part.num_nodes
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.cat([part.x for part in parts]),
        edge_index=torch.cat(edges, 1),
        y=torch.randint(0, 2, (first,), generator=generator),
        train_mask=torch.rand(first, generator=generator) < 0.5,
    )


ESTIMATES = "the bytes sent are estimates"
CONVOLUTIONS = {"gcn": GCNConv, "gat": GATConv, "sage": SAGEConv, "gin": gin}


@pytest.mark.parametrize(
    ("kind", "strategy", "workers"), [("nodes", "pipeline", 3), ("graphs", "model", 2)]
)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_stages_send_what_was_planned(name, kind, strategy, workers):
    torch.manual_seed(0)
    if kind == "nodes":
        model, data = Nodes(CONVOLUTIONS[name], 5), components(12)
    else:
        model, data = Graphs(CONVOLUTIONS[name], 5), skewed(12)
    plan = autoplan.optimize(model, data, f"{workers}xcpu", strategy=strategy)
    assert not any(ESTIMATES in note for note in plan.data.notes)
    result = plan.train(model, data, epochs=3, progress=False)
    assert result.ran_as_planned is True
    assert result.communication_bytes == plan.data.predicted.communication_bytes


@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_pipelines_of_graphs_send_and_hold_what_was_planned(name):
    torch.manual_seed(0)
    model, data = Graphs(CONVOLUTIONS[name], 5), skewed(12)
    options = SearchOptions(micro_batches=(3,))
    data = [graph for _ in range(20) for graph in data]
    plan = autoplan.optimize(model, data, "2xcpu", strategy="pipeline", options=options)
    result = plan.train(model, data, epochs=3, progress=False)
    assert result.ran_as_planned is True
    for expected, measured in zip(plan.data.predicted.peak_bytes, result.peak_bytes, strict=True):
        assert expected.value == pytest.approx(measured, rel=0.2)


class Chosen(nn.Module):
    """Little work on all nodes, much on those that the data select."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 128)
        self.rest = nn.Sequential(*(nn.Linear(128, 128) for _ in range(6)))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.first(x)[x[:, 0] > 0]).sum(0)


def test_where_a_cut_through_unknown_sizes_is_worth_it_the_plan_says_so():
    torch.manual_seed(0)
    model = Chosen()
    data = Data(x=torch.randn(4000, 5), edge_index=torch.arange(4000).repeat(2, 1))
    plan = autoplan.optimize(
        model,
        data,
        "3xcpu",
        strategy="model",
        loss=lambda out, graph: out.square().sum(),
    )
    assert any(ESTIMATES in note for note in plan.data.notes)
    result = plan.train(model, data, epochs=3, progress=False)
    assert result.ran_as_planned is None


class Tied(nn.Module):
    """One weight in two layers, so that two stages sum its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 32)
        self.shared = nn.Linear(32, 32)
        self.last = nn.Linear(32, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.shared(self.first(x).relu()).relu()
        x = x.index_add(0, edge_index[1], x[edge_index[0]])
        return self.last(self.shared(x).relu())


@pytest.mark.parametrize("strategy", ["model", "data"])
def test_gradients_of_sixteen_bits_are_counted_as_they_are_summed(strategy):
    torch.manual_seed(0)
    data = components(12)
    data.x = data.x.bfloat16()
    model = Tied().bfloat16()
    plan = autoplan.optimize(model, data, "2xcpu", strategy=strategy)
    result = plan.train(model, data, epochs=3, progress=False)
    assert result.communication_bytes == plan.data.predicted.communication_bytes
