"""DESIGN 8's bounds for the models of the issue: P = 2, 3, 4, three SGD steps, dropout 0 and 0.5."""

import pytest
import torch

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
