"""Every strategy with kernel ``local`` gives, on uneven shards of an asymmetric graph, the pieces of the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.nn.models import GAT, GCN, GIN, PNA

from autoplan.trace.build import build_opgraph
from tests.trace.recorded import (
    CLASSES,
    FEATURES,
    SIZES,
    SPECS,
    Convolutions,
    Step,
    graph,
    masked_cross_entropy,
    record,
    rows,
)
from tests.trace.shards import Run

_DEGREES = torch.tensor([1, 5, 20, 30, 20, 8])


def _divided(h: Tensor, edge_index: Tensor) -> Tensor:
    return h / h.size(0) - h.mean(0)


def _ordered(h: Tensor, edge_index: Tensor) -> Tensor:
    _, best = h.norm(dim=1).topk(10)
    return h.cumsum(0).roll(1, 0) + h[best].mean(0) + h.cumsum(1) + (h.t() @ h).sum(0)


MODELS = {
    "gcn": lambda: Convolutions(gnn.GCNConv),
    "weighted gcn": lambda: Weighted(),
    "gat": lambda: GAT(FEATURES, 16, 2, CLASSES, heads=4, dropout=0.5),
    "gatv2": lambda: Convolutions(lambda i, o: gnn.GATv2Conv(i, o, heads=2, concat=False)),
    "sage": lambda: Convolutions(gnn.SAGEConv, _divided),
    "sage max": lambda: Convolutions(lambda i, o: gnn.SAGEConv(i, o, aggr="max")),
    "gin": lambda: GIN(FEATURES, 16, 2, CLASSES, norm="batch_norm", dropout=0.5),
    "pna": lambda: PNA(
        FEATURES,
        16,
        2,
        CLASSES,
        aggregators=["mean", "min", "max", "std"],
        scalers=["identity", "amplification", "attenuation"],
        deg=_DEGREES,
    ),
    "jumping knowledge": lambda: GCN(FEATURES, 16, 2, CLASSES, jk="max", norm="layer_norm"),
    "transformer": lambda: Convolutions(
        lambda i, o: gnn.TransformerConv(i, o, heads=2, concat=False, beta=True)
    ),
    "flipped": lambda: Convolutions(gnn.SAGEConv, lambda h, e: gnn.SimpleConv()(h, e.flip(0))),
    "ordered": lambda: Convolutions(gnn.GraphConv, _ordered),
}


class Weighted(nn.Module):
    """GCN with edge weights: PyG keeps the weights of self-loops by writing at their source."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.GCNConv(FEATURES, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        weight = (x[edge_index[0]] * x[edge_index[1]]).sum(-1).sigmoid()
        return self.conv(x, edge_index, weight)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_pieces_of_the_whole(name, training):
    model = MODELS[name]()
    program = record(model, training=training)
    described = build_opgraph(program, SPECS, rows(), has_loss=True, training=training)
    step = Step(model, masked_cross_entropy)
    state = {**dict(step.named_parameters()), **dict(step.named_buffers())}
    run = Run(program, described, state, graph(*SIZES[0]), parts=3)
    checked = 0
    for op in described.ops:
        for strategy in op.strategies:
            sharded = strategy.name != "R" and "S" not in strategy.inputs
            if sharded and strategy.kernel == "local" and strategy.runs_on(False):
                run.check(op, strategy)
                checked += 1
    assert checked > 20
