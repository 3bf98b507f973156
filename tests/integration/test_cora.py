"""Cora, public split: the accuracy of one process and the same loss curve on 1, 2, 3 and 4 workers."""

import functools
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import autoplan
from autoplan import datasets

DATA = Path(os.environ.get("AUTOPLAN_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
PLANETOID = DATA / "planetoid"
pytestmark = pytest.mark.skipif(
    not PLANETOID.exists(), reason="Planetoid's raw files are absent (set AUTOPLAN_DATA)"
)


class GCN(nn.Module):
    def __init__(self, dropout: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.first = GCNConv(1433, 16)
        self.second = GCNConv(16, 7)
        self.dropout = dropout
        self.to(dtype)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(x, self.dropout, self.training)
        h = self.first(h, edge_index).relu()
        return self.second(F.dropout(h, self.dropout, self.training), edge_index)


def accuracy(out: Tensor, graph: Data) -> Tensor:
    hits = out.argmax(dim=-1)[graph.test_mask] == graph.y[graph.test_mask]
    return hits.float().mean()


@functools.cache
def load_cora() -> Data:
    return datasets.planetoid(PLANETOID, "Cora")


@pytest.fixture
def cora() -> Data:
    return load_cora()


@functools.cache
def losses(
    workers: int, dropout: float, dtype: torch.dtype, epochs: int
) -> tuple[list[float], float]:
    """The loss curve and the test accuracy; cached, as every comparison is with one worker."""
    graph = load_cora().clone()
    graph.x = graph.x.to(dtype)
    torch.manual_seed(12)
    model = GCN(dropout, dtype)
    strategy = "single" if workers == 1 else "data"
    plan = autoplan.optimize(model, graph, f"{workers}xcpu", strategy=strategy)
    result = plan.train(
        model,
        graph,
        epochs=epochs,
        lr=0.01,
        weight_decay=5e-4,
        seed=0,
        metrics={"test": accuracy},
        progress=False,
    )
    assert result.ran_as_planned
    return list(result.losses), float(result.metrics["test"])


def worst(first: list[float], second: list[float]) -> float:
    assert len(first) == len(second)
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(first, second, strict=True))


REST = pytest.mark.accept


@pytest.mark.long
@pytest.mark.parametrize(
    ("workers", "dtype", "epochs", "bound"),
    [
        pytest.param(3, torch.float64, 40, 1e-9),
        *(pytest.param(n, torch.float64, 200, 1e-9, marks=REST) for n in (2, 3, 4)),
        *(pytest.param(n, torch.float32, 50, 1e-4, marks=REST) for n in (2, 3, 4)),
    ],
)
def test_loss_curves_agree_without_dropout(
    workers: int, dtype: torch.dtype, epochs: int, bound: float
) -> None:
    alone, _ = losses(1, 0.0, dtype, epochs)
    curve, _ = losses(workers, 0.0, dtype, epochs)

    assert worst(alone, curve) <= bound


@pytest.mark.long
def test_dropout_draws_alike() -> None:
    alone, _ = losses(1, 0.5, torch.float64, 20)
    curve, _ = losses(2, 0.5, torch.float64, 20)

    assert worst(alone, curve) <= 1e-9


@pytest.mark.accept
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_dropout_draws_alike_and_accuracy_is_that_of_one_process(workers: int) -> None:
    alone, accuracy_alone = losses(1, 0.5, torch.float64, 200)
    curve, test_accuracy = losses(workers, 0.5, torch.float64, 200)

    assert worst(alone[:20], curve[:20]) <= 1e-9
    assert accuracy_alone >= 0.80
    assert test_accuracy >= 0.80


def test_the_bare_call_trains(cora: Data) -> None:
    torch.manual_seed(0)
    model = GCN(0.5, torch.float32)

    plan = autoplan.optimize(model, cora, "2xcpu")
    result = plan.train(model, cora, epochs=30, progress=False)

    assert "cross-entropy over train_mask" in plan.data.loss
    priced = {a.strategy for a in plan.alternatives if a.step_seconds is not None}
    assert priced == {"single", "data", "model", "pipeline"}
    assert result.losses[-1] < 0.8 * result.losses[0]
