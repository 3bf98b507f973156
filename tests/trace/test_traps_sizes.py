"""Traps: sizes that become shapes, factors and padding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.trace.trapping import Reversal, Traps, graph

trap = Traps()


def graph_and_size(n):
    return (*graph(n), n)


def two_tables(sizes):
    return torch.randn(sizes[0], 8), torch.randn(sizes[1], 8)


@trap("right")
def pad_parity(model, x, edge_index):
    return F.pad(model.conv(x, edge_index), (0, 0, 0, x.size(0) % 2))


@trap("right")
def divide_by_n(model, x, edge_index):
    return model.conv(x, edge_index) / x.size(0)


@trap("right")
def half_slice(model, x, edge_index):
    n = x.size(0)
    return model.conv(x, edge_index)[: n // 2]


@trap("right")
def length(model, x, edge_index):
    return model.conv(x, edge_index)[: len(x) // 3] / len(edge_index)


@trap("right")
def int_ratio(model, x, edge_index):
    k = int(0.3 * x.size(0))
    return model.conv(x, edge_index).topk(k, dim=0)[0]


@trap("right")
def ceil_round_sqrt(model, x, edge_index):
    n = x.shape[0]
    rows = math.ceil(n / 3) + round(n * 0.1)
    return model.conv(x, edge_index)[:rows] / math.sqrt(n) + math.log(n)


@trap("not wrong")
def np_sqrt(model, x, edge_index):
    return model.conv(x, edge_index) / np.sqrt(x.size(0))


@trap("guarded")
def clamp(model, x, edge_index):
    return model.conv(x, edge_index)[: min(x.size(0), 100)]


@trap("right")
def tensor_of_size(model, x, edge_index):
    return (
        model.conv(x, edge_index) * torch.tensor([x.size(0), 2.5]).sum()
        + torch.full((8,), 1 / x.size(0))
        + torch.tensor(x.size(0) // 7)
    )


@trap("guarded")
def split_blocks(model, x, edge_index):
    return sum(b.sum() for b in model.conv(x, edge_index).split(100))


@trap("right")
def stride_read(model, x, edge_index):
    return model.conv(x, edge_index) * x.t().stride(0) + (1 if x.t().is_contiguous() else 0)


@trap("right")
def repeat_matmul(model, x, edge_index):
    h = model.conv(x, edge_index)
    b = h.unsqueeze(0).repeat(3, 1, 1)
    return torch.einsum("bnf,bmf->bnm", b, b) @ h + model.linear(b).mean()


@trap("guarded")
def list_times(model, x, edge_index):
    return torch.cat([model.conv(x, edge_index)] * (x.size(0) // 50 + 1))


@trap("not wrong")
def interpolate(model, x, edge_index):
    h = model.conv(x, edge_index)
    return (
        F.interpolate(h.t()[None], size=x.size(0) * 2, mode="linear").mean(-1)
        + F.interpolate(h.t()[None], scale_factor=0.5).sum()
    )


@trap("right", sample=graph_and_size)
def int_input(model, x, edge_index, n):
    return model.conv(x, edge_index)[: n // 2] / n


@trap("right")
def returns_size(model, x, edge_index):
    return (model.conv(x, edge_index), {"n": x.size(0) * 2, "name": "x"})


@trap("right")
def not_a_multiple(model, x, edge_index):
    n = x.size(0)
    return F.pad(model.conv(x, edge_index), (0, 0, 0, -n % 16)).view(-1, 16, 8).sum(1)


@trap("right")
def bits(model, x, edge_index):
    n = x.size(0)
    return F.pad(model.conv(x, edge_index), (0, 0, 0, (n & 1) + (n >> 4))) * (-2) ** (n % 2)


@trap("not wrong")
def bit_length(model, x, edge_index):
    n = x.size(0)
    return F.pad(model.conv(x, edge_index), (0, 0, 0, (1 << (n - 1).bit_length()) - n))


@trap(
    "right",
    sizes=((50, 31), (61, 20), (75, 92), (96, 7)),
    unseen=((131, 7), (40, 41), (208, 5), (7, 208)),
    sample=two_tables,
)
def bipartite(model, x, y):
    return torch.zeros(x.size(0), y.size(0)).mm(model.linear(y)) + model.linear(x)


@trap("right")
def index_by_size_list(model, x, edge_index):
    return (
        model.conv(x, edge_index)[torch.tensor([x.size(0) - 1, 0])]
        + model.linear(x)[[x.size(0) - 2, 1]]
    )


@trap("not wrong")
def numpy_scalar(model, x, edge_index):
    return model.conv(x, edge_index) * (np.float64(2.5) * x.size(0)) + x.size(0) * np.float64(0.5)


@trap("right")
def custom_function_size(model, x, edge_index):
    return model.linear(Reversal.apply(model.conv(x, edge_index), 1 / x.size(0)))


@trap("not wrong")
def size_numel(model, x, edge_index):
    return model.conv(x, edge_index) / x.shape.numel()


@trap("right")
def size_prod(model, x, edge_index):
    return model.conv(x, edge_index) / (math.prod(x.shape) + sum(x.shape[:1]) + x.numel())


@trap("not wrong")
def size_np_prod(model, x, edge_index):
    return model.conv(x, edge_index) / np.prod(x.shape)


@trap("right")
def size_index(model, x, edge_index):
    return model.conv(x, edge_index) * (x.shape.index(8) + x.shape.count(8))


@trap("not wrong")
def size_text(model, x, edge_index):
    return model.conv(x, edge_index) * len(str(tuple(x.shape)))


@trap("right")
def sizes_added(model, x, edge_index):
    h = model.conv(x, edge_index)
    zeros = h.new_zeros(x.shape[:1] + (4,) + edge_index.shape[:1]).sum(-1)  # noqa: RUF005
    return zeros + h.view(*x.shape[:-1], 2, -1).sum(1)


@trap("right")
def sorted_sizes(model, x, edge_index):
    a, b = sorted([x.size(0), edge_index.size(1)])
    return model.conv(x, edge_index)[:a] / b


@trap("right")
def partial_of_none(model, x, edge_index):
    n = x.size(0)
    return model.conv(x, edge_index)[n // 3 : n - n // 3 : 2][:, None].squeeze(1)


@trap("not wrong")
def np_int(model, x, edge_index):
    return model.conv(x, edge_index)[: np.int64(x.size(0)) // 2]


@trap("not wrong")
def np_arange(model, x, edge_index):
    return model.conv(x, edge_index)[torch.from_numpy(np.arange(x.size(0))[::2].copy())]


@trap("not wrong")
def python_list_index(model, x, edge_index):
    return model.conv(x, edge_index)[list(range(0, x.size(0), 2))]


@trap("right")
def scalar_list_index(model, x, edge_index):
    n = x.size(0)
    return model.conv(x, edge_index)[[0, n // 2, n - 1, -1]]


@trap("right")
def where_scalar(model, x, edge_index):
    h = model.conv(x, edge_index)
    return torch.where(h > x.size(0) * 0.001, h, h * x.size(0)).clamp(max=x.size(0) / 2)


@trap("right")
def arange_float(model, x, edge_index):
    n = x.size(0)
    return (
        model.conv(x, edge_index) * torch.linspace(0, 1, n)[:, None]
        + torch.arange(0, 1, 1 / n)[:n, None]
    )


@trap("not wrong")
def chunked(model, x, edge_index):
    return sum(c.sum(0) for c in model.conv(x, edge_index).chunk(3))


@trap("not wrong")
def scaled_dropout(model, x, edge_index):
    return F.dropout(model.conv(x, edge_index), 1 / x.size(0))


@trap("right")
def setitem(model, x, edge_index):
    h = model.conv(x, edge_index)
    o = torch.zeros(x.size(0) + 1, 8)
    o[: x.size(0)] = h
    o[-1] = h.mean(0)
    o[torch.arange(3), [0, 1, 2]] = 1.0
    return o


@trap("right")
def reshaped_in_place(model, x, edge_index):
    h = model.conv(x, edge_index).detach()
    rows = h.size(0)
    h.t_()
    scaled = h * h.size(0) / h.size(1)
    h.unsqueeze_(0)
    return scaled.sum(1) + rows * model.linear(x).sum() + h.size(0) * h.size(2)


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
