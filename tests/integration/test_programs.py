"""Programs that break what assumes too much of a model: each gives one device's numbers on three shards.

`sharded` says that the convolutions must stay sharded; the others may run in R.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected

import autoplan

from .graphs import awkward_graph


class ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.view_as(h)

    @staticmethod
    def backward(ctx, gradient):
        return -0.3 * gradient


class Net(nn.Module):
    """Two convolutions with `between` applied to what lies between them, `edges` to the edges of the second."""

    def __init__(self, between: Callable[..., Tensor], edges: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = GCNConv(8, 12)
        self.gate = nn.Linear(12, 12)
        self.second = GCNConv(12, 4)
        self.between = between
        self.edges = edges

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index).tanh()
        h = self.between(self, h, x)
        return self.second(h, self.edges(edge_index))


def gated_without_gradient(net: Net, h: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        gate = net.gate(h).sigmoid()
    return h * gate + h


def keep_top(net: Net, h: Tensor, x: Tensor) -> Tensor:
    values, rows = h.sum(dim=1).topk(9)
    return h.index_add(0, rows, values[:, None] * h[rows])


def same(edge_index: Tensor) -> Tensor:
    return edge_index


def unchanged(net: Net, h: Tensor, x: Tensor) -> Tensor:
    return h


FORWARD = {
    "divide_by_number_of_nodes": (lambda net, h, x: h / x.size(0), same, True),
    "subtract_mean_over_nodes": (lambda net, h, x: h - h.mean(0), same, True),
    "part_without_gradient": (gated_without_gradient, same, True),
    "cumulative_sum": (lambda net, h, x: h.cumsum(0) / 10, same, False),
    "roll": (lambda net, h, x: h.roll(3, dims=0), same, False),
    "topk": (keep_top, same, False),
    "flipped_edges": (unchanged, lambda e: e.flip(0), False),
    "undirected_edges": (unchanged, to_undirected, False),
    "reversed_gradient": (lambda net, h, x: ReverseGradient.apply(h), same, False),
}
REFUSED = {"reversed_gradient": "ReverseGradient"}
"""Named in the error; one device runs them."""


def cross_entropy(out: Tensor, graph) -> Tensor:
    return F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])


LOSSES = {
    "divided_by_number_of_nodes": lambda out, g: (
        F.cross_entropy(out, g.y, reduction="none") / g.x.size(0)
    ).sum(),
    "centred_outputs": lambda out, g: cross_entropy(out - out.mean(0), g),
    "cumulative_sum": lambda out, g: (out.cumsum(0) ** 2).mean() + cross_entropy(out, g),
    "rolled": lambda out, g: (out * out.roll(1, dims=0)).mean() + cross_entropy(out, g),
    "topk": lambda out, g: out.sum(1).topk(7)[0].mean() + cross_entropy(out, g),
    "flipped_edges": lambda out, g: (
        cross_entropy(out, g)
        + (out[g.edge_index.flip(0)[0]] - out[g.edge_index.flip(0)[1]]).pow(2).mean()
    ),
    "part_without_gradient": lambda out, g: (
        cross_entropy(out, g) * (1 + out.detach().pow(2).mean())
    ),
    "weighted": lambda out, g: F.cross_entropy(
        out[g.train_mask],
        g.y[g.train_mask],
        weight=torch.tensor([0.2, 1.0, 3.0, 0.7], dtype=out.dtype),
    ),
    "label_smoothing": lambda out, g: F.cross_entropy(
        out[g.train_mask], g.y[g.train_mask], label_smoothing=0.1
    ),
    "square_error": lambda out, g: F.mse_loss(out[:, 0], g.y.to(out.dtype)),
    "with_penalty": lambda out, g: cross_entropy(out, g) + 1e-2 * out.pow(2).sum(),
}


def heavy_strategies(plan: autoplan.Plan, module: str) -> set[str]:
    """Strategies of the matrix products and scatters of one convolution."""
    return {
        choice.strategy
        for choice in plan.stages[0].choices
        if module in choice.module and ("scatter" in choice.name or ".mm" in choice.name)
    }


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    between, edges, sharded = FORWARD[name]
    torch.manual_seed(1)
    model, graph = Net(between, edges), awkward_graph()
    if name in REFUSED:
        with pytest.raises(autoplan.errors.AutoplanError, match=REFUSED[name]):
            autoplan.optimize(model, graph, "3xcpu", loss=cross_entropy, strategy="data")
        plan = autoplan.optimize(model, graph, "3xcpu", loss=cross_entropy)
        assert plan.strategy == "single"
        assert autoplan.verify(plan, model, graph).ok
        return
    plan = autoplan.optimize(model, graph, "3xcpu", loss=cross_entropy, strategy="data")

    result = autoplan.verify(plan, model, graph, steps=3)

    assert result.ok, str(result)
    if sharded:
        assert "R" not in heavy_strategies(plan, "first")
        assert "R" not in heavy_strategies(plan, "second")


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str) -> None:
    torch.manual_seed(1)
    model, graph = Net(unchanged, same), awkward_graph()
    plan = autoplan.optimize(model, graph, "3xcpu", loss=LOSSES[name], strategy="data")

    result = autoplan.verify(plan, model, graph, steps=3)

    assert result.ok, str(result)
    assert "R" not in heavy_strategies(plan, "first")
