"""Classifiers of many graphs: batches, the last one partial, trained on several workers to one process's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv, global_add_pool, global_mean_pool

import autoplan
from autoplan.datasets import tu_graphs
from autoplan.errors import InfeasibleError, PlanError, TraceError
from autoplan.planner.source import source_of

# tags and classes of the collections
SETS = {"MUTAG": (7, 2), "PROTEINS": (3, 2), "NCI1": (37, 2)}
# some 40 graphs of both classes
STRIDES = {"MUTAG": 5, "PROTEINS": 28, "NCI1": 105}


def mlp(first: int, second: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(first, second), nn.ReLU(), nn.Linear(second, second))


class GIN(nn.Module):
    """Two layers, summed over each graph."""

    def __init__(self, features: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = GINConv(mlp(features, 12)), GINConv(mlp(12, 12))
        self.out = nn.Linear(12, classes)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.first(x, edge_index).relu()
        h = functional.dropout(h, self.dropout, self.training)
        h = self.second(h, edge_index).relu()
        return self.out(global_add_pool(h, batch))


class GCN(nn.Module):
    """Two layers, the mean of each graph; takes the graph itself."""

    def __init__(self, features: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 12), GCNConv(12, 12)
        self.out = nn.Linear(12, classes)
        self.dropout = dropout

    def forward(self, data: Data) -> Tensor:
        h = self.first(data.x, data.edge_index).relu()
        h = self.second(h, data.edge_index).relu()
        h = global_mean_pool(h, data.batch, data.num_graphs)
        return self.out(functional.dropout(h, self.dropout, self.training))


def accuracy(out: Tensor, graph: Data) -> Tensor:
    return (out.argmax(-1) == graph.y).float().mean()


def some_graphs(data_directory: Path, name: str) -> list[Data]:
    return tu_graphs(data_directory / "tu_graphs" / f"{name}.txt.gz")[:: STRIDES[name]][:38]


def skewed(count: int, seed: int = 0) -> list[Data]:
    """Graphs of very different sizes; the label says whether a graph has more than 8 nodes."""
    random = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for nodes in (1 + random.pareto(1.0, count) * 3).astype(int).clip(1, 60).tolist():
        edges = random.integers(0, nodes, (2, 3 * nodes))
        x = torch.randn(nodes, 5, generator=generator)
        found.append(Data(x=x, edge_index=torch.tensor(edges), y=torch.tensor([int(nodes > 8)])))
    return found


def double(graphs: list[Data]) -> list[Data]:
    return [Data(x=g.x.double(), edge_index=g.edge_index, y=g.y) for g in graphs]


@pytest.mark.parametrize(
    ("dropout", "batch_size", "workers"),
    [(0.5, None, 2), (0.0, 32, 3), (0.5, 12, 2)],
)
@pytest.mark.parametrize("kind", [GIN, GCN])
@pytest.mark.parametrize("name", SETS)
def test_every_batch_is_one_devices(
    data_directory: Path,
    name: str,
    kind: type[nn.Module],
    dropout: float,
    batch_size: int | None,
    workers: int,
) -> None:
    torch.manual_seed(1)
    model = kind(*SETS[name], dropout)
    graphs = some_graphs(data_directory, name)
    # to the partial batch at the end of the epoch, and one more
    steps = -(-len(graphs) // (batch_size or len(graphs))) + 1
    plan = autoplan.optimize(
        model, graphs, f"{workers}xcpu", batch_size=batch_size, strategy="data"
    )

    result = autoplan.verify(plan, model, graphs, steps=steps)

    assert plan.strategy == "data"
    assert plan.data.partition is not None
    assert plan.data.partition.method == "closed"
    assert (result.workers, result.steps) == (workers, steps)
    assert result.ok, str(result)


def test_one_device_takes_batches_too(data_directory: Path) -> None:
    graphs = some_graphs(data_directory, "MUTAG")
    model = GIN(7, 2, 0.5)
    plan = autoplan.optimize(model, graphs, "1xcpu", batch_size=25)
    assert plan.data.batch is not None
    assert (plan.data.batch.units, plan.data.batch.steps_per_epoch) == (38, 2)
    assert autoplan.verify(plan, model, graphs, steps=3).ok


@pytest.mark.long
@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.accept), 0.5])
def test_two_workers_train_as_one_process(data_directory: Path, dropout: float) -> None:
    graphs = double(some_graphs(data_directory, "MUTAG"))

    def trained(devices: str, strategy: str):
        torch.manual_seed(2)
        model = GIN(7, 2, dropout).double()
        plan = autoplan.optimize(model, graphs, devices, batch_size=25, strategy=strategy)
        result = plan.train(
            model, graphs, epochs=2, lr=0.01, seed=5, metrics={"accuracy": accuracy}
        )
        return result, model

    alone, first = trained("1xcpu", "single")
    both, second = trained("2xcpu", "data")

    assert len(alone.losses) == len(both.losses) == 4
    assert both.losses == pytest.approx(alone.losses, abs=1e-9, rel=0)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, rtol=0, atol=1e-9)
    assert both.metrics == pytest.approx(alone.metrics)
    assert both.ran_as_planned
    assert [evaluation.epoch for evaluation in both.evaluations] == [2]


def test_steps_are_plain_pytorchs_on_the_same_batches() -> None:
    graphs = double(skewed(11))
    torch.manual_seed(0)
    model = GIN(5, 2, 0.0).double()
    other = GIN(5, 2, 0.0).double()
    other.load_state_dict(model.state_dict())
    plan = autoplan.optimize(model, graphs, "1xcpu", batch_size=4, optimizer="sgd")
    result = plan.train(model, graphs, epochs=2, lr=0.05, seed=3)

    order = source_of(graphs, 4).order(3)
    updates = torch.optim.SGD(other.parameters(), lr=0.05)
    losses = []
    for step in range(6):
        batch = Batch.from_data_list([graphs[number] for number in order.batch(step)])
        updates.zero_grad()
        loss = functional.cross_entropy(other(batch.x, batch.edge_index, batch.batch), batch.y)
        loss.backward()
        updates.step()
        losses.append(float(loss.detach()))
    assert result.losses == pytest.approx(losses, abs=1e-12, rel=0)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=1e-12)


def test_orders_repeat_from_the_seed_and_differ_between_epochs_and_seeds() -> None:
    graphs = skewed(12)

    def losses(seed: int) -> tuple[float, ...]:
        torch.manual_seed(0)
        model = GIN(5, 2, 0.0)
        plan = autoplan.optimize(model, graphs, "1xcpu", batch_size=4, optimizer="sgd")
        # no learning: a step's loss tells its graphs
        return plan.train(model, graphs, epochs=2, lr=0.0, seed=seed).losses

    first = losses(0)
    assert losses(0) == first
    assert losses(1) != first
    assert first[:3] != first[3:]
    assert sum(first[:3]) == pytest.approx(sum(first[3:]), rel=1e-5)


def test_predictions_keep_the_order_of_the_graphs() -> None:
    graphs = skewed(32, seed=4)
    torch.manual_seed(0)
    model = GIN(5, 2, 0.5)
    plan = autoplan.optimize(model, graphs, "4xcpu", strategy="data")
    assert plan.data.partition is not None
    assert plan.data.partition.parts == 4
    batch = Batch.from_data_list(graphs)
    with torch.no_grad():
        wanted = model.eval()(batch.x, batch.edge_index, batch.batch)
        alone = torch.cat(
            [model(g.x, g.edge_index, torch.zeros(g.num_nodes).long()) for g in graphs]
        )
    found = plan.predict(model, graphs)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(found, alone)


def test_a_last_batch_of_fewer_graphs_than_workers_leaves_some_without_rows() -> None:
    graphs = skewed(7)
    model = GIN(5, 2, 0.5)
    # 7 = 3 + 3 + 1: two of three workers have nothing in the last step
    plan = autoplan.optimize(model, graphs, "3xcpu", batch_size=3, strategy="data")
    assert len(plan.stages[0].devices) == 3
    result = autoplan.verify(plan, model, graphs, steps=3)
    assert result.ok, str(result)


@pytest.mark.long
def test_a_worker_without_rows_takes_part_in_the_step() -> None:
    graphs = double(skewed(5))

    def losses(devices: str, strategy: str) -> tuple[float, ...]:
        torch.manual_seed(0)
        model = GIN(5, 2, 0.5).double()
        plan = autoplan.optimize(model, graphs, devices, batch_size=2, strategy=strategy)
        return plan.train(model, graphs, epochs=2, seed=1).losses

    assert losses("2xcpu", "data") == pytest.approx(losses("1xcpu", "single"), abs=1e-9, rel=0)


def test_a_graph_without_nodes_is_a_graph() -> None:
    graphs = [
        *skewed(5),
        Data(x=torch.zeros(0, 5), edge_index=torch.zeros(2, 0).long(), y=torch.tensor([1])),
    ]
    model = GCN(5, 2, 0.0)
    for batch_size in (None, 4):
        plan = autoplan.optimize(model, graphs, "2xcpu", batch_size=batch_size, strategy="data")
        result = autoplan.verify(plan, model, graphs)
        assert result.ok, str(result)
    assert plan.predict(model, graphs).shape == (6, 2)


def test_labels_of_all_graphs_are_checked() -> None:
    graphs = skewed(12)
    graphs[7].y = torch.tensor([5])
    with pytest.raises(TraceError, match="label 5"):
        autoplan.optimize(GIN(5, 2, 0.0), graphs, "1xcpu", batch_size=3)


def test_a_plan_is_for_its_graphs(tmp_path: Path) -> None:
    graphs, model = skewed(12), GIN(5, 2, 0.0)
    plan = autoplan.optimize(model, graphs, "1xcpu", batch_size=5)
    plan.save(tmp_path / "plan.json")
    loaded = autoplan.Plan.load(tmp_path / "plan.json")
    assert loaded.data.batch == plan.data.batch
    assert len(loaded.train(model, graphs, epochs=1).losses) == 3
    with pytest.raises(PlanError, match="another graph"):
        loaded.train(model, graphs[:11], epochs=1)
    other = skewed(12)
    largest = max(other, key=lambda graph: graph.num_nodes)
    largest.edge_index = largest.edge_index.flip(1)
    with pytest.raises(PlanError, match="another graph"):
        loaded.train(model, other, epochs=1)


def test_fewer_graphs_a_step_than_workers_are_not_shared_out() -> None:
    graphs = skewed(6)
    refused = "there are 2 graphs in a step to share out over 3 devices; give at most 2 devices or more graphs"
    with pytest.raises(InfeasibleError, match=refused):
        autoplan.optimize(GIN(5, 2, 0.0), graphs, "3xcpu", batch_size=2, strategy="data")
    plan = autoplan.optimize(GIN(5, 2, 0.0), graphs, "3xcpu", batch_size=2)
    assert plan.strategy == "single"
    refused = "there are 2 graphs in a step to share out over 3 devices"
    with pytest.raises(InfeasibleError, match=refused):
        autoplan.optimize(GIN(5, 2, 0.0), graphs[:2], "3xcpu", strategy="data")
    plan = autoplan.optimize(GIN(5, 2, 0.0), graphs[:2], "3xcpu")
    assert autoplan.verify(plan, GIN(5, 2, 0.0), graphs[:2]).ok


def test_a_step_of_one_graph_is_not_shared_out() -> None:
    graphs = skewed(6)
    with pytest.raises(InfeasibleError, match="there is 1 graph in a step to share"):
        autoplan.optimize(GIN(5, 2, 0.0), graphs, "2xcpu", batch_size=1, strategy="data")
    model = GIN(5, 2, 0.0)
    plan = autoplan.optimize(model, graphs, "2xcpu", batch_size=1)
    assert plan.strategy == "single"
    assert autoplan.verify(plan, model, graphs, steps=6).ok
    assert plan.predict(model, graphs).shape == (6, 2)


class Choosy(nn.Module):
    """Takes another way where a batch has many nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = GCNConv(5, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        h = h.relu() if x.size(0) > 40 else h.tanh()
        return self.out(global_add_pool(h, batch))


def test_a_model_that_looks_at_sizes_is_run_by_plain_pytorch() -> None:
    graphs = skewed(12)
    model = Choosy()
    plan = autoplan.optimize(model, graphs, "1xcpu", batch_size=4)
    assert plan.data.generality == "concrete"
    order = source_of(graphs, 4).order(0)
    first = Batch.from_data_list([graphs[number] for number in order.batch(0)])
    wanted = functional.cross_entropy(model(first.x, first.edge_index, first.batch), first.y)
    result = plan.train(model, graphs, epochs=2, metrics={"accuracy": accuracy})
    assert len(result.losses) == 6
    assert result.losses[0] == pytest.approx(float(wanted.detach()), rel=1e-6)
    assert [evaluation.epoch for evaluation in result.evaluations] == [2]
