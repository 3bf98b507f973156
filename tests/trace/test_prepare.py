from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN

from autoplan.errors import TraceError
from autoplan.program.binding import bind
from autoplan.trace.prepare import prepare_step
from autoplan.trace.step import trace_step
from tests.trace.graphs import CLASSES, FEATURES, node_graph

SIZES = (FEATURES, 16, 2, CLASSES)


def test_loss_must_be_one_number():
    with pytest.raises(TraceError, match=r"the loss is float32 \[84\]; it must be one number"):
        prepare_step(GCN(*SIZES), node_graph(), lambda out, g: out.sum(dim=1))
    with pytest.raises(TraceError, match=r"the loss is a float, which has no gradient"):
        prepare_step(GCN(*SIZES), node_graph(), lambda out, g: 3.0)


def test_half_precision_features_name_layer_and_dtypes():
    graph = node_graph()
    graph.x = graph.x.half()
    with pytest.raises(
        TraceError, match=r"convs\.0\.lin \(Linear\) fails .*x is float16; model: float32"
    ):
        trace_step(GCN(*SIZES), graph)


def test_wrong_width_names_the_layer():
    with pytest.raises(TraceError, match=r"convs\.0\.lin \(Linear\) fails on a sample of 84 nodes"):
        trace_step(GCN(7, 16, 2, CLASSES), node_graph())


class WithTable(nn.Module):
    """Adds a table with a row for each of the graph's 300 nodes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        table = torch.randn(300, FEATURES)
        if kind == "buffer":
            self.register_buffer("table", table)
        else:
            self.table = nn.Parameter(table) if kind == "parameter" else table

    def forward(self, x, edge_index):
        return x + self.table


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_table_with_a_row_per_node_is_cut_to_samples(kind):
    model, graph = WithTable(kind), node_graph()
    kept = model.table
    step = trace_step(model, graph, lambda out, g: out.square().mean())
    assert step.program is not None, step.reason
    assert model.table is kept
    run = bind(step.program, step.module)
    _, out = run(*step.schema.tensors(graph))
    assert torch.equal(out, model(graph.x, graph.edge_index))


def test_table_that_is_no_parameter_is_named():
    with pytest.raises(TraceError, match=r"'table' has an entry per node.*torch.arange"):
        trace_step(WithTable("attribute"), node_graph())


def test_errors_in_the_loss_are_the_losss():
    with pytest.raises(
        TraceError,
        match=r"the loss '<lambda>' \(test_prepare\.py:\d+\), called as f\(out, graph\), fails on a sample",
    ):
        trace_step(GCN(*SIZES), node_graph(), lambda out, g: out @ out)


def test_larger_samples_where_the_model_needs_them():
    class TopNodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(FEATURES, CLASSES)

        def forward(self, x, edge_index):
            h = self.lin(x)
            return h + h.topk(20, dim=0)[0].mean(0)

    step = trace_step(TopNodes(), node_graph())

    assert step.reason is None
    assert min(rows["node"] for rows in step.sample_rows) >= 20
