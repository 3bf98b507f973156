"""DESIGN 8's bounds for the models of the issue: P = 2, 3, 4, three SGD steps, dropout 0 and 0.5."""

import pytest
import torch
from torch_geometric.nn.models import GAT, GCN, GIN, PNA, GraphSAGE

import autoplan

from .graphs import awkward_graph

HIDDEN, CLASSES, FEATURES = 12, 4, 8
DEGREES = torch.tensor([3, 6, 9, 12, 8, 6, 5, 4, 3, 2, 2])

MODELS = {
    "gcn": lambda p: GCN(FEATURES, HIDDEN, 2, CLASSES, dropout=p),
    "gat": lambda p: GAT(FEATURES, HIDDEN, 2, CLASSES, dropout=p, heads=3),
    "sage_mean": lambda p: GraphSAGE(FEATURES, HIDDEN, 2, CLASSES, dropout=p),
    "sage_max": lambda p: GraphSAGE(FEATURES, HIDDEN, 2, CLASSES, dropout=p, aggr="max"),
    "gin_batch_norm": lambda p: GIN(FEATURES, HIDDEN, 2, CLASSES, dropout=p, norm="batch_norm"),
    "pna": lambda p: PNA(
        FEATURES,
        HIDDEN,
        2,
        CLASSES,
        dropout=p,
        aggregators=["mean", "min", "max", "std"],
        scalers=["identity", "amplification", "attenuation"],
        deg=DEGREES,
    ),
    "gcn_jumping_knowledge": lambda p: GCN(FEATURES, HIDDEN, 3, CLASSES, dropout=p, jk="cat"),
}


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
