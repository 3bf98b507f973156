"""DESIGN 8's bounds for the models of the issue: P = 2, 3, 4, three SGD steps, dropout 0 and 0.5."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import autoplan
from tests.models import MODELS

from .graphs import awkward_graph


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("name", MODELS)
def test_data_plan_trains_to_one_devices_numbers(name: str, dropout: float, workers: int) -> None:
    torch.manual_seed(3)
    model = MODELS[name](dropout)
    graph = awkward_graph()
    plan = autoplan.optimize(model, graph, f"{workers}xcpu", strategy="data")

    result = autoplan.verify(plan, model, graph, steps=3)

    assert plan.strategy == "data"
    assert result.workers == workers
    assert result.ok, str(result)
    sharded = {c.name for c in plan.stages[0].choices if c.strategy != "R"}
    assert any("scatter" in op or "index_add" in op for op in sharded), sharded


@dataclass(frozen=True)
class Scores:
    logits: torch.Tensor
    hidden: torch.Tensor


class Pair(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


class Structured(torch.nn.Module):
    def __init__(
        self, made: Callable[[torch.Tensor, torch.Tensor], object], features: int, classes: int
    ) -> None:
        super().__init__()
        self.convolution = GCNConv(features, 8)
        self.linear = torch.nn.Linear(8, classes)
        self.made = made

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> object:
        hidden = self.convolution(x, edge_index).relu()
        return self.made(self.linear(hidden), hidden)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("made", [Scores, Pair])
def test_outputs_of_data_classes_and_named_tuples_come_back_from_several_devices(
    made: type, workers: int
) -> None:
    torch.manual_seed(3)
    graph = awkward_graph()
    model = Structured(made, graph.num_features, int(graph.y.max()) + 1)

    def loss(out: Scores, graph: Data) -> torch.Tensor:
        given = torch.nn.functional.cross_entropy(out.logits, graph.y)
        return given + out.hidden.square().mean()

    plan = autoplan.optimize(model, graph, f"{workers}xcpu", loss=loss, strategy="data")
    result = autoplan.verify(plan, model, graph, steps=2)
    found = plan.predict(model, graph)
    wanted = model.eval()(graph.x, graph.edge_index)

    assert result.ok, str(result)
    assert type(found) is made
    torch.testing.assert_close(found.logits, wanted.logits)
    torch.testing.assert_close(found.hidden, wanted.hidden)
