"""Layers of PyG under a data plan: one for each way of moving, gathering and combining messages."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data

import autoplan

from .graphs import awkward_graph

FEATURES, WIDTH, CLASSES, EDGE_FEATURES = 8, 12, 4, 5


class Layer(nn.Module):
    """A layer between two linear ones; its further arguments are edge attributes."""

    def __init__(self, layer: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.layer = layer
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.layer(self.first(x).relu(), edge_index).relu())


class WithAttributes(Layer):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.last(self.layer(self.first(x).relu(), edge_index, edge_attr).relu())


class WithTypes(Layer):
    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.last(self.layer(self.first(x).relu(), edge_index, edge_type).relu())


class Earlier(nn.Module):
    """Attention over a node's earlier states: heads in one dimension with rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.layer = gnn.DNAConv(WIDTH, heads=2)
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x).relu()
        return self.last(self.layer(torch.stack([h, h.sin()], 1), edge_index))


def attention_of_means_and_maxima() -> nn.Module:
    options = {"in_channels": WIDTH, "out_channels": WIDTH, "num_heads": 2}
    combined = gnn.aggr.MultiAggregation(["mean", "max"], mode="attn", mode_kwargs=options)
    return Layer(gnn.SAGEConv(WIDTH, WIDTH, aggr=combined))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "self_loops_replaced": lambda: Layer(gnn.GCNConv(WIDTH, WIDTH)),
    "attention_with_edge_features": lambda: WithAttributes(
        gnn.GATv2Conv(WIDTH, 3, heads=4, edge_dim=EDGE_FEATURES)
    ),
    "gated_recurrent": lambda: Layer(gnn.GatedGraphConv(WIDTH, 2)),
    "weights_by_degree": lambda: Layer(gnn.MFConv(WIDTH, WIDTH, max_degree=4)),
    "relations": lambda: WithTypes(gnn.RGCNConv(WIDTH, WIDTH, 3, num_bases=2)),
    "earlier_states": Earlier,
    "combined_by_attention": attention_of_means_and_maxima,
    "softmax_aggregation": lambda: Layer(gnn.GENConv(WIDTH, WIDTH, learn_t=True)),
    "deviations": lambda: Layer(gnn.SAGEConv(WIDTH, WIDTH, aggr=["std", "min"])),
    "stacks": lambda: Layer(gnn.ARMAConv(WIDTH, WIDTH, num_stacks=2, dropout=0.3)),
    "to_the_source": lambda: Layer(gnn.GCNConv(WIDTH, WIDTH, flow="target_to_source")),
    "both_ways": lambda: Layer(gnn.DirGNNConv(gnn.SAGEConv(WIDTH, WIDTH))),
    "matrices_of_edges": lambda: WithAttributes(
        gnn.NNConv(WIDTH, WIDTH, nn.Linear(EDGE_FEATURES, WIDTH * WIDTH))
    ),
}
"""Each of these has all its matrix products, gathers and scatters on parts of the rows."""

PARTLY: dict[str, Callable[[], nn.Module]] = {
    "all_pairs": lambda: Layer(gnn.GPSConv(WIDTH, gnn.GINConv(nn.Linear(WIDTH, WIDTH)), heads=2)),
}
"""What these do has no place in a partition by destination, or not all of it."""


def graph() -> Data:
    made = awkward_graph()
    edges = made.edge_index.size(1)
    generator = torch.Generator().manual_seed(5)
    made.edge_attr = torch.randn(edges, EDGE_FEATURES, generator=generator)
    made.edge_type = torch.randint(0, 3, (edges,), generator=generator)
    return made


def verified(make: Callable[[], nn.Module]) -> tuple[autoplan.Plan, nn.Module, Data]:
    torch.manual_seed(3)
    model, data = make(), graph()
    plan = autoplan.optimize(model, data, "3xcpu", strategy="data")

    result = autoplan.verify(plan, model, data, steps=2)

    assert result.ok, str(result)
    assert not [note for note in plan.data.notes if "rejected" in note]
    return plan, model, data


@pytest.mark.parametrize("name", LAYERS)
def test_shared_out_as_one_device(name: str) -> None:
    plan, model, data = verified(LAYERS[name])

    opgraph = autoplan.trace(model, data)
    chosen = {choice.op: choice.strategy for choice in plan.stages[0].choices}
    whole = [
        f"{op.name} ({op.where})"
        for op in opgraph.ops
        if op.forward.kind in ("dense", "gather", "scatter")
        and any(isinstance(dim, str) for name in op.inputs for dim in opgraph.tensors[name].dims)
        and chosen[op.index] == "R"
    ]
    assert not whole
    assert not opgraph.unknown_ops


@pytest.mark.parametrize("name", PARTLY)
def test_partly_shared_out_as_one_device(name: str) -> None:
    verified(PARTLY[name])
