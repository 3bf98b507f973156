"""Losses that capture what they need: followed where that is sound, refused by name where it is not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCN

from autoplan.errors import TraceError
from autoplan.program.binding import bind
from autoplan.trace.step import trace_step
from tests.trace.graphs import CLASSES, SIZES, masked_loss, node_graph


def captured_losses(model: GCN) -> dict[str, object]:
    weight = torch.rand(CLASSES) + 0.5
    criterion = nn.CrossEntropyLoss(weight=weight)
    return {
        "weight": lambda out, g: F.cross_entropy(out, g.y, weight=weight),
        "module": lambda out, g: criterion(out[g.train_mask], g["y"][g.train_mask]),
        "regulariser": lambda out, g: (
            F.cross_entropy(out, g.y) + 0.1 * sum(p.square().sum() for p in model.parameters())
        ),
        "parameter": lambda out, g: out.square().mean() + model.convs[0].lin.weight.abs().sum(),
        "sizes": lambda out, g: out.square().sum() / g.num_nodes / g.num_edges / g.num_features,
    }


@pytest.mark.parametrize("name", ["weight", "module", "regulariser", "parameter", "sizes"])
def test_losses_with_captured_values(name):
    graph, model = node_graph(), GCN(*SIZES)
    loss = captured_losses(model)[name]
    model.zero_grad()
    expected = loss(model(graph.x, graph.edge_index), graph)
    expected.backward()
    step = trace_step(model, graph, loss)
    assert step.reason is None
    result, _ = bind(step.program, step.module)(*step.schema.tensors(graph))
    result.backward()
    assert torch.allclose(result, expected, rtol=1e-5)
    own = dict(step.module.get_submodule("model").named_parameters())
    for path, parameter in model.named_parameters():
        assert torch.allclose(own[path].grad, parameter.grad, rtol=1e-4, atol=1e-6), path


def test_loss_module():
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.rand(CLASSES))

        def forward(self, out, graph):
            return F.cross_entropy(out * self.scale, graph.y)

    graph, model, loss = node_graph(), GCN(*SIZES), Weighted()
    step = trace_step(model, graph, loss)
    result, out = bind(step.program, step.module)(*step.schema.tensors(graph))
    assert torch.allclose(result, loss(out, graph))
    assert "captured.loss.scale" in step.state_tensors(model)
    assert loss.scale.requires_grad


def test_captured_indices_and_graphs_are_refused():
    graph, model = node_graph(), GCN(*SIZES)
    train_idx = graph.train_mask.nonzero().view(-1)
    with pytest.raises(
        TraceError,
        match=r"the loss '<lambda>' \(test_step_losses\.py:\d+\) captures 'train_idx'.*graph.train_idx = train_idx",
    ):
        trace_step(model, graph, lambda out, g: F.cross_entropy(out[train_idx], g.y[train_idx]))
    with pytest.raises(TraceError, match="reads the graph from the variable 'graph'"):
        trace_step(model, graph, lambda out, g: masked_loss(out, graph))
    with pytest.raises(
        TraceError, match=r"metric 'f1' \(test_step_losses\.py:\d+\) captures 'train_idx'"
    ):
        trace_step(model, graph, masked_loss, metrics={"f1": lambda out, g: out[train_idx].sum()})
