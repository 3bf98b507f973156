"""Networks of one kind of layer, all of one width, for tests of costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    EdgeConv,
    GATConv,
    GCNConv,
    GINConv,
    GMMConv,
    ResGatedGraphConv,
    SAGEConv,
    SGConv,
    SimpleConv,
)

from autoplan.graphstats import GraphStats
from autoplan.opgraph import OpGraph
from autoplan.trace.build import build_opgraph
from autoplan.trace.step import trace_step

HOPS = 3
"""Of SGC and SIGN."""


class Stack(nn.Module):
    """Layers one after another, with a nonlinearity between them."""

    def __init__(self, make: Callable[[int], nn.Module], width: int, layers: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(make(width) for _ in range(layers))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


class AttributedStack(Stack):
    """Layers that read attributes of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index, edge_attr).relu()
        return self.convs[-1](x, edge_index, edge_attr)


class Sign(nn.Module):
    """Features of several hops, each through its own weights (Rossi et al., "SIGN")."""

    def __init__(self, width: int, layers: int = 1) -> None:
        super().__init__()
        self.hop = SimpleConv(aggr="mean")
        self.lins = nn.ModuleList(nn.Linear(width, width) for _ in range(HOPS + 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        total = self.lins[0](x)
        for lin in self.lins[1:]:
            x = self.hop(x, edge_index)
            total = total + lin(x)
        return total


def perceptron(inputs: int, width: int) -> nn.Sequential:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))


def stacked(
    make: Callable[[int], nn.Module], kind: type[Stack] = Stack
) -> Callable[[int, int], nn.Module]:
    """A network by width and number of layers."""
    return lambda width, layers: kind(make, width, layers)


NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCN": stacked(lambda k: GCNConv(k, k)),
    "GAT": stacked(lambda k: GATConv(k, k)),
    "GIN": stacked(lambda k: GINConv(perceptron(k, k))),
    "SAGE": stacked(lambda k: SAGEConv(k, k)),
    "MoNet": stacked(lambda k: GMMConv(k, k, dim=2, kernel_size=3), AttributedStack),
    "gated GCN": stacked(lambda k: ResGatedGraphConv(k, k)),
    "EdgeConv": stacked(lambda k: EdgeConv(perceptron(2 * k, k), aggr="add")),
    "SGC": lambda width, layers: SGConv(width, width, K=HOPS),
    "SIGN": Sign,
}
"""Networks by name, each made of (width, layers); SGC and SIGN have one layer."""


def edges(nodes: int, count: int) -> Tensor:
    """Directed edges without self-loops, [2, count]."""
    sources = torch.randint(0, nodes, (count,))
    return torch.stack([sources, (sources + torch.randint(1, nodes, (count,))) % nodes])


def described(
    model: nn.Module,
    graph: Data,
    loss: Callable[..., Tensor] | None = None,
    *,
    training: bool = True,
) -> OpGraph:
    """The OpGraph of a model on a graph; its trace must be general."""
    traced = trace_step(model, graph, loss, training=training)
    assert traced.program is not None, traced.reason
    return build_opgraph(
        traced.program,
        traced.schema.attributes,
        traced.sample_rows,
        has_loss=traced.has_loss,
        training=training,
    )


def sizes(rows: Mapping[str, int], in_degree: int = 0) -> GraphStats:
    """Stats of a graph of which no more than this matters."""
    return GraphStats(rows, in_degree, 0.0, 0, {}, {})
