"""Tracing and planning leave the user's model, graph, loss and all shared state bit-identical.

Models that a user has worked with: trained for a step, with gradients, filled caches, hooks, layers in evaluation mode, frozen
and tied weights, one layer used twice. Every layer and model of PyG is looked at where it is traced (`tests/layers/traced.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    APPNP,
    GCN2Conv,
    GCNConv,
    GraphNorm,
    HeteroConv,
    Linear,
    SAGEConv,
    SGConv,
    SSGConv,
)

import autoplan
from autoplan.trace.step import trace_step
from tests.trace.graphs import CLASSES, FEATURES, masked_loss, node_graph, typed_graph
from tests.trace.marks import Marks

SEEN: list[str] = []
"""What hooks and losses note: the user's, so that passes over samples must not be noted."""


class Cached(nn.Module):
    """Convolutions that keep their propagation, the first two layers being one, and a norm in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(FEATURES, 8)
        shared = GCNConv(8, 8, cached=True)
        self.layers = nn.ModuleList(
            [
                shared,
                shared,
                GCN2Conv(8, 0.1, cached=True),
                SGConv(8, 8, K=2, cached=True),
                SSGConv(8, 8, alpha=0.1, K=2, cached=True),
                APPNP(2, 0.1, dropout=0.1, cached=True),
            ]
        )
        self.norm = GraphNorm(8)
        self.batch_norm = nn.BatchNorm1d(8)
        self.frozen_norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, CLASSES)
        self.twin = nn.Linear(FEATURES, 8)
        self.twin.weight = self.into.weight
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.history: list[int] = []
        self.kept: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        start = h = self.into(x) + self.twin(x)
        for layer in self.layers:
            h = layer(h, start, edge_index) if isinstance(layer, GCN2Conv) else layer(h, edge_index)
        self.steps += 1
        self.kept = h
        h = self.frozen_norm(self.batch_norm(self.norm(h)))
        return self.out(torch.nn.functional.dropout(h.relu(), 0.5, self.training))


class Typed(nn.Module):
    """Two layers over relations, lazily sized before their first step."""

    def __init__(self) -> None:
        super().__init__()
        relations = typed_graph().edge_types
        shared = SAGEConv((-1, -1), 8)
        self.layers = nn.ModuleList(
            HeteroConv({r: shared if number else SAGEConv((-1, -1), 8) for r in relations})
            for number in range(2)
        )
        self.out = Linear(-1, 3)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        for layer in self.layers:
            x_dict = {kind: h.relu() for kind, h in layer(x_dict, edge_index_dict).items()}
        return self.out(x_dict["paper"])


TOTAL = torch.zeros(())
"""A tensor that a loss adds up in."""


def noted_loss(out: Tensor, graph: Data) -> Tensor:
    SEEN.append("loss")
    return masked_loss(out, graph)


def typed_loss(out: Tensor, graph: HeteroData) -> Tensor:
    TOTAL.add_(1)
    mask = graph["paper"].train_mask
    return nn.functional.cross_entropy(out[mask], graph["paper"].y[mask])


def used(model: nn.Module, run: Callable[[nn.Module], Tensor]) -> nn.Module:
    """The model after a step, with what its user then did to it."""
    run(model).backward()

    def look(_module: nn.Module, _args: Any, _out: Any) -> None:
        SEEN.append("hook")

    for module in list(model.modules())[1:3]:
        module.register_forward_hook(look)
        module.register_forward_pre_hook(lambda *_: None)
    for name, module in model.named_modules():
        if name == "frozen_norm":
            module.eval()
            module.weight.requires_grad_(False)
    return model


def cached_case() -> tuple[nn.Module, Data, Any]:
    graph = node_graph()
    graph.x.requires_grad_()
    model = used(Cached(), lambda m: masked_loss(m(graph.x, graph.edge_index), graph))
    return model, graph, noted_loss


def typed_case() -> tuple[nn.Module, HeteroData, Any]:
    graph = typed_graph()
    model = used(Typed(), lambda m: typed_loss(m(graph.x_dict, graph.edge_index_dict), graph))
    return model, graph, typed_loss


def fresh_lazy_case() -> tuple[nn.Module, HeteroData, Any]:
    return Typed(), typed_graph(), typed_loss


CASES = (cached_case, typed_case, fresh_lazy_case)


def seeded(make: Callable[[], tuple[nn.Module, Any, Any]]) -> dict[str, Any]:
    torch.manual_seed(3)
    np.random.seed(4)
    random.seed(5)
    model, graph, loss = make()
    return {"model": model, "graph": graph, "loss": loss, "seen": SEEN, "total": TOTAL}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", CASES)
def test_tracing_leaves_no_mark(make, training: bool) -> None:
    given = seeded(make)
    before = Marks(**given)
    step = trace_step(given["model"], given["graph"], given["loss"], training=training)
    assert step.program or step.recording
    assert not before.changes(**given)


@pytest.mark.parametrize("make", [cached_case, typed_case])
def test_planning_leaves_no_mark(make) -> None:
    given = seeded(make)
    before = Marks(**given)
    autoplan.optimize(given["model"], given["graph"], "2xcpu", loss=given["loss"])
    assert not before.changes(**given)


def test_a_mark_is_seen() -> None:
    """Each of these changes would be told."""
    given = seeded(cached_case)
    model, graph = given["model"], given["graph"]
    before = Marks(**given)
    with torch.no_grad():
        model.out.weight.add_(0)  # written, though with what it held
        next(model.parameters()).grad.mul_(2)
    model.layers[0]._cached_edge_index = model.layers[3]._cached_x
    model.frozen_norm.train()
    model.norm.register_forward_hook(lambda *_: None)
    graph.x = graph.x.clone()
    graph.more = 3
    torch.rand(1)
    SEEN.append("more")
    found = "\n".join(before.changes(**given))
    for part in (
        "['weight']: form",
        ".grad: content",
        "._cached_edge_index",
        ".training",
        "._forward_hooks",
        "['x']",
        "['more']",
        "torch's generator",
        "seen",
    ):
        assert part in found, part
