"""The states that rules admit, by family."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.nn.models import GIN

from autoplan.opgraph import Collective
from tests.trace.recorded import (
    CLASSES,
    FEATURES,
    Convolutions,
    described,
    ops,
    strategies,
)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(x)


def with_loss(loss):
    return described(Linear(), loss)


def kernels(op):
    return {s.name: s.kernel for s in op.strategies}


def test_gathers_by_end():
    graph = described(Convolutions(gnn.SAGEConv, lambda h, e: h + h[e[0]].mean(0) - h[e[1]].sum(0)))
    source, target = ops(graph, "index")[:2]
    assert strategies(source)["O"] == ("HO", "O")
    assert strategies(target)["O"] == ("OO", "O")


def test_listed_nodes():
    graph = with_loss(lambda out, y, mask, idx: F.cross_entropy(out[idx], y[idx]))
    read = ops(graph, "index")
    assert [strategies(op)["O"] for op in read] == [("OO", "O")] * 2
    (loss,) = ops(graph, "nll_loss_forward")
    assert strategies(loss)["O"] == ("OO", "RR")
    assert kernels(loss)["O"] == "nll_loss"
    assert loss.strategies[1].collectives == (Collective(2, "float32", 1, 1),)


def test_weighted_cross_entropy():
    graph = with_loss(lambda out, y, mask, idx: F.cross_entropy(out, y, torch.ones(CLASSES)))
    assert strategies(ops(graph, "nll_loss_forward")[0])["O"] == ("OOR", "RR")


def test_losses_by_mean():
    graph = with_loss(lambda out, y, mask, idx: F.mse_loss(out.sum(1)[mask], y[mask].float()))
    (loss,) = ops(graph, "mse_loss")
    assert strategies(loss)["O"] == ("OO", "S")
    assert kernels(loss)["O"] == "mean_loss"
    # the rows of a mask are counted
    assert loss.strategies[1].collectives == (Collective(1, "int64"),)
    graph = with_loss(
        lambda out, y, mask, idx: F.binary_cross_entropy_with_logits(out[:, 0], mask.float())
    )
    (loss,) = ops(graph, "binary_cross_entropy_with_logits")
    assert loss.strategies[1].collectives == ()


def test_accuracy():
    graph = with_loss(lambda out, y, mask, idx: (out.argmax(-1) == y)[mask].float().mean())
    (mean,) = ops(graph, "mean")
    assert strategies(mean)["O"] == ("O", "S")
    assert kernels(mean)["O"] == "mean_over_rows"
    assert all("O" in strategies(op) for op in ops(graph, "argmax", "eq", "index"))


def test_partial_sums():
    def loss(out: Tensor, y: Tensor, mask: Tensor, idx: Tensor) -> Tensor:
        total = (out.t() @ out).sum() * 2 - out.sum(0).sum() / mask.sum()
        return total.square()

    graph = with_loss(loss)
    product = [op for op in ops(graph, "mm") if graph.tensors[op.outputs[0]].dims == (5, 5)]
    assert strategies(product[0])["O"] == ("OO", "S")
    assert strategies(ops(graph, "mul")[0])["S"] == ("S", "S")
    assert strategies(ops(graph, "sub")[0])["S"] == ("SS", "S")
    assert strategies(ops(graph, "div")[0])["S"] == ("SR", "S")
    assert "S" not in strategies(ops(graph, "pow")[0])


def test_a_bias_is_added_once():
    graph = with_loss(lambda out, y, mask, idx: (out.sum(0) + torch.ones(CLASSES)).sum())
    (addition,) = ops(graph, "add")
    assert set(strategies(addition)) == {"R"}


def test_batch_norm():
    graph = described(GIN(FEATURES, 16, 2, CLASSES, norm="batch_norm"))
    norm = ops(graph, "native_batch_norm")[0]
    sharded = {s.name: s for s in norm.strategies}["O"]
    assert sharded.kernel == "sync_batch_norm"
    assert "".join(sharded.inputs) == "ORRRR"
    # the output, two statistics, and the running ones, which the schema hides
    assert "".join(sharded.outputs) == "ORRRR"
    assert [name.endswith(".1") for name in norm.outputs] == [False] * 3 + [True] * 2
    assert sharded.collectives == (Collective(16, "float32", 2, 2),)
    graph = described(GIN(FEATURES, 16, 2, CLASSES, norm="batch_norm"), training=False)
    norm = ops(graph, "native_batch_norm")[0]
    assert kernels(norm) == {"R": "local", "O": "local", "H": "local"}


def test_dropout():
    graph = described(Convolutions(gnn.SAGEConv, lambda h, e: F.dropout(h, 0.5)))
    (draw,) = ops(graph, "bernoulli")
    assert kernels(draw) == dict.fromkeys(("R", "O", "H"), "keyed_bernoulli")
    graph = described(Convolutions(gnn.SAGEConv, lambda h, e: h + torch.randn_like(h)))
    (draw,) = ops(graph, "randn_like")
    assert kernels(draw) == {"R": "seeded_random"}


def test_size_as_value_is_global():
    graph = described(Convolutions(gnn.SAGEConv, lambda h, e: h / h.size(0)))
    (division,) = [op for op in ops(graph, "div") if len(op.inputs) == 1]
    assert {"O", "H"} <= set(strategies(division))


def test_size_of_selected_rows_needs_the_whole_mask():
    graph = with_loss(lambda out, y, mask, idx: out[mask].sum() / out[mask].size(0))
    (division,) = ops(graph, "div")
    total, mask = division.inputs
    assert graph.tensors[mask].source == "mask"
    assert strategies(division)["R"] == ("RR", "R")
    assert strategies(division)["S"] == ("SR", "S")
    assert graph.tensors[total].dims == ()


def test_rows_added_to_classes():
    def loss(out: Tensor, y: Tensor, mask: Tensor, idx: Tensor) -> Tensor:
        centres = torch.zeros(CLASSES, CLASSES).index_add(0, y, out)
        return (out - centres[y]).square().mean()

    graph = with_loss(loss)
    (added,) = ops(graph, "index_add")
    assert strategies(added)["O"] == ("SOO", "S")
    zeros = ops(graph, "zeros")
    assert strategies(zeros[0])["S"] == ("", "S")


def test_one_hot_of_a_given_width():
    graph = with_loss(lambda out, y, mask, idx: (F.one_hot(y, CLASSES) * out).sum(1).mean())
    assert graph.generality == "general"
    hot = next(op for op in ops(graph, "eq") if len(graph.tensors[op.outputs[0]].dims) == 2)
    assert strategies(hot)["O"] == ("OR", "O")
    # labels out of range are an error, as they are for torch
    assert any(op.name == "guard" for op in graph.ops)


def test_group_norm():
    graph = described(Convolutions(gnn.SAGEConv, lambda h, e: F.group_norm(h, 4)))
    (norm,) = ops(graph, "native_group_norm")
    assert strategies(norm)["O"] == ("O", "OOO")
