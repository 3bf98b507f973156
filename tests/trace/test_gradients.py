"""Where gradients go decides what is communicated in backward, so it has to be exact."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric import nn as gnn

from tests.trace.recorded import CLASSES, FEATURES, Convolutions, described, ops


def trained(graph):
    return {
        meta.source
        for meta in graph.tensors.values()
        if meta.origin == "parameter" and meta.reaches_loss
    }


def test_no_grad_part():
    def body(h, edge_index):
        with torch.no_grad():
            weight = gnn.SimpleConv()(h, edge_index).sigmoid()
        return gnn.SimpleConv()(h, edge_index) * weight

    graph = described(Convolutions(gnn.SAGEConv, body))
    _, without, with_gradient, _ = ops(graph, "index_select")
    assert without.inputs[0] == with_gradient.inputs[0]
    assert without.differentiates == ()
    assert without.backward is None
    assert with_gradient.differentiates == (with_gradient.inputs[0],)
    assert graph.tensors[without.inputs[0]].reaches_loss


def test_features_want_no_gradient():
    graph = described(Convolutions(gnn.SAGEConv))
    first, second = ops(graph, "index_select")
    assert first.differentiates == ()
    assert second.differentiates == (second.inputs[0],)


def test_detached():
    graph = described(Convolutions(gnn.SAGEConv, lambda h, e: h * h.detach().mean(0)))
    (mean,) = ops(graph, "mean")
    assert mean.differentiates == ()
    assert not graph.tensors[mean.outputs[0]].requires_grad


def test_parameters_without_gradient():
    class Extra(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = gnn.SAGEConv(FEATURES, CLASSES)
            self.idle = nn.Linear(3, 3)
            self.cut = nn.Linear(FEATURES, CLASSES)

        def forward(self, x, edge_index):
            return self.used(x, edge_index) + self.cut(x).argmax(1, keepdim=True)

    graph = described(Extra())
    used = {"model.used.lin_l.weight", "model.used.lin_l.bias", "model.used.lin_r.weight"}
    assert trained(graph) == used
    graph = described(Extra(), frozen={"model.used.lin_l.bias"})
    assert trained(graph) == used - {"model.used.lin_l.bias"}


def test_evaluation_reaches_nothing():
    graph = described(Convolutions(gnn.SAGEConv), training=False)
    assert trained(graph) == set()
    assert all(op.backward is None and not op.saved for op in graph.ops)
    assert all(
        each.backward == 0 for op in graph.ops for s in op.strategies for each in s.collectives
    )


def test_saved_by_the_owner_of_the_storage():
    graph = described(Convolutions(gnn.SAGEConv))
    edge_index = next(m.name for m in graph.tensors.values() if m.source == "edge_index")
    _, second = ops(graph, "index_select")
    # the index is a view of the graph's own edge_index: nothing more is kept
    assert second.saved == (edge_index,)
    relu = ops(graph, "relu")[0]
    assert relu.saved == relu.outputs
