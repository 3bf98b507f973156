"""What a step issues, counted at the process group, is what the plan says; and a collective too many is seen."""

import pytest
import torch
from torch_geometric.nn.models import GAT, GCN

import autoplan

from .graphs import awkward_graph


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("model_class", [GCN, GAT])
def test_payload_equals_the_prediction(model_class, workers: int) -> None:
    torch.manual_seed(0)
    model, graph = model_class(8, 12, 2, 4, dropout=0.5), awkward_graph()
    plan = autoplan.optimize(model, graph, f"{workers}xcpu", strategy="data")

    result = plan.train(model, graph, epochs=4, lr=0.01, progress=False)

    assert tuple(result.communication_bytes) == tuple(plan.predicted.communication_bytes)
    assert sum(result.communication_bytes) > 0
