from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GCNConv, Linear, SGConv

from autoplan.errors import TraceError
from autoplan.trace.copies import copy_model, lazy_parameters, random_state_kept
from tests.trace.graphs import node_graph


def test_random_state_is_put_back_also_after_an_error():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()

    def draw() -> None:
        with random_state_kept():
            torch.manual_seed(5)
            random.random()
            np.random.rand()
            raise KeyError

    with pytest.raises(KeyError):
        draw()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before[1:]


def test_modes():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()
    assert [m.training for m in copy_model(model, training=True).modules()] == [True, True, False]
    assert not any(m.training for m in copy_model(model, training=False).modules())
    model.eval()
    assert all(m.training for m in copy_model(model, training=True).modules())
    assert not any(m.training for m in model.modules())


def test_caches_are_cleared_on_the_copy_only():
    model, graph = (
        nn.ModuleList([GCNConv(20, 4, cached=True), SGConv(20, 4, K=2, cached=True)]),
        node_graph(),
    )
    expected = [conv(graph.x, graph.edge_index) for conv in model]
    cached = model[0]._cached_edge_index, model[1]._cached_x
    copied = copy_model(model, training=True)
    for conv, wanted in zip(copied, expected, strict=True):
        assert not conv.cached
        assert torch.equal(conv(graph.x, graph.edge_index), wanted)
    assert copied[0]._cached_edge_index is None
    assert copied[1]._cached_x is None
    assert model[0].cached
    assert model[0]._cached_edge_index is cached[0]
    assert model[1]._cached_x is cached[1]


def test_activations_left_on_the_model_do_not_hinder():
    model = GCN(20, 8, 2, 6)
    model.kept = model(node_graph().x, node_graph().edge_index)
    assert torch.equal(copy_model(model, training=True).kept, model.kept)


def test_frozen_and_tied_parameters_stay_so():
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    copied = copy_model(model, training=True)
    assert copied[1].weight is copied[0].weight
    assert copied[0].weight is not model[0].weight
    assert not copied[0].bias.requires_grad


def test_lazy_parameters_are_named():
    model = nn.ModuleDict({"a": Linear(-1, 4), "b": nn.Linear(4, 4), "c": nn.LazyLinear(3)})
    names = ("a.weight", "c.weight", "c.bias")
    assert lazy_parameters(model) == names
    assert lazy_parameters(copy_model(model, training=True)) == names


def test_wrapped_and_uncopyable_models_are_refused():
    with pytest.raises(
        TraceError, match=r"wrapped in DataParallel; give the model itself \(model.module\)"
    ):
        copy_model(nn.DataParallel(nn.Linear(2, 2)), training=True)
    compiled = nn.Sequential()
    compiled._orig_mod = nn.Linear(2, 2)  # as torch.compile wraps it
    with pytest.raises(TraceError, match="_orig_mod"):
        copy_model(compiled, training=True)
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(TraceError, match=r"Linear cannot be copied \(TypeError: .*lock"):
        copy_model(model, training=True)
