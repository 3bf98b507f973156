"""Kipf and Welling's GCN on Cora with the public split, on one worker and on two.

Needs Planetoid's raw files: set AUTOPLAN_DATA to the folder that holds ``planetoid/Cora/raw``. Run it, or hand it to the
command line: ``autoplan run examples/gcn_cora.py:build --devices 2xcpu --epochs 200 --weight-decay 5e-4``.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import autoplan
from autoplan import datasets

BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data"


class GCN(nn.Module):
    """Two graph convolutions with dropout before each."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, hidden)
        self.second = GCNConv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [N, classes] from features [N, features] and edges [2, E]."""
        h = functional.dropout(x, 0.5, self.training)
        h = self.first(h, edge_index).relu()
        h = functional.dropout(h, 0.5, self.training)
        logits: Tensor = self.second(h, edge_index)
        return logits


def build() -> tuple[GCN, Data]:
    """The model and the graph; the loss is the default: cross-entropy over ``train_mask``."""
    torch.manual_seed(0)
    folder = Path(os.environ.get("AUTOPLAN_DATA", BESIDE_THE_CHECKOUT))
    graph = datasets.planetoid(folder / "planetoid", "Cora")
    return GCN(graph.num_node_features, 16, 7), graph


def accuracy(out: Tensor, graph: Data) -> Tensor:
    """Share of the 1,000 test nodes whose largest logit is their class."""
    hits: Tensor = (out.argmax(dim=-1) == graph.y)[graph.test_mask]
    return hits.float().mean()


def main(epochs: int = 200) -> None:
    """Trains on one worker and on two from the same weights and the same draws of dropout."""
    for strategy in ("single", "data"):
        model, graph = build()
        plan = autoplan.optimize(model, graph, "2xcpu", strategy=strategy)
        result = plan.train(
            model,
            graph,
            epochs=epochs,
            lr=0.01,
            weight_decay=5e-4,
            seed=0,
            metrics={"accuracy": accuracy},
        )
        print(
            f"{strategy}: {result.step_seconds * 1e3:.1f} ms a step, "
            f"last loss {result.losses[-1]:.6f}, test accuracy {result.metrics['accuracy']:.3f}"
        )


if __name__ == "__main__":
    main()
