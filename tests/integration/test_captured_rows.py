"""Rows that a loss, a metric or a model lists in Python: the numbers are plain PyTorch's, or one error names the list."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric import nn as gnn
from torch_geometric.data import Data

import autoplan
from autoplan.errors import InfeasibleError, TraceError
from tests.integration.graphs import awkward_graph

ROWS = [0, 5, 20, 41]


class Net(nn.Module):
    """Two convolutions, 8 features to 4 classes; centred on some rows if they are given."""

    def __init__(self, rows: object = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = gnn.SAGEConv(8, 6)
        self.second = gnn.SAGEConv(6, 4)
        self.rows = rows

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = self.second(self.first(x, edge_index).relu(), edge_index)
        return out if self.rows is None else out - out[self.rows].mean(0)


class RowsLoss(nn.Module):
    """A loss with its rows as a buffer, or as whatever they are."""

    def __init__(self, rows: Any) -> None:
        super().__init__()
        if isinstance(rows, Tensor):
            self.register_buffer("rows", rows)
        else:
            self.rows = rows

    def forward(self, out: Tensor, graph: Data) -> Tensor:
        return functional.cross_entropy(out[self.rows], graph.y[self.rows])


def over(rows: Any) -> Callable[[Tensor, Data], Tensor]:
    return lambda out, graph: functional.cross_entropy(out[rows], graph.y[rows])


def one_by_one(rows: Any) -> Callable[[Tensor, Data], Tensor]:
    return lambda out, graph: sum(functional.cross_entropy(out[row], graph.y[row]) for row in rows)


def by_argument(rows: Any, out: Tensor, graph: Data) -> Tensor:
    return functional.cross_entropy(out[rows], graph.y[rows])


def mean_of_first(count: int) -> Callable[[Tensor, Data], Tensor]:
    """Reads the number of rows of a slice, which a sample is shorter than."""
    return lambda out, graph: out[:count].pow(2).sum() / out[:count].size(0)


def by_global(out: Tensor, graph: Data) -> Tensor:
    return functional.cross_entropy(out[ROWS], graph.y[ROWS])


def check_equal_to_torch(model: nn.Module, graph: Data, loss: Any, devices: str) -> None:
    plan = autoplan.optimize(model, graph, devices, loss=loss, strategy="data")
    assert autoplan.verify(plan, model, graph).ok
    expected = loss(model(graph.x, graph.edge_index), graph)
    assert plan.step(model, graph).loss == pytest.approx(float(expected.detach()), rel=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        over(np.array([-1, *ROWS])),
        by_global,
        RowsLoss(torch.tensor(ROWS)),
        mean_of_first(50),
    ],
)
def test_rows_of_the_graph_are_the_same_rows_on_shards(loss: Any) -> None:
    check_equal_to_torch(Net(), awkward_graph(), loss, "3xcpu")


@pytest.mark.parametrize("rows", [ROWS])
def test_rows_that_a_model_lists(rows: object) -> None:
    graph = awkward_graph()
    check_equal_to_torch(
        Net(rows), graph, lambda out, g: functional.cross_entropy(out, g.y), "2xcpu"
    )


@pytest.mark.parametrize("loss", [over([0, 300, 999]), mean_of_first(600)])
def test_rows_that_a_small_sample_does_not_have(loss: Any) -> None:
    check_equal_to_torch(Net(), awkward_graph(1000, 3000), loss, "2xcpu")


def test_a_slice_longer_than_any_sample_is_not_taken_for_the_graph() -> None:
    graph, loss = awkward_graph(6000, 9000), mean_of_first(5500)
    plan = autoplan.optimize(Net(), graph, "2xcpu", loss=loss)
    assert plan.strategy == "single"
    assert "size(0) <= 5500" in plan.explain()
    expected = loss(Net()(graph.x, graph.edge_index), graph)
    assert plan.step(Net(), graph).loss == pytest.approx(float(expected.detach()), rel=1e-5)
    with pytest.raises(InfeasibleError, match=r"size\(0\) <= 5500 was True when recorded"):
        autoplan.optimize(Net(), graph, "2xcpu", loss=loss, strategy="data")


FAR = [3, 5998, 5999]
ON_GRAPH = (
    r"IndexError: .*; it captures '{name}' \(a {kind} of 3 integers, the largest 5999\), ids of nodes of the whole graph: "
    r"put it on the graph \(graph\.{attribute} = {given}\) and use graph\.{attribute} in {role}, "
)


@pytest.mark.parametrize(
    ("loss", "name", "kind", "given"),
    [
        (over(FAR), "rows", "list", r"torch\.as_tensor\(rows\)"),
        (over(np.array(FAR)), "rows", "NumPy array", r"torch\.as_tensor\(rows\)"),
        (one_by_one(tuple(FAR)), "rows", "tuple", r"torch\.as_tensor\(rows\)"),
        (one_by_one(range(5997, 6000)), "rows", "range", r"torch\.tensor\(sorted\(rows\)\)"),
        (functools.partial(by_argument, FAR), "rows", "list", r"torch\.as_tensor\(rows\)"),
        (RowsLoss(FAR), "rows", "list", r"torch\.as_tensor\(rows\)"),
        (RowsLoss(FAR).forward, "rows", "list", r"torch\.as_tensor\(rows\)"),
        (RowsLoss(torch.tensor(FAR)), "rows", "tensor", "rows"),
    ],
)
def test_rows_that_no_sample_has(loss: Any, name: str, kind: str, given: str) -> None:
    message = ON_GRAPH.format(
        name=name, kind=kind, attribute="rows_idx", given=given, role="the loss"
    )
    for strategy in ("data", "auto"):
        with pytest.raises(
            TraceError, match=rf"^the loss '.*' \(test_captured_rows\.py:\d+\), .*{message}"
        ):
            autoplan.optimize(
                Net(), awkward_graph(6000, 9000), "2xcpu", loss=loss, strategy=strategy
            )


def test_rows_in_a_metric_and_in_a_model() -> None:
    graph = awkward_graph(6000, 9000)
    plan = autoplan.optimize(Net(), graph, "cpu")
    message = ON_GRAPH.format(
        name="rows",
        kind="list",
        attribute="rows_idx",
        given=r"torch\.as_tensor\(rows\)",
        role="metric 'far'",
    )
    with pytest.raises(TraceError, match=rf"^metric 'far' \(test_captured.*{message}"):
        plan.train(Net(), graph, epochs=1, metrics={"far": over(FAR)}, progress=False)
    with pytest.raises(TraceError, match=r"\(Net\) .*'rows' \(a list of 3 .* in forward,"):
        autoplan.optimize(Net(FAR), graph, "2xcpu")


@pytest.mark.parametrize("wrap", [list, np.array, tuple])
def test_masks(wrap: Callable[[Any], Any]) -> None:
    graph = awkward_graph()
    mask = wrap(graph.train_mask.tolist())

    def loss(out: Tensor, graph: Data) -> Tensor:
        chosen = torch.as_tensor(mask)
        return functional.cross_entropy(out[chosen], graph.y[chosen])

    with pytest.raises(
        TraceError,
        match=r"captures 'mask' \(a .* of 60 booleans\), an entry for each node .*graph\.mask = torch\.as_tensor",
    ):
        autoplan.optimize(Net(), graph, "2xcpu", loss=loss)


def test_tensors_of_ids_are_refused_wherever_they_lie() -> None:
    ids = torch.tensor([3, 5])
    place, nested, pair = SimpleNamespace(train=ids), {"split": {"train": ids}}, (ids, "train")
    losses: tuple[Any, ...] = (
        lambda out, graph: out[place.train].sum(),
        lambda out, graph: out[nested["split"]["train"]].sum(),
        lambda out, graph: out[pair[0]].sum(),
        functools.partial(by_argument, ids),
    )
    for loss in losses:
        with pytest.raises(
            TraceError,
            match=r"captures '.*' \(int64 \[2\]\), whose entries may be node ids; put it on the graph",
        ):
            autoplan.optimize(Net(), awkward_graph(), "2xcpu", loss=loss)


def test_what_the_remedy_says_works() -> None:
    graph = awkward_graph(6000, 9000)
    graph.rows_idx = torch.as_tensor(FAR)
    check_equal_to_torch(
        Net(),
        graph,
        lambda out, g: functional.cross_entropy(out[g.rows_idx], g.y[g.rows_idx]),
        "2xcpu",
    )
