"""Traps: gradients that a replay could lose or change."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

from tests.trace.trapping import Reversal, Traps, graph

trap = Traps()


def with_positions(n):
    x, edge_index = graph(n)
    return x.requires_grad_(), edge_index


@functools.cache
def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.script is deprecated
        return torch.jit.script(double_large)


def double_large(x: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 100:
        return x * 2
    return x


@trap("right")
def no_grad_block(model, x, edge_index):
    h = model.conv(x, edge_index)
    with torch.no_grad():
        w = model.linear(h).sigmoid()
    return h * w + model.linear(x)


@trap("right")
def reversal(model, x, edge_index):
    return model.linear(Reversal.apply(model.conv(x, edge_index), 0.3))


@trap("not wrong")
def scripted_function(model, x, edge_index):
    return scripted()(model.conv(x, edge_index))


@trap("not wrong")
def vmapped(model, x, edge_index):
    return torch.vmap(lambda r: r * r.sum() if r.shape[0] else r)(model.conv(x, edge_index))


@trap("not wrong")
def func_grad(model, x, edge_index):
    return torch.func.grad(lambda w: (model.conv(x, edge_index) * w).sum())(model.scale)


@trap("right")
def detach_same_storage(model, x, edge_index):
    h = model.conv(x, edge_index)
    d = h.detach()
    return h * d + F.softmax(d, -1) * h.view(-1, 8) + h.data * 2


@trap("right", sample=with_positions)
def forces(model, x, edge_index):
    x.requires_grad_(True)
    e = model.linear(model.conv(x, edge_index).tanh()).sum()
    return (e, torch.autograd.grad(e, x, create_graph=True)[0])


@trap("refused")
def hook(model, x, edge_index):
    h = model.conv(x, edge_index)
    h.register_hook(lambda g: g * 2)
    return h


@trap("right")
def checkpointed(model, x, edge_index):
    return torch.utils.checkpoint.checkpoint(model.conv, x, edge_index, use_reentrant=False)


@trap("not wrong")
def checkpoint_reentrant(model, x, edge_index):
    return torch.utils.checkpoint.checkpoint(
        model.conv, x.requires_grad_(), edge_index, use_reentrant=True
    )


@trap("right")
def enable_inside(model, x, edge_index):
    with torch.no_grad():
        h = model.conv(x, edge_index)
        with torch.enable_grad():
            g = model.linear(h)
    return g + h


@trap("not wrong")
def grad_node_hook(model, x, edge_index):
    h = model.conv(x, edge_index)
    h.grad_fn.register_hook(lambda gi, go: tuple(None if g is None else g * 3 for g in gi))
    return h


@trap("refused")
def param_grad_read(model, x, edge_index):
    return model.conv(x, edge_index) * (1 if model.scale.grad is None else 2)


@trap("right")
def tied(model, x, edge_index):
    return (
        F.linear(
            model.linear(model.conv(x, edge_index)), model.linear.weight.t(), model.linear.bias
        )
        + model.linear.weight.data.sum()
    )


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
