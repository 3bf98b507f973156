"""Traps: contents that Python, NumPy or C++ code reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import global_mean_pool
from torch_geometric.utils import add_remaining_self_loops

from tests.trace.trapping import SIZES, Traps, graph

trap = Traps()
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")


def sparse(n):
    x, edge_index = graph(n)
    return x, torch.sparse_coo_tensor(edge_index, torch.ones(edge_index.size(1)), (n, n))


def as_data(n):
    x, edge_index = graph(n)
    return (Data(x=x, edge_index=edge_index),)


def with_lengths(n):
    """Sequence lengths in the first column: 3, 2, 1 in every sample, other ones in unseen graphs."""
    x, edge_index = graph(n)
    x[:3, 0] = torch.tensor([3.0, 2, 1] if n in SIZES else [2.0, 2, 2])
    return x, edge_index


def pack(model, x):
    sequences = model.linear(x)[:9].view(3, 3, 8)
    return nn.utils.rnn.pack_padded_sequence(sequences, x[:3, 0].long(), batch_first=True)


@trap("right")
def param_item(model, x, edge_index):
    return model.conv(x, edge_index) * model.scale.item() + model.scale


@trap("refused")
def numpy_trip(model, x, edge_index):
    return model.conv(x, edge_index) + torch.from_numpy(x.numpy() * 2)


@trap("refused")
def numpy_of_hidden(model, x, edge_index):
    h = model.conv(x, edge_index)
    return h * float(np.linalg.norm(h.detach().numpy()))


@trap("right")
def mask_index(model, x, edge_index):
    h = model.conv(x, edge_index)
    return model.linear(h[h[:, 0] > 0]).sum(0) + h[h.sum(-1) > 0].mean()


@trap("right")
def new_tensor_const(model, x, edge_index):
    scale = torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8])
    return model.conv(x, edge_index) * scale + torch.from_numpy(np.arange(8, dtype=np.float32))


@trap("not wrong")
def returns_data(model, x, edge_index):
    return Data(x=model.conv(x, edge_index), edge_index=edge_index)


@trap("not wrong")
def generator_arg(model, x, edge_index):
    generator = torch.Generator().manual_seed(x.size(0))
    return model.conv(x, edge_index) * torch.rand(8, generator=generator)


@trap("right")
def batch_max(model, x, edge_index):
    b = torch.arange(x.size(0)) // 7
    return global_mean_pool(model.conv(x, edge_index), b) * (int(b.max()) + 1)


@trap("right")
def item_arithmetic(model, x, edge_index):
    m = x.abs().sum().item()
    return model.conv(x, edge_index) * (m / x.size(0)) ** 2 + int(m)


@trap("right")
def tolist_split(model, x, edge_index):
    a = [x.size(0) // 3, x.size(0) - x.size(0) // 3]
    t = torch.tensor(a).tolist()
    p, q = model.conv(x, edge_index).split(t)
    return p.sum(0) - q.mean(0) * t[0]


@trap("right")
def equal_reads(model, x, edge_index):
    return model.conv(x, edge_index) * int((edge_index[0, :3] >= 0).sum())


@trap("not wrong")
def python_sort(model, x, edge_index):
    return model.conv(x, edge_index)[sorted(range(5), key=lambda i: x[i, 0].item())]


@trap("not wrong")
def text_of_tensor(model, x, edge_index):
    return model.conv(x, edge_index) * (2 if str(edge_index[0, 0]) == "tensor(5)" else 1)


@trap("right", unseen=(131, 208))
def one_hot(model, x, edge_index):
    return model.conv(x, edge_index) + F.one_hot(edge_index[0] % 8).sum(0)


@trap("right", sample=sparse)
def sparse_coo(model, x, a):
    a = a.coalesce()
    return torch.sparse.mm(a, model.linear(x)) + a.values().sum() / a._nnz()


@trap("right", sample=as_data)
def data_input(model, d):
    return model.conv(d.x, d.edge_index) / d.num_nodes + d.num_edges


@trap("guarded", sample=with_lengths, rnn=nn.LSTM(8, 8, batch_first=True))
def packed_rnn(model, x, edge_index):
    if len(x) < 9:
        return x
    return model.rnn(pack(model, x))[0].data.sum(0)


@trap("guarded", sample=with_lengths)
def pad_packed(model, x, edge_index):
    if len(x) < 9:
        return x
    return nn.utils.rnn.pad_packed_sequence(pack(model, x))[0].sum(0)


@trap("guarded", sample=with_lengths)
def split_by_tensor(model, x, edge_index):
    a, b = model.linear(x).tensor_split(x[:1, 0].long())
    return a.sum(0) + 2 * b.mean(0)


@trap("not wrong")
def sparse_without_size(model, x, edge_index):
    ones = x.new_ones(edge_index.size(1))
    few = torch.sparse_coo_tensor(edge_index % 5, ones).to_dense().sum()
    return model.linear(x).sum(0) * few * torch.sparse_coo_tensor(edge_index, ones).size(0)


@trap("right")
def unique_degrees(model, x, edge_index):
    d = torch.bincount(edge_index[1], minlength=x.size(0))
    u, inv = d.unique(return_inverse=True)
    h = model.conv(x, edge_index)
    return h.new_zeros(u.numel(), 8).index_add(0, inv, h) / u.size(0)


def with_some_self_loops(n):
    """One self-loop in the smallest sample, more in the others."""
    x, edge_index = graph(n)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    loops = torch.arange(max(1, n - 49)).repeat(2, 1)
    return x, torch.cat([edge_index, loops], dim=1)


@trap("right", sample=with_some_self_loops)
def rows_written_by_mask(model, x, edge_index):
    edge_index, weight = add_remaining_self_loops(edge_index, x[edge_index[0], 0].abs())
    return model.conv(x, edge_index, weight)


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
