"""Traps: torch's own layers, whose fast paths differ by device, dtype and size."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.trace.trapping import Traps

trap = Traps()


@trap("right")
def dropout(model, x, edge_index):
    return model.linear(F.dropout(model.conv(x, edge_index), 0.4, training=model.training))


@trap("right")
def autocast(model, x, edge_index):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = model.linear(x)
    return model.conv(h.float(), edge_index)


@trap("right")
def attention(model, x, edge_index):
    h = model.conv(x, edge_index).view(1, x.size(0), 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(h, h, h).sum(1)


@trap(
    "right",
    sn=nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
    wn=nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
)
def norms(model, x, edge_index):
    return model.wn(model.sn(model.conv(x, edge_index)))


@trap("right", emb=nn.Embedding(300, 8, max_norm=1.0))
def embedding(model, x, edge_index):
    return model.conv(model.emb(torch.arange(x.size(0))), edge_index) @ model.emb.weight.t()


@trap("right", rnn=nn.GRU(8, 8))
def rnn(model, x, edge_index):
    return model.rnn(model.conv(x, edge_index).view(1, -1, 8).repeat(3, 1, 1))[0].sum(0)


@trap("guarded", rnn=nn.GRU(8, 8))
def rnn_over_nodes(model, x, edge_index):
    return model.rnn(model.conv(x, edge_index)[:20])[0]


@trap("right", mha=nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1))
def mha(model, x, edge_index):
    h = model.conv(x, edge_index)[None]
    return model.mha(h, h, h)[0]


@trap("right", enc=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
def encoder(model, x, edge_index):
    return model.enc(model.conv(x, edge_index)[None])


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
