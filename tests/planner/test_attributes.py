"""What forward counts in plain attributes of the model is there after training, as plain PyTorch leaves it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import autoplan
from autoplan.planner.attributes import attributes_of, bring_back


class Counting(nn.Module):
    """A schedule in a Python number, a list, a dict and a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(5, 3, cached=True)
        self.steps = 0
        self.seen: list[int] = []
        self.stats = {"calls": 0}
        self.average = torch.zeros(3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.steps += 1
        self.seen.append(self.steps)
        self.stats["calls"] += 1
        h = self.conv(x, edge_index)
        self.average = 0.9 * self.average + 0.1 * h.detach().mean(0)
        return h / self.steps


def test_counters_come_back_and_the_next_training_goes_on_from_them() -> None:
    torch.manual_seed(0)
    graph = Data(
        x=torch.randn(60, 5), edge_index=torch.randint(60, (2, 200)), y=torch.randint(3, (60,))
    )
    model = Counting()
    eager = Counting()
    eager.load_state_dict(model.state_dict())
    seen = model.seen
    plan = autoplan.optimize(model, graph, "cpu", optimizer="sgd")
    assert (model.steps, model.seen) == (0, [])

    losses = [
        loss
        for epochs in (3, 2)
        for loss in plan.train(model, graph, epochs=epochs, lr=0.1, progress=False).losses
    ]

    updates = torch.optim.SGD(eager.parameters(), lr=0.1)
    expected = []
    for _ in range(5):
        updates.zero_grad()
        loss = nn.functional.cross_entropy(eager(graph.x, graph.edge_index), graph.y)
        loss.backward()
        updates.step()
        expected.append(loss.item())
    torch.testing.assert_close(losses, expected)
    assert (model.steps, model.seen, model.stats) == (5, [1, 2, 3, 4, 5], {"calls": 5})
    assert model.seen is seen
    torch.testing.assert_close(model.average, eager.average)
    # what a layer of the copy cached of the graph stays there
    assert model.conv._cached_edge_index is None


def test_only_what_changed_is_written() -> None:
    copied, model = Counting(), Counting()
    before = attributes_of(copied)
    model.stats, model.steps = {"calls": 7}, 4
    copied.steps = 2
    bring_back(before, copied, model)
    assert (model.steps, model.stats) == (2, {"calls": 7})
