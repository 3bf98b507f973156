"""FLOPs, bytes, rows and depth of gather, scatter, softmax and sparse products in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import softmax

from autoplan.opgraph import IndexInto, OpGraph, TensorMeta, Work
from autoplan.symbolic import most
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import AxisTable
from autoplan.trace.rules.call import Call
from autoplan.trace.rules.numbers import Numbers
from tests.trace import layers
from tests.trace.recorded import CLASSES, FEATURES, described, ops

N, E, K = 1000, 7000, FEATURES
IN_DEGREE, OUT_DEGREE = most("edge", "dst", "node"), most("edge", "src", "node")
SIZES = {"node": N, "edge": E, IN_DEGREE: 64, OUT_DEGREE: 256}
FLOAT, LONG = 4, 8


class Apply(nn.Module):
    """A function of (features, edges, weights of as many columns as there are features)."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.lin = nn.Linear(FEATURES, FEATURES, bias=False)
        self.out = nn.Linear(FEATURES, CLASSES)
        self.function = function

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.function(self.lin(x), edge_index))


def of(function: Callable[..., Tensor]) -> OpGraph:
    return described(Apply(function))


def figures(each: Work, sizes: dict[str, Any] | None = None) -> dict[str, float]:
    """The numbers of some work, without what is zero."""
    values = sizes or SIZES
    found = {
        "flops": each.flops,
        "moves": each.moves,
        "read": each.bytes_read,
        "written": each.bytes_written,
        "nnz": each.nnz,
        "row": each.row_width_bytes,
        "cells": each.cells,
    }
    numbers = {name: polynomial.evaluate(values) for name, polynomial in found.items()}
    numbers["depth"] = each.depth.evaluate(values)
    return {name: number for name, number in numbers.items() if number}


def messages(h: Tensor, edge_index: Tensor) -> Tensor:
    rows = h.index_select(0, edge_index[0])
    return torch.zeros_like(h).index_add(0, edge_index[1], rows)


def test_gather():
    gather = ops(of(messages), "index_select")[0]
    moved = E * K * FLOAT
    assert figures(gather.forward) == {
        "moves": E * K,
        "read": moved + E * LONG,
        "written": moved,
        "nnz": E,
        "row": K * FLOAT,
        "cells": E * N,
        "depth": 1,
    }
    assert gather.backward.kind == "scatter"
    assert figures(gather.backward) == {
        "flops": E * K,
        "read": moved + E * LONG,
        "written": N * K * FLOAT,
        "nnz": E,
        "row": K * FLOAT,
        "cells": E * N,
        # rows are read along edges out of a node: its gradient adds up as many
        "depth": 1 + 8,
    }


def test_scatter():
    scatter = ops(of(messages), "index_add")[0]
    moved = E * K * FLOAT
    common = {"nnz": E, "row": K * FLOAT, "cells": E * N}
    assert figures(scatter.forward) == {
        "flops": E * K,
        "read": moved + E * LONG,
        "written": N * K * FLOAT,
        "depth": 1 + 6,
        **common,
    }
    assert figures(scatter.backward) == {
        "moves": E * K,
        "read": moved + E * LONG,
        "written": moved,
        "depth": 1,
        **common,
    }


def test_a_table_of_positions_gathers_each_of_them():
    def pairs(h: Tensor, edge_index: Tensor) -> Tensor:
        return messages(h, edge_index) + h[edge_index.t()].sum(1).mean()

    gather = next(op for op in ops(of(pairs), "index") if len(op.forward.nnz.terms))
    assert figures(gather.forward)["nnz"] == 2 * E
    assert figures(gather.forward)["row"] == K * FLOAT


def test_rows_that_are_put_are_moved():
    def put(h: Tensor, edge_index: Tensor) -> Tensor:
        rows = torch.zeros_like(h).index_copy(0, edge_index[1], h.index_select(0, edge_index[0]))
        return h + rows

    copy = ops(of(put), "index_copy")[0]
    assert "flops" not in figures(copy.forward)
    assert figures(copy.forward)["moves"] == E * K
    assert figures(copy.forward)["depth"] == 1


def test_softmax_of_rows():
    graph = of(lambda h, edge_index: messages(h, edge_index).softmax(1))
    dense = ops(graph, "_softmax")[0]
    table = N * K * FLOAT
    # largest, difference, exponential (of eight), sum, quotient
    expected = {"flops": 12 * N * K, "read": table, "written": table}
    trees = 2 * (1 + torch.tensor(float(K)).log2().item())
    assert figures(dense.forward) == pytest.approx({**expected, "depth": trees})
    back = {"flops": 4 * N * K, "read": 2 * table, "written": table, "depth": trees / 2}
    assert figures(dense.backward) == pytest.approx(back)


