"""What no rule admits runs in R; what looks alike is not taken for the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

from tests.trace.recorded import Convolutions, described, ops, strategies


def between(function):
    """The graph of two SAGE layers with a function of (h, edge_index) between them."""
    return described(Convolutions(gnn.SAGEConv, function))


def only_whole(graph, *names):
    found = ops(graph, *names)
    assert found, names
    return all(set(strategies(op)) == {"R"} for op in found)


def heavy_are_sharded(graph):
    return all(
        "O" in strategies(op) for op in ops(graph, "mm", "addmm", "index_select", "scatter_add")
    )


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda h, e: h.cumsum(0), ("cumsum",)),
        (lambda h, e: h.roll(1, 0), ("roll",)),
        (lambda h, e: h.sort(0)[0], ("sort",)),
        (lambda h, e: h.softmax(0), ("_softmax",)),
        (lambda h, e: h.flip(0), ("flip",)),
        (lambda h, e: h - h.amax(0), ("amax",)),
        (lambda h, e: h / h.std(0), ("std",)),
        (lambda h, e: h + torch.linalg.norm(h, dim=0), ("linalg_vector_norm",)),
        (lambda h, e: torch.nn.functional.pad(h, (0, 0, 1, 0))[1:], ("constant_pad_nd", "slice")),
    ],
)
def test_mixes_rows(function, names):
    graph = between(function)
    assert only_whole(graph, *names[:1]) or only_whole(graph, *names[1:])
    assert heavy_are_sharded(graph)


def test_unknown_op():
    graph = between(lambda h, e: torch.linalg.qr(h)[0])
    assert [op.name for op in graph.unknown_ops] == ["aten.linalg_qr.default"]
    op = graph.unknown_ops[0]
    assert set(strategies(op)) == {"R"}
    assert op.forward.bytes_read.evaluate({"node": 10}) == 10 * 16 * 4
    assert graph.tensors[op.outputs[0]].dims == ("node", 16)
    assert heavy_are_sharded(graph)


def test_product_of_all_pairs():
    graph = between(lambda h, e: (h @ h.t()).softmax(1) @ h * 0.1)
    pairs = [op for op in ops(graph, "mm") if graph.tensors[op.outputs[0]].dims == ("node", "node")]
    assert len(pairs) == 1
    assert set(strategies(pairs[0])) == {"R"}
    assert only_whole(graph, "_softmax")


@pytest.mark.parametrize(
    "index",
    [
        lambda e: (e[0] + 1) % e.max(),
        lambda e: e[0].sort()[0],
        lambda e: e[0].clamp(max=20),
        lambda e: torch.minimum(e[0], e[1]),
        lambda e: torch.where(e[0] < e[1], e[0], e[1]),
        lambda e: e.amax(0),
    ],
)
def test_computed_positions_need_all_rows(index):
    def gathered(h: Tensor, edge_index: Tensor) -> Tensor:
        return h + h[index(edge_index)].mean(0)

    graph = between(gathered)
    read = [op for op in ops(graph, "index") if graph.tensors[op.outputs[0]].dims == ("edge", 16)]
    assert [strategies(op) for op in read] == [{"R": ("RR", "R"), "any": ("RO", "O")}]


def test_positions_as_numbers():
    def encoded(h: Tensor, edge_index: Tensor) -> Tensor:
        place = torch.arange(h.size(0))
        return h + (place.float() / 7).sin().unsqueeze(1) + (place < 9).float().unsqueeze(1)

    graph = between(encoded)
    copy, *_ = [op for op in ops(graph, "_to_copy") if "node" in graph.tensors[op.inputs[0]].dims]
    assert set(strategies(copy)) == {"R"}
    assert only_whole(graph, "lt")
    # from there on they are values like any other
    assert "O" in strategies(ops(graph, "sin")[0])


def test_two_masks_of_one_size_differ():
    def summed(h: Tensor, edge_index: Tensor) -> Tensor:
        positive = h[:, 0] > h[:, 0].median()
        negative = ~positive
        return h + h[positive].sum(0) + h[negative].sum(0)

    graph = between(summed)
    positive, negative = (graph.tensors[op.outputs[0]].dims[0] for op in ops(graph, "index")[:2])
    assert positive != negative
    assert graph.axes[str(positive)].parts == graph.axes[str(negative)].parts == ("node",)


def test_flipped_edges():
    graph = between(lambda h, e: gnn.SimpleConv()(h, e.flip(0)))
    flipped = graph.tensors[ops(graph, "flip")[0].outputs[0]]
    assert flipped.index is not None
    assert flipped.index.ends == ("dst", "src")
    features = [
        op for op in ops(graph, "scatter_add") if len(graph.tensors[op.outputs[0]].dims) == 2
    ]
    # at the flipped edges' source ends, sums travel to the owners
    names = [sorted(strategies(op)) for op in features]
    assert names == [["O", "R"], ["O", "O to sources", "R"], ["O", "R"]]


def test_flattened_rows():
    graph = between(lambda h, e: h.reshape(-1).mul(2).view(-1, 16))
    flat = ops(graph, "mul")[0]
    assert graph.axes[str(graph.tensors[flat.outputs[0]].dims[0])].kind == "blocks"
    assert set(strategies(flat)) == {"R", "O"}
    # columns of rows: a shard's do not lie together
    graph = between(lambda h, e: h.t().reshape(-1).mul(2).view(16, -1).t())
    flat = ops(graph, "mul")[0]
    assert graph.axes[str(graph.tensors[flat.outputs[0]].dims[0])].kind == "concat"
    graph = between(lambda h, e: h.repeat(1, 2).view(-1, 8).mul(2).view(8, -1).t().sum() + h)
    (apart,) = [op for op in ops(graph, "view") if graph.tensors[op.outputs[0]].dims[0] == 8]
    assert set(strategies(apart)) == {"R"}
    assert heavy_are_sharded(graph)


def test_squeezing_rows_away():
    graph = between(lambda h, e: h * h.sum(1, keepdim=True).squeeze().unsqueeze(1))
    assert set(strategies(ops(graph, "squeeze")[0])) == {"R"}
    graph = between(lambda h, e: h * h.sum(1, keepdim=True).squeeze(-1).unsqueeze(1))
    assert "O" in strategies(ops(graph, "squeeze")[0])


def test_concrete_programs_stay_whole():
    graph = described(Convolutions(gnn.SAGEConv), generality="concrete", reason="because")
    assert all(set(strategies(op)) == {"R"} for op in graph.ops)
    assert graph.reason == "because"


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(context, h):
        return h.view_as(h)

    @staticmethod
    def backward(context, gradient):
        return -gradient


def test_opaque_function():
    graph = between(lambda h, e: Reversed.apply(h))
    assert "Reversed" in (graph.single_only or "")
