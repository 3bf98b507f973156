"""Models of several node types, from trace to lock-step: two and three ranks give one device's numbers, gradients included."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as gnn

from autoplan.execute.difference import first_difference
from autoplan.opgraph import Op
from tests.execute.hetero import (
    CLASSES,
    METADATA,
    SPECS,
    WIDTHS,
    convolutions,
    graph,
    hetero_conv,
    record,
    shards_of,
)
from tests.trace.rules.test_programs import possible

HEAVY = ("dense", "gather", "scatter", "spmm")


def sage(relation, width):
    return gnn.SAGEConv((-1, -1), width)


def gat(relation, width):
    return gnn.GATConv((-1, -1), width, heads=2, concat=False, add_self_loops=False, dropout=0.3)


def gcn_where_legal(relation, width):
    if relation[0] == relation[2]:
        return gnn.GCNConv(-1, width)
    return gnn.GraphConv((-1, -1), width, aggr="max")


def to_hetero():
    class Homogeneous(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = gnn.SAGEConv((-1, -1), 8)
            self.second = gnn.SAGEConv((-1, -1), CLASSES)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    return gnn.to_hetero(Homogeneous(), METADATA, aggr="sum")


class HGT(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = gnn.HGTConv(WIDTHS, 8, METADATA, heads=2)
        self.second = gnn.HGTConv(8, 8, METADATA, heads=2)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x_dict, edges):
        hidden = {kind: x.relu() for kind, x in self.first(x_dict, edges).items() if x is not None}
        return self.out(self.second(hidden, edges)["paper"])


class Joined(nn.Module):
    """Types are joined by hand, as `HeteroData.to_homogeneous` joins them."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleDict({kind: nn.Linear(width, 8) for kind, width in WIDTHS.items()})
        self.first = gnn.SAGEConv(8, 8)
        self.second = gnn.GATConv(8, CLASSES, heads=2, concat=False, add_self_loops=False)

    def forward(self, x_dict, edges):
        first, total = {}, 0
        for kind, x in x_dict.items():
            first[kind], total = total, total + x.size(0)
        h = torch.cat([self.lins[kind](x) for kind, x in x_dict.items()])
        pairs = [
            torch.stack([index[0] + first[source], index[1] + first[destination]])
            for (source, _, destination), index in edges.items()
        ]
        index = torch.cat(pairs, dim=1)
        h = F.dropout(self.first(h, index).relu(), 0.3, self.training)
        return self.second(h, index)[first["paper"] : first["venue"]]


class HAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = gnn.HANConv(WIDTHS, 8, METADATA, heads=2, dropout=0.2)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x_dict, edges):
        return self.out(self.conv(x_dict, edges)["paper"])


MODELS = {
    "SAGE": (lambda: convolutions(sage), hetero_conv),
    "GAT": (lambda: convolutions(gat), hetero_conv),
    "GCN": (lambda: convolutions(gcn_where_legal), hetero_conv),
    "to_hetero": (to_hetero, lambda model, x, edges: model(x, edges)["paper"]),
    "HGT": (HGT, lambda model, x, edges: model(x, edges)),
    "joined": (Joined, lambda model, x, edges: model(x, edges)),
    "HAN": (HAN, lambda model, x, edges: model(x, edges)),
}


@functools.cache
def traced(name):
    torch.manual_seed(2)
    make, call = MODELS[name]
    model = make()
    program, opgraph = record(model, call)
    state = {f"model.{k}": v.detach() for k, v in model.state_dict().items()}
    return program, opgraph, state


def heavy(op: Op) -> bool:
    return op.forward.kind in HEAVY


@pytest.mark.parametrize("name", MODELS)
def test_heavy_ops_run_on_owned_rows(name):
    _, opgraph, _ = traced(name)
    whole = [
        op for op in opgraph.ops if heavy(op) and not any(s.rows != "R" for s in op.strategies)
    ]
    assert not [(op.name, op.where) for op in whole]


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_one_devices_numbers(name, parts):
    program, opgraph, state = traced(name)
    tensors = dict(
        zip(
            [spec.name for spec in SPECS],
            graph({"author": 40, "paper": 61, "venue": 17}, (130, 99, 87, 66, 70)),
            strict=True,
        )
    )
    shards = shards_of(tensors, parts)
    for chooser in (None, random.Random(0), random.Random(1)):
        chosen = possible(opgraph, chooser)
        difference = first_difference(
            program, opgraph, chosen, shards, tensors, state, state, seed=4
        )
        assert difference is None, str(difference)
        if chooser is None:
            assert all(chosen[op.index] != "R" for op in opgraph.ops if heavy(op))
