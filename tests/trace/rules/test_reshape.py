"""Rows merged with heads or with stacked tensors, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.trace.recorded import Convolutions, described, ops, strategies


def between(function):
    return described(Convolutions(gnn.SAGEConv, function))


class WithLinear(Convolutions):
    """A linear layer between the convolutions."""

    def __init__(self, width: int, function: Callable[[Tensor, nn.Linear], Tensor]) -> None:
        super().__init__(gnn.SAGEConv, lambda h, edge_index: function(h, self.linear))
        self.linear = nn.Linear(width, width)


def test_heads_in_one_dimension_with_rows():
    def attention(h: Tensor, edge_index: Tensor) -> Tensor:
        q = h.view(-1, 4, 2, 2)
        return (torch.softmax(q @ q.transpose(-1, -2), -1) @ q).reshape(-1, 16)

    graph = between(attention)
    products = ops(graph, "bmm")
    assert len(products) == 2
    for op in products:
        axis = graph.tensors[op.outputs[0]].dims[0]
        assert axis == "node*4"
        assert graph.axes["node*4"].rows == graph.axes["node"].rows * 4
        assert strategies(op)["O"] == ("OO" if len(op.inputs) == 2 else "O", "O")
    assert all("O" in strategies(op) for op in ops(graph, "view", "_unsafe_view"))


def test_a_linear_layer_on_steps_of_time():
    graph = described(WithLinear(4, lambda h, linear: linear(h.view(-1, 4, 4)).flatten(1)))
    (op,) = [op for op in ops(graph, "addmm") if graph.tensors[op.outputs[0]].dims[0] == "node*4"]
    assert "O" in strategies(op)


def test_stacked_tensors():
    graph = described(WithLinear(16, lambda h, linear: linear(torch.stack([h, h * 2])).sum(0)))
    (op,) = [op for op in ops(graph, "addmm") if "concat" in str(graph.tensors[op.outputs[0]].dims)]
    assert graph.tensors[op.outputs[0]].dims[0] == "concat(node,node)"
    assert "O" in strategies(op)
    (total,) = [op for op in ops(graph, "sum") if len(graph.tensors[op.inputs[0]].dims) == 3]
    assert graph.tensors[total.inputs[0]].dims == (2, "node", 16)
    assert "O" in strategies(total)


def test_what_does_not_lie_row_by_row_stays_whole():
    graph = between(lambda h, e: h.t().reshape(-1, 16).mul(2).cumsum(0) * h.sum())
    (apart,) = [op for op in ops(graph, "_unsafe_view", "view") if "lambda" in op.where]
    assert graph.tensors[apart.inputs[0]].dims == (16, "node")
    assert set(strategies(apart)) == {"R"}
