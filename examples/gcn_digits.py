"""A GCN on scikit-learn's digits, planned for two CPU workers; nothing is downloaded.

Run it, or hand it to the command line: ``autoplan plan examples/gcn_digits.py:build --devices 2xcpu``.
"""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN

import autoplan
from autoplan import datasets


def build() -> tuple[GCN, Data]:
    """The model and the graph; the loss is the default: cross-entropy over ``train_mask``."""
    torch.manual_seed(0)
    graph = datasets.digits()
    return GCN(graph.num_node_features, 32, num_layers=2, out_channels=10, dropout=0.5), graph


def accuracy(out: torch.Tensor, graph: Data) -> torch.Tensor:
    """Share of the test nodes whose largest logit is their class."""
    hits: torch.Tensor = (out.argmax(dim=-1) == graph.y)[graph.test_mask]
    return hits.float().mean()


def main(epochs: int = 100) -> None:
    """Plans, explains, trains and verifies."""
    model, graph = build()
    plan = autoplan.optimize(model, graph, "2xcpu", strategy="data")
    print(plan.explain())

    result = plan.train(
        model, graph, epochs=epochs, lr=0.01, seed=0, metrics={"accuracy": accuracy}
    )
    print(f"loss {result.losses[0]:.3f} -> {result.losses[-1]:.3f}")
    print(f"test accuracy {result.metrics['accuracy']:.3f}")
    print(autoplan.verify(plan, *build()))


if __name__ == "__main__":
    main()
