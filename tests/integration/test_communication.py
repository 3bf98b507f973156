"""What a step issues, counted at the process group, is what the plan says; and a collective too many is seen."""

import random

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn.models import GAT, GCN

import autoplan

from .graphs import awkward_graph


def both_ways(inside: int, hidden: int, _layers: int, outside: int, dropout: float) -> nn.Module:
    """Messages along edges and against them: sums at source ends travel to the owners."""
    return gnn.Sequential(
        "x, edge_index",
        [
            (gnn.DirGNNConv(gnn.SAGEConv(inside, hidden)), "x, edge_index -> x"),
            nn.ReLU(),
            nn.Dropout(dropout),
            (gnn.DirGNNConv(gnn.SAGEConv(hidden, outside)), "x, edge_index -> x"),
        ],
    )


@pytest.mark.parametrize(
    ("make", "workers"),
    [
        (GAT, 3),
        (both_ways, 2),
        *(
            pytest.param(*case, marks=pytest.mark.accept)
            for case in ((GCN, 2), (GCN, 3), (GAT, 2), (both_ways, 3))
        ),
    ],
)
def test_payload_equals_the_prediction(make, workers: int) -> None:
    torch.manual_seed(0)
    model, graph = make(8, 12, 2, 4, dropout=0.5), awkward_graph()
    plan = autoplan.optimize(model, graph, f"{workers}xcpu", strategy="data")

    before = random.getstate()
    result = plan.train(model, graph, epochs=4, lr=0.01, progress=False)

    assert random.getstate() == before
    assert tuple(result.communication_bytes) == tuple(plan.predicted.communication_bytes)
    assert sum(result.communication_bytes) > 0
