"""A decision on a size or a number that comes out differently on the real graph is never taken as recorded, at any size.

The comparison of the program with the model on the whole graph, which only small graphs get, is off here.
"""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import add_self_loops

import autoplan
from autoplan.errors import AutoplanError, GuardError, PlanError
from autoplan.execute.batches import BatchOrder
from autoplan.planner import workload
from tests.integration.graphs import awkward_graph


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Every pass counts as too large to be compared when a plan is made."""
    monkeypatch.setattr(workload, "_SMALL_PASS_BYTES", -1)


def concatenated(h, x, edge_index, mask):
    return h * 3 if torch.cat([h, x[:, :4]]).size(0) > 600 else h


def elements(h, x, edge_index, mask):
    return h * 3 if h.numel() > 1200 else h


def with_loops(h, x, edge_index, mask):
    edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
    return h * 3 if edge_index.size(1) > 1000 else h


def number_of_the_graph(h, x, edge_index, mask):
    return h * 3 if int(mask.sum()) > 60 else h


def size_from_content(h, x, edge_index, mask):
    late = torch.arange(x.size(0)) > 350  # no sample has such a node
    return h * torch.unique(late).numel()


def selected(h, x, edge_index, mask):
    return h * 3 if h[mask].size(0) > 60 else h


def half(h, x, edge_index, mask):
    return h * 3 if h[: h.size(0) // 2].size(0) > 150 else h


WHEN_PLANNED = {
    concatenated: "is 800",
    elements: "is 1600",
    with_loops: "is 2000",
    number_of_the_graph: "is 80",
    size_from_content: "is 2",
}
"""The decision, and the value that the graph has: it follows from the graph's rows or from what it holds."""
WHEN_RUN = {selected: "is 80", half: "is 200"}
"""Only a run tells."""


class Net(nn.Module):
    def __init__(self, decision):
        super().__init__()
        self.conv = GCNConv(8, 4)
        self.decision = decision

    def forward(self, x, edge_index, train_mask):
        return self.decision(self.conv(x, edge_index), x, edge_index, train_mask)


def loss(out, graph):
    return F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])


def where(decision) -> str:
    return rf"test_decisions\.py:\d+ in {decision.__name__}"


@pytest.mark.parametrize("decision", WHEN_PLANNED, ids=lambda d: d.__name__)
def test_found_when_the_plan_is_made(decision) -> None:
    model, graph = Net(decision), awkward_graph(400, 1600)
    reason = f"{where(decision)}.* where .*{WHEN_PLANNED[decision]}"

    plan = autoplan.optimize(model, graph, "2xcpu", loss=loss)

    assert plan.strategy == "single"
    assert re.search(reason, plan.data.generality_reason)
    out = model(graph.x, graph.edge_index, graph.train_mask)
    torch.testing.assert_close(plan.step(model, graph, seed=0).loss, loss(out, graph).detach())


@pytest.mark.parametrize("strategy", ["data", "model"])
def test_no_plan_on_several_devices(strategy: str) -> None:
    model, graph = Net(concatenated), awkward_graph(400, 1600)

    with pytest.raises(AutoplanError, match=where(concatenated)):
        autoplan.optimize(model, graph, "2xcpu", loss=loss, strategy=strategy)


@pytest.mark.parametrize("strategy", ["single", "data", "model"])
@pytest.mark.parametrize("decision", WHEN_RUN, ids=lambda d: d.__name__)
def test_found_by_every_run(decision, strategy: str) -> None:
    model, graph = Net(decision), awkward_graph(400, 1600)
    plan = autoplan.optimize(model, graph, "2xcpu", loss=loss, strategy=strategy)

    with pytest.raises(GuardError, match=f"{where(decision)}.* where .*{WHEN_RUN[decision]}"):
        plan.step(model, graph)
    with pytest.raises(GuardError, match=where(decision)):
        plan.predict(model, graph)


def test_the_same_decision_is_right_on_a_graph_where_it_holds() -> None:
    model, graph = Net(concatenated), awkward_graph(200, 800)
    plan = autoplan.optimize(model, graph, "2xcpu", loss=loss, strategy="data")
    assert autoplan.verify(plan, model, graph, steps=1).ok

    with pytest.raises(PlanError, match=f"{where(concatenated)}.* is 800.*plan again"):
        plan.rebind(awkward_graph(400, 1600))


class GraphNet(nn.Module):
    def __init__(self, limit: int):
        super().__init__()
        self.lin = nn.Linear(4, 3)
        self.limit = limit

    def forward(self, x, edge_index, batch):
        h = self.lin(x)
        if torch.cat([h, h]).size(0) > self.limit:
            h = h * 3
        return global_add_pool(h, batch)


def test_every_batch_is_held_to_them() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = (300, 160, 200, 230, 150, 390)
    graphs = [
        Data(
            x=torch.randn(n, 4, generator=generator),
            edge_index=torch.randint(0, n, (2, 2 * n), generator=generator),
            y=torch.tensor([n % 3]),
        )
        for n in sizes
    ]
    # the largest batch when the plan is made, and a seed whose order has a larger one
    largest = {seed: max(nodes_of_batches(sizes, seed)) for seed in range(9)}
    seed = next(seed for seed, nodes in largest.items() if nodes > largest[0])
    model = GraphNet(2 * largest[0])

    plan = autoplan.optimize(model, graphs, "2xcpu", batch_size=2, strategy="data")
    result = plan.train(model, graphs, epochs=1, seed=0, progress=False)

    assert len(result.losses) == 3
    with pytest.raises(GuardError, match=rf"step \d .2 graphs.: .* is {2 * largest[seed]}"):
        plan.train(model, graphs, epochs=1, seed=seed, progress=False)
    with pytest.raises(GuardError, match=f"is {2 * sum(sizes)}"):
        plan.step(model, graphs)


def nodes_of_batches(sizes: tuple[int, ...], seed: int) -> list[int]:
    order = BatchOrder(len(sizes), 2, seed)
    return [sum(sizes[number] for number in order.batch(step)) for step in range(3)]
