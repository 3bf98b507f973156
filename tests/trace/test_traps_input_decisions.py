"""Traps: decisions that follow what inputs hold, how they lie in memory, or errors."""

from __future__ import annotations

import math

import pytest
import torch

from tests.trace.trapping import SIZES, Traps, graph

trap = Traps()
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")


def ring(n):
    """A graph without self-loops."""
    nodes = torch.arange(n)
    return torch.randn(n, 8), torch.stack([nodes, (nodes + 1) % n])


def two_tables(sizes):
    """Two tables of equal length where one size is given, as in every sample."""
    rows, others = sizes if isinstance(sizes, tuple) else (sizes, sizes)
    return torch.randn(rows, 8), torch.randn(others, 8)


def coalesced_unless_unseen(n):
    x, edge_index = graph(n)
    adjacency = torch.sparse_coo_tensor(edge_index, torch.ones(edge_index.size(1)), (n, n))
    return x, adjacency.coalesce() if n in SIZES else adjacency


def one_tensor_twice_unless_unseen(n):
    x = torch.randn(n, 8)
    return (x, x) if n in SIZES else (x, x.clone())


def transposed_if_unseen(n):
    x, edge_index = graph(n)
    return x, edge_index if n in SIZES else edge_index.t().contiguous().t()


@trap("not wrong")
def if_self_loop(model, x, edge_index):
    return model.conv(x, edge_index) if (edge_index[0] == edge_index[1]).any() else model.linear(x)


@trap(
    "right",
    sample=ring,
)
def if_self_loop_never(model, x, edge_index):
    return model.conv(x, edge_index) if (edge_index[0] == edge_index[1]).any() else model.linear(x)


@trap("not wrong")
def caught_error(model, x, edge_index):
    try:
        return model.conv(x, edge_index) * x[100, 0]
    except IndexError:
        return model.conv(x, edge_index) * x[0, 0]


@trap(
    "guarded",
    sizes=(50, 61, 75, 96),
    unseen=((131, 7), 40, 208, (7, 208)),
    sample=two_tables,
)
def equal_by_accident(model, x, y):
    return torch.zeros(x.size(0), y.size(0)) + model.linear(x).sum() + model.linear(y).sum()


@trap("guarded")
def if_item(model, x, edge_index):
    return model.conv(x, edge_index) if edge_index.max().item() > 35 else model.linear(x)


@trap("refused")
def contains(model, x, edge_index):
    return model.conv(x, edge_index) * (2 if 60 in edge_index else 1)


@trap("not wrong")
def while_converge(model, x, edge_index):
    h = model.conv(x, edge_index)
    while h.norm() > 1:
        h = h / 2
    return h


@trap("right")
def if_requires_grad(model, x, edge_index):
    return model.conv(x, edge_index) if model.linear.weight.requires_grad else model.linear(x)


@trap("right")
def is_nan(model, x, edge_index):
    h = model.conv(x, edge_index)
    return h if math.isfinite(h.sum().item()) else h * 0


@trap(
    "guarded",
    unseen=(131, 40),
    sample=coalesced_unless_unseen,
)
def coalesced_samples(model, x, a):
    a = a.coalesce()
    return model.linear(x) * a.values().sum()


@trap(
    "right",
    sample=one_tensor_twice_unless_unseen,
)
def aliased_samples(model, x, y):
    return model.linear(x) + model.linear(y)


@trap(
    "guarded",
    unseen=(131, 40),
    sample=transposed_if_unseen,
)
def strided_inputs(model, x, edge_index):
    return model.conv(x, edge_index) + edge_index.view(-1)[0]


@trap("right")
def sort_edges_check(model, x, edge_index):
    target = edge_index[1]
    is_sorted = (target[1:] >= target[:-1]).all()
    return model.conv(x, edge_index if is_sorted else edge_index[:, target.argsort()])


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
