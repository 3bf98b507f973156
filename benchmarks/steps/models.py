"""The fourteen models: PyG's own layers, put together as their documentation and examples do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    APPNP,
    DeepGCNLayer,
    EdgeConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    HGTConv,
    PNAConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TransformerConv,
    global_add_pool,
)
from torch_geometric.utils import degree

from benchmarks.steps.graphs import RELATIONS

HIDDEN, HEADS, LAYERS = 256, 8, 3
HOPS, TELEPORT = 10, 0.1
"""Of APPNP, as in its paper."""


class Stack(nn.Module):
    """Layers with a ReLU between them; ``edge_type`` only where the layers take it."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [N, classes] from features [N, features] and edges [2, E]."""
        for layer in self.layers[:-1]:
            x = layer(x, edge_index).relu()
        out: Tensor = self.layers[-1](x, edge_index)
        return out


class Relational(Stack):
    """A `Stack` of layers that take each edge's relation."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:  # type: ignore[override]
        """Logits [N, classes]; ``edge_type`` is [E]."""
        for layer in self.layers[:-1]:
            x = layer(x, edge_index, edge_type).relu()
        out: Tensor = self.layers[-1](x, edge_index, edge_type)
        return out


class PredictThenPropagate(nn.Module):
    """APPNP: three linear layers, then ten steps of personalised PageRank on the logits."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        widths = [features, *[hidden] * (LAYERS - 1), classes]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(widths))
        self.propagation = APPNP(HOPS, TELEPORT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [N, classes]."""
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        out: Tensor = self.propagation(self.layers[-1](x), edge_index)
        return out


class DeeperGCN(nn.Module):
    """Three residual blocks of softmax aggregation with a learned temperature, after PyG's ogbn-proteins example."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden)
        self.blocks = nn.ModuleList()
        for _ in range(LAYERS):
            conv = GENConv(
                hidden, hidden, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="layer"
            )
            self.blocks.append(
                DeepGCNLayer(conv, nn.LayerNorm(hidden), nn.ReLU(), block="res+", dropout=0.0)
            )
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [N, classes]."""
        x = self.encoder(x)
        first: Any = self.blocks[0]
        x = first.conv(x, edge_index)
        for block in self.blocks[1:]:
            x = block(x, edge_index)
        out: Tensor = self.out(first.act(first.norm(x)))
        return out


class HeterogeneousTransformer(nn.Module):
    """HGT, after PyG's example: a linear layer and a ReLU of each type, three HGT layers, logits of papers."""

    def __init__(self, features: int, hidden: int, classes: int, heads: int, metadata: Any) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({kind: nn.Linear(features, hidden) for kind in metadata[0]})
        self.layers = nn.ModuleList(HGTConv(hidden, hidden, metadata, heads) for _ in range(LAYERS))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        """Logits [papers, classes]."""
        x_dict = {kind: self.encoders[kind](x).relu() for kind, x in x_dict.items()}
        for layer in self.layers:
            x_dict = layer(x_dict, edge_index_dict)
        out: Tensor = self.out(x_dict["paper"])
        return out


class GraphClassifier(nn.Module):
    """Three GIN layers, the sum of each graph's nodes, a linear layer."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            GINConv(_perceptron(width, hidden, hidden))
            for width in (features, *[hidden] * (LAYERS - 1))
        )
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits [graphs, classes]."""
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        out: Tensor = self.out(global_add_pool(x, batch))
        return out


def _perceptron(features: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, out))


def _stack(layer: Callable[[int, int], nn.Module]) -> Callable[..., nn.Module]:
    def make(graph: Data, features: int, classes: int, hidden: int, heads: int) -> nn.Module:
        del graph, heads
        return Stack([layer(features, hidden), *_between(layer, hidden), layer(hidden, classes)])

    return make


def _between(layer: Callable[[int, int], nn.Module], hidden: int) -> list[nn.Module]:
    return [layer(hidden, hidden) for _ in range(LAYERS - 2)]


def _attention(kind: type[nn.Module]) -> Callable[..., nn.Module]:
    """Heads are put side by side, and averaged in the last layer, as in `torch_geometric.nn.models.GAT`."""

    def make(graph: Data, features: int, classes: int, hidden: int, heads: int) -> nn.Module:
        del graph
        return Stack(
            [
                kind(features, hidden // heads, heads=heads),
                *_between(lambda i, o: kind(i, o // heads, heads=heads), hidden),
                kind(hidden, classes, heads=heads, concat=False),
            ]
        )

    return make


def _pna(graph: Data, features: int, classes: int, hidden: int, heads: int) -> nn.Module:
    del heads
    degrees = degree(graph.edge_index[1], graph.num_nodes, dtype=torch.long)
    histogram = torch.bincount(degrees)

    def layer(inputs: int, outputs: int) -> nn.Module:
        scalers = ["identity", "amplification", "attenuation"]
        conv: nn.Module = PNAConv(
            inputs, outputs, ["mean", "min", "max", "std"], scalers, histogram
        )
        return conv

    return Stack([layer(features, hidden), *_between(layer, hidden), layer(hidden, classes)])


def _rgcn(graph: Data, features: int, classes: int, hidden: int, heads: int) -> nn.Module:
    del graph, heads
    widths = [features, *[hidden] * (LAYERS - 1), classes]
    return Relational([RGCNConv(*pair, RELATIONS) for pair in itertools.pairwise(widths)])


MODELS: dict[str, Callable[..., nn.Module]] = {
    "GCN": _stack(lambda i, o: GCNConv(i, o)),
    "SAGE": _stack(lambda i, o: SAGEConv(i, o)),
    "GAT": _attention(GATConv),
    "GATv2": _attention(GATv2Conv),
    "GIN": _stack(lambda i, o: GINConv(_perceptron(i, o, o))),
    "PNA": _pna,
    "APPNP": lambda graph, features, classes, hidden, heads: PredictThenPropagate(
        features, hidden, classes
    ),
    "SGC": lambda graph, features, classes, hidden, heads: SGConv(features, classes, K=LAYERS),
    "TransformerConv": _attention(TransformerConv),
    "EdgeConv": _stack(lambda i, o: EdgeConv(_perceptron(2 * i, o, o))),
    "DeeperGCN": lambda graph, features, classes, hidden, heads: DeeperGCN(
        features, hidden, classes
    ),
    "RGCN": _rgcn,
    "HGT": lambda graph, features, classes, hidden, heads: HeterogeneousTransformer(
        features, hidden, classes, heads, graph.metadata()
    ),
    "GIN-graphs": lambda graph, features, classes, hidden, heads: GraphClassifier(
        features, hidden, classes
    ),
}
"""By name: makes the model from (graph, features, classes, hidden, heads)."""


def make_model(
    name: str, graph: Data | HeteroData | list[Data], *, hidden: int = HIDDEN, heads: int = HEADS
) -> nn.Module:
    """A model of `MODELS` for a graph, with the same weights every time."""
    torch.manual_seed(0)
    if isinstance(graph, list):
        classes = 1 + max(int(each.y.max()) for each in graph)
        return MODELS[name](graph[0], graph[0].num_node_features, classes, hidden, heads)
    labelled = graph["paper"] if isinstance(graph, HeteroData) else graph
    classes = 1 + int(labelled.y.max())
    return MODELS[name](graph, labelled.x.shape[1], classes, hidden, heads)
