"""What plans price is what programs do: transitions, adjoints and loaded inputs, on recorded models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from autoplan.execute.rewrite import rank_program
from autoplan.search import solve
from autoplan.trace.build import build_opgraph
from tests.search.small import cluster, stats
from tests.trace.recorded import SPECS, Convolutions, masked_cross_entropy, record, rows


def squares(out: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return (out * out).mean()


def no_gradient(h: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = h[edge_index[0]].abs().max(dim=1).values
        total = torch.zeros(h.size(0)).scatter_add_(0, edge_index[1], scale)
    return h / (1 + total.unsqueeze(1))


def gin(inside: int, outside: int) -> nn.Module:
    return GINConv(
        nn.Sequential(
            nn.Linear(inside, outside),
            nn.BatchNorm1d(outside),
            nn.ReLU(),
            nn.Linear(outside, outside),
        )
    )


MODELS: dict[str, Any] = {
    "gcn": (lambda: Convolutions(GCNConv), masked_cross_entropy),
    "gat": (lambda: Convolutions(GATConv), masked_cross_entropy),
    "sage max": (lambda: Convolutions(lambda a, b: SAGEConv(a, b, aggr="max")), squares),
    "gin with batch norm": (lambda: Convolutions(gin), masked_cross_entropy),
    "mean of squares": (lambda: Convolutions(GCNConv), squares),
    "a part without gradients": (lambda: Convolutions(SAGEConv, no_gradient), squares),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_plan_and_program_agree(name: str, training: bool) -> None:
    make, loss = MODELS[name]
    program = record(make(), loss, training=training)
    graph = build_opgraph(program, SPECS, rows(), has_loss=True, training=training)
    sizes = stats(20_000, 200_000, listed={"index:train_idx": 600})
    best = solve(
        graph,
        sizes,
        cluster(2),
        [],
        parameters=(),
        optimizer="adam",
        strategy="data",
        training=training,
    ).best
    assert best.status == "optimal"
    written = rank_program(program, graph, best.choices or {})
    views = ("H", "O")
    done = {
        (t.tensor, t.source, t.target, training and t.differentiable)
        for t in written.transitions
        if (t.source, t.target) != views
    }
    planned = {
        (t.tensor, t.source, t.target, any(t.backward_bytes))
        for t in best.transitions
        if (t.source, t.target) != views
    }
    assert {step[:3] for step in planned} == {step[:3] for step in done}
    exchanged = {step for step in done if step[1:3] in (("O", "H"), ("O", "R"), ("S", "R"))}
    assert {step for step in planned if step[:3] in {s[:3] for s in exchanged}} == exchanged
    assert set(best.inputs) == {(i.attribute, i.state) for i in written.inputs}
