from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autoplan.errors import TraceError
from autoplan.trace.captured import check_captured, slots
from tests.trace.graphs import node_graph

WEIGHT = torch.rand(6)
y = torch.rand(300)  # a global with an attribute's name
ROWS = {"node": 300, "edge": 900}


def global_loss(out, graph):
    return F.cross_entropy(out, graph.y, weight=WEIGHT)


def helper(out):
    return out * WEIGHT


def calls_helper(out, graph):
    return helper(out).sum()


class Callable:
    def __init__(self) -> None:
        self.weight = torch.rand(6)

    def __call__(self, out, graph):
        return (out * self.weight).sum()

    def method(self, out, graph):
        return self(out, graph)


def names(function: object) -> list[str]:
    return [slot.name for slot in slots(function)]


def test_where_tensors_are_found():
    weight, criterion, table = torch.rand(6), nn.CrossEntropyLoss(), {"w": torch.rand(2)}

    def with_default(out, graph, scale=weight, *, shift=weight):
        return out

    assert names(lambda out, graph: out * weight) == ["weight"]
    assert names(lambda out, graph: criterion(out, graph.y)) == ["criterion"]
    assert names(lambda out, graph: table["w"]) == ["table_w"]
    assert names(with_default) == ["shift", "scale"]
    assert names(functools.partial(with_default, scale=weight)) == ["shift", "scale", "scale"]
    assert names(global_loss) == ["WEIGHT"]
    assert names(calls_helper) == ["WEIGHT"]
    assert names(lambda out, graph: helper(out)) == ["WEIGHT"]
    assert names(Callable()) == ["weight"]
    assert names(Callable().method) == ["weight"]


def test_attributes_of_the_graph_are_not_globals():
    assert names(lambda out, graph: (out - graph.y).sum()) == []


def test_places_can_be_exchanged():
    weight = torch.ones(6)
    loss = functools.partial(lambda out, graph, scale: (out * weight * scale).sum(), scale=weight)
    for slot in slots(loss):
        slot.put(torch.full((6,), 2.0))
    assert loss(torch.ones(6), None) == 24


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            torch.arange(10, 40),
            r"captures 'value' \(int64 \[30\]\), whose entries may be node ids; put it on",
        ),
        (torch.zeros(300, dtype=torch.bool), r"as many rows as the graph has in 'node'"),
        (torch.rand(900), r"as many rows as the graph has in 'edge'"),
        (node_graph(), r"reads the graph from the variable 'value'"),
    ],
)
def test_what_belongs_on_the_graph_is_refused(value, message):
    with pytest.raises(TraceError, match=message):
        check_captured("the loss", slots(lambda out, graph: value), ROWS, set())


@pytest.mark.parametrize("value", [torch.rand(6), torch.tensor(3), torch.ones(6, dtype=torch.bool)])
def test_constants_may_be_captured(value):
    check_captured("the loss", slots(lambda out, graph: value), ROWS, set())


def test_the_models_own_tensors_may_be_captured():
    weight = nn.Parameter(torch.rand(300, 4))
    check_captured("the loss", slots(lambda out, graph: weight), ROWS, {id(weight)})
