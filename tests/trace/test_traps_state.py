"""Traps: state that a pass keeps or changes, in tensors and in Python."""

from __future__ import annotations

import collections
import functools
import itertools
import random
import time

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.trace.trapping import Traps

trap = Traps()


COUNT = {"n": 0}
TABLE = torch.linspace(0, 1, 8)


@trap("refused", tau=1.0)
def tau_decay(model, x, edge_index):
    model.tau *= 0.9
    return model.conv(x, edge_index) / model.tau


@trap("refused", calls=0)
def counter(model, x, edge_index):
    model.calls += 1
    return model.conv(x, edge_index) if model.calls < 20 else model.linear(x)


@trap("refused")
def cached_gcn(model, x, edge_index):
    return model.cached(x, edge_index)


@trap("right")
def view_inplace(model, x, edge_index):
    h = model.conv(x, edge_index)
    h[:, 0].mul_(2)
    h[0] += 1
    h.view(-1)[::2].add_(3.0)
    h[h > 3] = 0
    return h


@trap("not wrong")
def reseed(model, x, edge_index):
    torch.manual_seed(3)
    return F.dropout(model.conv(x, edge_index))


@trap("refused")
def switches_mode(model, x, edge_index):
    model.train(not model.training)
    return model.conv(x, edge_index)


@trap("refused")
def random_module(model, x, edge_index):
    return model.conv(x, edge_index) if random.random() < 2 else model.linear(x)


@trap("refused")
def closure_tensor(model, x, edge_index):
    return model.conv(x, edge_index) * TABLE


@trap("right", freq=torch.linspace(0, 1, 8))
def attr_tensor(model, x, edge_index):
    return model.conv(x, edge_index) * model.freq


@trap("right", last=None)
def stash(model, x, edge_index):
    model.last = model.conv(x, edge_index)
    return model.linear(model.last)


@trap("refused", last=None)
def recurrent(model, x, edge_index):
    h = model.conv(x, edge_index).mean(0) if model.last is None else model.last
    model.last = model.linear(h).detach()
    return model.conv(x, edge_index) + model.last


@trap("refused", last=0)
def last_size(model, x, edge_index):
    k = model.last
    model.last = x.size(0)
    return model.conv(x, edge_index) * (1 + k)


@trap("right")
def buffer_inplace(model, x, edge_index):
    h = model.conv(x, edge_index)
    with torch.no_grad():
        model.memory.mul_(0.9).add_(h.mean(0), alpha=0.1)
    return h * model.memory


@trap("refused")
def buffer_rebind(model, x, edge_index):
    model.memory = model.memory * 0.9
    return model.conv(x, edge_index) * model.memory


@trap("refused")
def global_counter(model, x, edge_index):
    COUNT["n"] += 1
    return model.conv(x, edge_index) * (1 if COUNT["n"] < 50 else 2)


@trap("right")
def batch_norm(model, x, edge_index):
    return model.norm(model.conv(x, edge_index)).relu()


@trap("guarded")
def late_guard(model, x, edge_index):
    h = model.norm(model.conv(x, edge_index))
    return h if edge_index.max() > 35 else h * 2


@trap("right")
def set_state_free(model, x, edge_index):
    return model.conv(x, edge_index).mul(model.memory[:4].repeat(2))


@trap("right", freq=torch.linspace(1, 2, 8))
def attr_inplace(model, x, edge_index):
    model.freq.mul_(0.9)
    return model.conv(x, edge_index) * model.freq


@trap("refused", it=itertools.count())
def iterator(model, x, edge_index):
    return model.conv(x, edge_index) if next(model.it) < 30 else model.linear(x)


@trap("refused", gen=np.random.default_rng(0))
def numpy_generator(model, x, edge_index):
    return model.conv(x, edge_index) if model.gen.random() < 2 else model.linear(x)


@trap("right", bn2=nn.BatchNorm1d(8, momentum=None))
def cumulative_bn(model, x, edge_index):
    return model.bn2(model.conv(x, edge_index))


@trap("right", every=nn.BatchNorm1d(8))
def every_third(model, x, edge_index):
    h = model.every(model.conv(x, edge_index))
    return h * 2 if model.every.num_batches_tracked.item() % 7 == 0 else h


@trap("refused")
def time_dependent(model, x, edge_index):
    return model.conv(x, edge_index) * time.perf_counter()


def count_in_default(history=[]):  # noqa: B006
    history.append(1)
    return 1 if len(history) < 100 else 2


@trap("refused")
def mutable_default(model, x, edge_index):
    return model.conv(x, edge_index) * count_in_default()


def count_in_attribute():
    count_in_attribute.calls = getattr(count_in_attribute, "calls", 0) + 1
    return 1 if count_in_attribute.calls < 100 else 2


@trap("refused")
def function_attribute(model, x, edge_index):
    return model.conv(x, edge_index) * count_in_attribute()


@trap("refused", factors=iter([1.0] * 100 + [2.0] * 100))
def list_iterator(model, x, edge_index):
    return model.conv(x, edge_index) * next(model.factors)


class Counter:
    calls = 0

    def factor(self):
        Counter.calls += 1
        return 1 if Counter.calls < 100 else 2


@trap("refused", counter=Counter())
def class_attribute(model, x, edge_index):
    return model.conv(x, edge_index) * model.counter.factor()


@trap("refused", recent=collections.deque([0.0], maxlen=200))
def deque(model, x, edge_index):
    model.recent.append(1.0)
    return model.conv(x, edge_index) * (1 if len(model.recent) < 100 else 2)


@functools.lru_cache
def weights_of(width):
    return torch.linspace(0, 1, width)


@trap("not wrong")
def cached_function(model, x, edge_index):
    return model.conv(x, edge_index) * weights_of(8)


TOTAL = 0


@trap("refused")
def global_rebound(model, x, edge_index):
    global TOTAL
    TOTAL += 1
    return model.conv(x, edge_index) * (1 if TOTAL < 100 else 2)


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
