"""Programs that mix rows, positions and sizes: any mixture of admitted strategies gives one device's numbers on 3 shards."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, degree, dropout_edge, softmax, to_undirected

from autoplan.errors import PlanError
from autoplan.execute.difference import first_difference
from autoplan.opgraph import OpGraph
from autoplan.partition.halo import build_shards
from autoplan.states import route
from autoplan.trace.build import build_opgraph
from autoplan.trace.step import trace_step
from tests.trace.recorded import ops, strategies

NODES, EDGES = 150, 700
send = gnn.SimpleConv()


def unlearned(h, e):
    with torch.no_grad():
        return h * send(h, e).sigmoid()


def selected_rows(h, e):
    mask = h[:, 0] > 0
    out = torch.zeros_like(h)
    out[mask] = h[mask] * 2
    return out


def first_column_zeroed(h, e):
    h = h * 1
    h[:, 0] = 0
    return h


PROGRAMS = {
    "divided by n": lambda h, e: h / h.size(0),
    "centred": lambda h, e: h - h.mean(0),
    "no_grad": unlearned,
    "flipped": lambda h, e: send(h, e.flip(0)),
    "both ways": lambda h, e: send(h, torch.cat([e, e.flip(0)], 1)),
    "to_undirected": lambda h, e: send(h, to_undirected(e)),
    "coalesced": lambda h, e: send(h, coalesce(e)),
    "cumsum": lambda h, e: h.cumsum(0) * 0.01,
    "roll": lambda h, e: h.roll(1, 0),
    "topk": lambda h, e: h + h[h.norm(dim=1).topk(5)[1]].mean(0),
    "sorted": lambda h, e: h.sort(0)[0],
    "all pairs": lambda h, e: (h @ h.t()).softmax(-1) @ h,
    "covariance": lambda h, e: h @ (h.t() @ h) * 0.01,
    "standardised": lambda h, e: (h - h.mean(0)) / (h.std(0) + 1),
    "positions as numbers": lambda h, e: h + (torch.arange(h.size(0)) / 7).sin()[:, None].to(h),
    "out degrees": lambda h, e: h * degree(e[0], h.size(0), dtype=h.dtype)[:, None],
    "loops": lambda h, e: h + h[e[0, (e[0] == e[1])]].mean(0),
    "edges by distance": lambda h, e: send(h, e[:, (h[e[0]] - h[e[1]]).norm(dim=1) > 0.3]),
    "half of the edges": lambda h, e: send(h, e[:, : e.size(1) // 2]),
    "edge dropout": lambda h, e: send(h, dropout_edge(e, 0.3)[0]),
    "edge softmax": lambda h, e: send(
        h, e, softmax((h[e[0]] * h[e[1]]).sum(-1), e[1], num_nodes=h.size(0))
    ),
    "both ends at once": lambda h, e: send(h, e, (h[e] * h[e.flip(0)]).sum((0, 2)).tanh()),
    "one entry a row": lambda h, e: (
        h * h[torch.arange(h.size(0)), h.argmin(1)][:, None] + h[e[0], h[e[1]].argmax(1)].mean()
    ),
    "noise": lambda h, e: F.dropout(h, 0.5) + torch.randn_like(h),
    "joined rows": lambda h, e: torch.cat([h, h * 2], 0).view(2, -1, h.size(1)).sum(0),
    "rows of a mask": selected_rows,
    "written in place": first_column_zeroed,
}
ALL_SHARDED = ("both ends at once", "one entry a row", "edges by distance", "edge softmax")
KEEP_CONVOLUTIONS = ("divided by n", "centred", "no_grad", "cumsum", "roll", "topk")


class Between(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.second = gnn.SAGEConv(8, 12), gnn.GraphConv(12, 3)
        self.function = function

    def forward(self, x, edge_index):
        return self.second(self.function(self.first(x, edge_index).relu(), edge_index), edge_index)


def directed_graph() -> Data:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES - 8, (2, EDGES), generator=generator)
    edge_index[1, : EDGES // 3] %= 7
    edge_index[:, :15] = edge_index[:1, :15]
    x = torch.randn(NODES, 8, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=edge_index, y=torch.arange(NODES) % 3)


GRAPH = directed_graph()


def possible(graph: OpGraph, rng: random.Random | None) -> dict[int, str]:
    """A strategy for each op that its inputs can reach: the first beyond R, or a random one. Backs up where it gets stuck."""
    whole: set[int] = set()
    while True:
        produced: dict[str, str] = {}
        maker: dict[str, int] = {}
        chosen: dict[int, str] = {}
        for op in graph.ops:
            offered = [s for s in reversed(op.strategies) if s.runs_on(closed=False)]
            if rng is not None:
                rng.shuffle(offered)
            if op.index in whole:
                offered = [s for s in op.strategies if s.name == "R"]
            fitting = [s for s in offered if not unreachable(graph, op, s, produced)]
            if not fitting:
                missing = unreachable(graph, op, op.strategies[0], produced)
                whole.update(maker[name] for name in missing)
                break
            chosen[op.index] = fitting[0].name
            produced.update(zip(op.outputs, fitting[0].outputs, strict=True))
            maker.update(dict.fromkeys(op.outputs, op.index))
        else:
            return chosen


def unreachable(graph, op, strategy, produced) -> list[str]:
    missing = []
    for name, state in zip(op.inputs, strategy.inputs, strict=True):
        tensor = graph.tensors[name]
        if tensor.origin == "input":
            continue
        try:
            route(tensor, graph.axes, produced.get(name, "R"), {state})
        except PlanError:
            missing.append(name)
    return missing


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_devices_numbers(name):
    torch.manual_seed(1)
    model = Between(PROGRAMS[name]).double().train()
    step = trace_step(model, GRAPH, lambda out, graph: F.cross_entropy(out, graph.y))
    assert step.program is not None, step.reason
    graph = build_opgraph(
        step.program, step.schema.attributes, step.sample_rows, has_loss=True, training=True
    )
    if name in KEEP_CONVOLUTIONS:
        heavy = ops(graph, "mm", "addmm", "index_select", "scatter_add")
        assert all("O" in strategies(op) for op in heavy)
    if name in ALL_SHARDED:
        assert all("O" in strategies(op) for op in ops(graph, "index", "scatter_add", "sum"))
    owner = np.random.default_rng(3).choice(3, NODES, p=[0.2, 0.3, 0.5])
    shards = build_shards(owner, {"edge": GRAPH.edge_index.numpy()}, {}, parts=3)
    state = step.state_tensors(model)
    attributes = {key: GRAPH[key] for key in ("x", "edge_index", "y")}
    for chooser in (None, random.Random(0), random.Random(1)):
        chosen = possible(graph, chooser)
        difference = first_difference(
            step.program, graph, chosen, shards, attributes, state, state, seed=4
        )
        assert difference is None
