"""The demo's model and metric (torch)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

HIDDEN = 32


class GCN(nn.Module):
    """The two-layer graph convolutional network of Kipf and Welling (2017), with dropout before each layer."""

    def __init__(self, features: int, classes: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.first = GCNConv(features, HIDDEN)
        self.second = GCNConv(HIDDEN, classes)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [N, classes] from features [N, features] and edges [2, E]."""
        h = functional.dropout(x, self.dropout, self.training)
        h = self.first(h, edge_index).relu()
        h = functional.dropout(h, self.dropout, self.training)
        logits: Tensor = self.second(h, edge_index)
        return logits


def gcn_for(graph: Any) -> GCN:
    """The model for a graph's features and classes; equal weights on every call."""
    torch.manual_seed(0)
    return GCN(graph.num_node_features, int(graph.y.max()) + 1)


def accuracy(out: Tensor, graph: Any) -> Tensor:
    """Share of the test nodes whose largest logit is their class."""
    hits: Tensor = (out.argmax(dim=-1) == graph.y)[graph.test_mask]
    return hits.float().mean()
