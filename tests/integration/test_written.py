"""Forwards that write in place what is not theirs: a weight that is trained on, and the graph's features."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import autoplan
from autoplan.errors import InfeasibleError

from .graphs import awkward_graph


class Clamped(nn.Module):
    """Keeps a weight small, as weight clipping does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lin, self.out = GCNConv(8, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def write(self, x: Tensor) -> None:
        with torch.no_grad():
            self.lin.weight.clamp_(-0.05, 0.05)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.write(x)
        return self.out(self.lin(self.conv(x, edge_index).relu()))


class Normalised(Clamped):
    def write(self, x: Tensor) -> None:
        with torch.no_grad():
            self.lin.weight.copy_(normalize(self.lin.weight, dim=1))


class Halved(Clamped):
    """Writes the features that it is given."""

    def write(self, x: Tensor) -> None:
        x.mul_(0.5)


def loss(out: Tensor, graph: Data) -> Tensor:
    return cross_entropy(out, graph.y)


def double_graph() -> Data:
    graph = awkward_graph()
    graph.x = graph.x.double()
    return graph


def by_hand(model: nn.Module, graph: Data, steps: int) -> tuple[list[float], list[Tensor]]:
    model, graph = copy.deepcopy(model), graph.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model(graph.x, graph.edge_index), graph)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, list(model.parameters())


@pytest.mark.parametrize(
    ("kind", "devices"),
    [(Clamped, "cpu"), (Clamped, "2xcpu"), (Normalised, "cpu"), (Halved, "cpu")],
)
def test_training_is_that_of_plain_pytorch(kind: type[Clamped], devices: str) -> None:
    torch.manual_seed(1)
    model, graph = kind().double(), double_graph()
    losses, weights = by_hand(model, graph, 4)
    strategy = "single" if devices == "cpu" else "data"
    plan = autoplan.optimize(model, graph, devices, strategy=strategy, loss=loss, optimizer="sgd")

    assert autoplan.verify(plan, model, graph).ok
    result = plan.train(model, graph, epochs=4, lr=0.5, progress=False)

    assert list(result.losses) == pytest.approx(losses, abs=1e-12)
    for own, expected in zip(model.parameters(), weights, strict=True):
        assert torch.allclose(own, expected, atol=1e-12)


def test_the_users_graph_is_left_as_it_was() -> None:
    torch.manual_seed(1)
    model, graph = Halved().double(), double_graph()
    before = graph.x.clone()
    plan = autoplan.optimize(model, graph, "cpu", loss=loss)

    first, second = (plan.step(model, graph, seed=0).loss for _ in range(2))
    assert autoplan.verify(plan, model, graph).ok
    plan.train(model, graph, epochs=2, progress=False)

    assert torch.equal(first, second)
    assert torch.equal(graph.x, before)


def test_stages_are_refused_by_the_parameters_name() -> None:
    with pytest.raises(InfeasibleError, match=r"writes the parameter lin\.weight in place"):
        autoplan.optimize(Clamped(), awkward_graph(), "2xcpu", strategy="model", loss=loss)
