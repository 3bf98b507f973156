"""The demo's model and metric for many small graphs (torch)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool

HIDDEN = 32


class GIN(nn.Module):
    """The graph isomorphism network of Xu et al. (2019) with three layers, summed over the nodes of each graph."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        widths = (features, HIDDEN, HIDDEN)
        self.layers = nn.ModuleList(GINConv(_perceptron(width)) for width in widths)
        self.out = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits [B, classes] of the B graphs that ``batch`` [N] tells apart."""
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        logits: Tensor = self.out(global_add_pool(x, batch))
        return logits


def _perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))


def gin_for(graphs: Any) -> GIN:
    """The model for the graphs' features and classes; equal weights on every call."""
    torch.manual_seed(0)
    classes = 1 + max(int(graph.y.max()) for graph in graphs)
    return GIN(graphs[0].num_node_features, classes)


def accuracy(out: Tensor, graph: Any) -> Tensor:
    """Share of the graphs whose largest logit is their class."""
    hits: Tensor = out.argmax(dim=-1) == graph.y
    return hits.float().mean()