def test_softmax_over_the_edges_of_a_node():
    def attention(h: Tensor, edge_index: Tensor) -> Tensor:
        scores = h.index_select(0, edge_index[0])
        weights = softmax(scores, edge_index[1], num_nodes=h.size(0))
        return torch.zeros_like(h).index_add(0, edge_index[1], weights)

    graph = of(attention)
    inside = [op for op in graph.ops if "_softmax.py" in op.where or "_scatter.py" in op.where]
    kinds = [op.forward.kind for op in inside]
    assert kinds.count("scatter") == kinds.count("gather") == 2
    flops = sum(op.forward.flops.evaluate(SIZES) for op in inside)
    # largest, difference, exponential (of eight), sum and quotient of each edge; a small number added to each node's sum
    assert flops == E * K * (1 + 1 + 8 + 1 + 1) + N * K
    rows = sum(op.forward.nnz.evaluate(SIZES) for op in inside)
    assert rows == 4 * E
    deep = [op.forward.depth.evaluate(SIZES) for op in inside if op.forward.kind == "scatter"]
    assert deep == [1 + 6, 1 + 6]


def test_self_loops_add_one_to_the_degree():
    graph = layers.described(
        gnn.GCNConv(FEATURES, CLASSES),
        Data(x=torch.randn(90, FEATURES), edge_index=layers.edges(90, 400)),
        training=False,
    )
    scatter = ops(graph, "scatter_add")[-1]
    sizes = {IN_DEGREE: 63}
    assert scatter.forward.depth.evaluate(sizes) == 1 + 6


def test_readouts_are_as_deep_as_the_largest_graph():
    torch.manual_seed(0)
    graphs = [
        Data(x=torch.randn(n, FEATURES), edge_index=layers.edges(n, 3 * n), y=torch.tensor([n % 2]))
        for n in (5, 8, 6, 11, 7, 9) * 4
    ]

    class Readout(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(FEATURES, 2)

        def forward(self, x: Tensor, batch: Tensor) -> Tensor:
            return gnn.global_add_pool(self.lin(x), batch)

    graph = layers.described(
        Readout(), Batch.from_data_list(graphs), lambda out, data: F.cross_entropy(out, data.y)
    )
    pooled = ops(graph, "scatter_add")[0]
    assert pooled.forward.depth.evaluate({most("node", "self", "graph"): 32}) == 1 + 5
    assert pooled.phase == "other"


def sparse_call(*, values_want: bool, dense_wants: bool) -> tuple[Call, list[TensorMeta]]:
    """A product of edges as a matrix [node, node] and features, in parts: rows, columns, values, features."""
    axes = AxisTable.of([{"node": 10, "edge": 40}, {"node": 13, "edge": 55}])

    def tensor(name: str, dims: tuple[str | int, ...], dtype: str, **more: Any) -> TensorMeta:
        return TensorMeta(name, dims, dtype, "op", **more)

    parts = [
        tensor("v1", ("edge",), "int64", index=IndexInto(("node",), ("dst",))),
        tensor("v2", ("edge",), "int64", index=IndexInto(("node",), ("src",))),
        tensor("v3", ("edge",), "float32", requires_grad=values_want),
        tensor("v4", ("node", K), "float32", requires_grad=dense_wants),
    ]
    shapes = tuple(((n, K),) for n in (10, 13))
    return (
        Call(
            "autoplan.spmm.default", "spmm", {}, tuple(parts), shapes, ("float32",), axes,
            Numbers(lambda name: (), axes.axes), {}, {}, {},
        ),
        parts,
    )  # fmt: skip


@pytest.mark.parametrize("values_want", [True, False])
@pytest.mark.parametrize("dense_wants", [True, False])
def test_sparse_product(values_want: bool, dense_wants: bool):
    call, (rows, columns, values, dense) = sparse_call(
        values_want=values_want, dense_wants=dense_wants
    )
    forward, backward = work.spmm(
        call, dense, ("node", K), (rows, columns, values), values.elements, (rows, columns)
    )
    stored = E * (LONG + LONG + FLOAT)
    table = N * K * FLOAT
    assert figures(forward) == {
        "flops": 2 * E * K,
        "read": stored + table,
        "written": table,
        "nnz": E,
        "row": K * FLOAT,
        "cells": N * N,
        "depth": 1 + 6,
    }
    found = figures(backward)
    assert found.get("flops", 0) == 2 * E * K * (values_want + dense_wants)
    assert found.get("written", 0) == E * FLOAT * values_want + table * dense_wants
    assert found["read"] == stored + table + table * values_want
    assert found["depth"] == 1 + 8
