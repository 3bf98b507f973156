from __future__ import annotations

import torch
from torch_geometric import nn as gnn

from autoplan.trace import alias
from tests.trace.recorded import Convolutions, described, ops, record, strategies


def between(function):
    return Convolutions(gnn.SAGEConv, function)


def test_written_while_a_view_lives():
    def body(h, edge_index):
        doubled = h * 2
        column = doubled[:, 0]
        doubled.mul_(3)
        return doubled + column.unsqueeze(1)

    program = record(between(body))
    shared = alias.whole_only(program)
    # the product, h[:, 0] and the slice that it goes through
    assert len(shared) == 3
    graph = described(between(body))
    touched = [op for op in ops(graph, "mul") if op.outputs[0].endswith(".1")]
    assert [set(strategies(op)) for op in touched] == [{"R"}]
    (seen,) = [op for op in ops(graph, "select") if op.inputs[0] in touched[0].inputs]
    assert set(strategies(seen)) == {"R"}
    heavy = ops(graph, "mm", "addmm", "index_select", "scatter_add")
    assert all("O" in strategies(op) for op in heavy)


def test_written_through_a_view():
    def body(h, edge_index):
        doubled = h * 2
        doubled[:, 0].zero_()
        return doubled

    graph = described(between(body))
    (zeroed,) = ops(graph, "zero")
    assert set(strategies(zeroed)) == {"R"}
    # what is read under the other name afterwards passes its gradient on
    doubled = next(op for op in ops(graph, "mul") if "body" in op.where)
    assert set(strategies(doubled)) == {"R"}
    assert graph.tensors[doubled.outputs[0]].reaches_loss


def test_written_where_nothing_else_looks():
    graph = described(between(lambda h, e: (h * 2).relu_() * 3))
    (relu,) = [op for op in ops(graph, "relu") if op.name == "aten.relu_.default"]
    assert relu.outputs[0] == f"{relu.inputs[0]}.1"
    assert {"R", "O", "H"} == set(strategies(relu))


def test_the_models_own_tensors_are_written_whole():
    class Counting(Convolutions):
        def __init__(self):
            super().__init__(gnn.SAGEConv, lambda h, e: h)
            self.register_buffer("count", torch.zeros(16))
            self.between = self.counted

        def counted(self, h, edge_index):
            with torch.no_grad():
                self.count.add_(h.detach().sum(0))
            return h + self.count

    graph = described(Counting())
    (added,) = [op for op in ops(graph, "add") if op.name == "aten.add_.Tensor"]
    assert set(strategies(added)) == {"R"}
    assert graph.tensors[added.inputs[0]].source == "model.count"
    assert added.outputs[0] == f"{added.inputs[0]}.1"


def test_pieces_of_one_split_are_written_apart():
    class Recurrent(Convolutions):
        def __init__(self):
            super().__init__(gnn.SAGEConv, lambda h, e: self.cell(h * 2, h))
            self.cell = torch.nn.GRUCell(16, 16)

    graph = described(Recurrent())
    gates = [op for op in ops(graph, "addmm") if graph.tensors[op.outputs[0]].dims == ("node", 48)]
    assert len(gates) == 2
    assert all("O" in strategies(op) for op in gates)


def test_a_piece_of_a_piece_is_not_apart_from_it():
    def body(h, edge_index):
        left, right = torch.unsafe_chunk(h * 2, 2, 1)  # as a GRU cell does
        column = left[:, 0]
        left.mul_(3)
        return torch.cat([left, right], 1) + column.unsqueeze(1)

    graph = described(between(body))
    written = [op for op in ops(graph, "mul") if op.name == "aten.mul_.Tensor"]
    assert [set(strategies(op)) for op in written] == [{"R"}]
