"""A GIN that tells rings from trees: many small graphs, a batch of them in each step; nothing is downloaded.

Run it, or hand ``build`` to the command line. ``autoplan.datasets.tu_graphs`` reads MUTAG, PROTEINS and their like.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool

import autoplan
from autoplan.datasets import rings_and_trees


class GIN(nn.Module):
    """Two layers, summed over the nodes of each graph."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GINConv(_perceptron(features, hidden))
        self.second = GINConv(_perceptron(hidden, hidden))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits [B, classes] of the B graphs that ``batch`` [N] tells apart."""
        h = self.first(x, edge_index).relu()
        h = self.second(h, edge_index).relu()
        h = functional.dropout(h, 0.1, self.training)
        logits: Tensor = self.out(global_add_pool(h, batch))
        return logits


def _perceptron(first: int, second: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(first, second), nn.ReLU(), nn.Linear(second, second))


def build() -> tuple[GIN, list[Data]]:
    """The model and the graphs; the loss is the default: cross-entropy with ``y``."""
    torch.manual_seed(0)
    return GIN(1, 16, 2), rings_and_trees(120)


def accuracy(out: Tensor, graph: Data) -> Tensor:
    """Share of the graphs whose larger logit is their label."""
    hits: Tensor = out.argmax(dim=-1) == graph.y
    return hits.float().mean()


def main(epochs: int = 30) -> None:
    """Plans, explains, trains and verifies, 32 graphs a step."""
    model, data = build()
    plan = autoplan.optimize(model, data, "2xcpu", batch_size=32, strategy="data")
    print(plan.explain())

    result = plan.train(model, data, epochs=epochs, lr=0.01, seed=0, metrics={"accuracy": accuracy})
    print(f"{len(result.losses)} steps, loss {result.losses[0]:.3f} -> {result.losses[-1]:.3f}")
    print(f"accuracy {result.metrics['accuracy']:.3f}")
    print(autoplan.verify(plan, *build()))


if __name__ == "__main__":
    main()
