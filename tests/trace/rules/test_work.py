"""Costs in closed form."""

from __future__ import annotations

from torch_geometric import nn as gnn

from tests.trace.recorded import Convolutions, described, ops

ROWS = {"node": 1000, "edge": 7000}


def test_matrix_product():
    graph = described(Convolutions(gnn.SAGEConv))
    product = next(op for op in ops(graph, "mm") if graph.tensors[op.inputs[0]].dims[-1] == 16)
    assert product.forward.kind == "dense"
    assert product.forward.flops.evaluate(ROWS) == 2 * 1000 * 16 * 5
    assert product.forward.bytes_read.evaluate(ROWS) == 4 * (1000 * 16 + 16 * 5)
    assert product.forward.bytes_written.evaluate(ROWS) == 4 * 1000 * 5
    assert product.backward.flops.evaluate(ROWS) == 2 * 2 * 1000 * 16 * 5
    # the features want no gradient: one product only
    first = next(op for op in ops(graph, "mm") if graph.tensors[op.inputs[0]].dims[-1] == 12)
    assert first.backward.flops.evaluate(ROWS) == 2 * 1000 * 12 * 16


def test_gather_and_scatter():
    graph = described(Convolutions(gnn.GraphConv))
    gather = next(op for op in ops(graph, "index_select") if op.differentiates)
    assert gather.forward.kind == "gather"
    assert gather.forward.nnz.evaluate(ROWS) == 7000
    assert gather.forward.row_width_bytes.evaluate(ROWS) == 16 * 4
    assert gather.backward.kind == "scatter"
    assert gather.backward.nnz.evaluate(ROWS) == 7000
    scatter = next(op for op in ops(graph, "scatter_add") if op.differentiates)
    assert scatter.forward.kind == "scatter"
    assert scatter.forward.flops.evaluate(ROWS) == 7000 * 16
    assert scatter.forward.row_width_bytes.evaluate(ROWS) == 16 * 4
    # the index is an expanded column: read once, not once a feature
    assert scatter.forward.bytes_read.evaluate(ROWS) == 7000 * 16 * 4 + 7000 * 8
    assert scatter.backward.kind == "gather"


def test_elementwise_and_views():
    graph = described(Convolutions(gnn.SAGEConv))
    relu = ops(graph, "relu")[0]
    assert relu.forward.flops.evaluate(ROWS) == 1000 * 16
    assert relu.forward.bytes_read.evaluate(ROWS) == 1000 * 16 * 4
    view = ops(graph, "t")[0]
    assert view.forward.kind == "view"
    assert not view.forward.bytes_written.terms


def test_selected_rows_are_a_share():
    graph = described(Convolutions(gnn.SAGEConv))
    axis = next(axis for axis in graph.axes.values() if axis.kind == "select")
    share = axis.rows.evaluate(ROWS) / ROWS["node"]
    assert 0.3 < share < 0.5
