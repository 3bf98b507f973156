"""Bad input: one clear error that names the thing and the remedy, before anything is started."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric import nn as gnn
from torch_geometric.data import Data

import autoplan
from autoplan.errors import (
    AutoplanError,
    DeviceError,
    ExecutionError,
    InfeasibleError,
    PlanError,
    TraceError,
)
from tests.integration.graphs import awkward_graph


class Net(nn.Module):
    """Two convolutions, 8 features to 4 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.SAGEConv(8, 6)
        self.second = gnn.SAGEConv(6, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class NetWithDepth(Net):
    def forward(self, x: Tensor, edge_index: Tensor, depth: Tensor) -> Tensor:
        return super().forward(x + depth, edge_index)


class NetWithTable(Net):
    """Looks a type of each node up in a table of five."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 8)

    def forward(self, x: Tensor, edge_index: Tensor, node_type: Tensor) -> Tensor:
        return super().forward(x + self.table(node_type), edge_index)


def own_loss(out: Tensor, graph: Data) -> Tensor:
    return functional.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])


def changed(graph: Data | None = None, **attributes: object) -> Data:
    graph = graph or awkward_graph()
    for name, value in attributes.items():
        if value is None:
            del graph[name]
        else:
            graph[name] = value
    return graph


def with_entry(tensor: Tensor, position: tuple[int, ...], value: int) -> Tensor:
    tensor = tensor.clone()
    tensor[position] = value
    return tensor


def with_label(label: int, nodes: int = 60, edges: int = 260) -> Data:
    """One node that is trained on has that label; on large graphs no sample holds it."""
    graph = awkward_graph(nodes, edges)
    node = nodes - 1
    graph.train_mask[node] = True
    graph.y[node] = label
    return graph


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("2xabacus", r"no device 'abacus'; .*known are cpu, .*cuda\."),
        ("2xh100_sxm", r"no device .h100_sxm.; did you mean h100_sxm5"),
        ("cpu:2", "'cpu:2'.* write '2xcpu'"),
        (["cpu:2"], "'cpu:2'.* write '2xcpu'"),
        ("", "no devices given; give a count and a name"),
        ([], "no devices given; give a count and a name"),
        ("0xcpu", "'0xcpu' asks for no devices"),
        (None, "devices is None; give a count"),
        (["cuda:7"], "cuda:7 is not in this machine, which has "),
        (torch.device("cuda", 7), "cuda:7 is not in this machine, which has "),
        (torch.device("meta"), "no device 'meta'; .*known are cpu"),
        ("nowhere.toml", "cannot read the devices from nowhere.toml"),
    ],
)
def test_devices(devices: object, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        autoplan.optimize(Net(), awkward_graph(), devices)


def test_devices_of_torch_are_devices() -> None:
    cpu = torch.device("cpu")
    plans = [autoplan.optimize(Net(), awkward_graph(), d) for d in (cpu, [cpu, cpu])]
    assert [plan.data.devices_text for plan in plans] == ["1xcpu", "2xcpu"]


def test_a_profile_that_is_not_here_is_planned_for_and_not_run() -> None:
    model, graph = Net(), awkward_graph()
    plan = autoplan.optimize(model, graph, "2xgaudi2", strategy="data")
    with pytest.raises(DeviceError, match=r"gaudi2:0 .* is for planning only here: .*2xcpu"):
        plan.train(model, graph, epochs=1)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (lambda g: changed(g, edge_index=None), r"no edge_index \(it has .*set graph\.edge_index"),
        (
            lambda g: changed(g, edge_index=with_entry(g.edge_index, (0, 3), 99)),
            "edge_index holds the node id 99, but the graph has 60 nodes",
        ),
        (
            lambda g: changed(g, edge_index=with_entry(g.edge_index, (1, 3), -1)),
            "edge_index holds the node id -1; ids start at 0",
        ),
        (lambda g: changed(g, edge_index=g.edge_index.int()), "must be int64: use edge_index.long"),
        (lambda g: changed(g, edge_index=g.edge_index.t()), r"must be \[2, E\]; use edge_index\.t"),
        (
            lambda g: changed(g, x=g.x.double()),
            r"first\.lin_l .*x is float64; model: float32\); use graph\.x = graph\.x\.to\(torch\.float32\), or model",
        ),
        (lambda g: changed(g, x=g.x.long()), r"x is int64; .*graph\.x\.to\(torch\.float32\)$"),
        (lambda g: changed(g, x=torch.rand(60, 9)), r"first\.lin_l .*graph\.x has 9 columns: give"),
        (lambda g: changed(g, x=torch.rand(59, 8)), "the graph has 59 nodes; it needs a row for"),
        (lambda g: Data(), r"no edge_index \(it has \[\]\)"),
        (
            lambda g: Data(x=torch.empty(0, 8), edge_index=torch.empty(2, 0, dtype=torch.long)),
            "the graph has no nodes; give a graph with at least one",
        ),
        (lambda g: None, "the graph is a NoneType; give"),
    ],
)
def test_graphs(graph: Callable[[Data], Data], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        autoplan.optimize(Net(), graph(awkward_graph()), "2xcpu")


@pytest.mark.parametrize("loss", [None, own_loss])
@pytest.mark.parametrize("label", [4, -3])
def test_labels_out_of_range(loss: object, label: int) -> None:
    for graph in (with_label(label), with_label(label, nodes=4000, edges=9000)):
        with pytest.raises(TraceError, match=rf"{label}\b.*labels"):
            autoplan.optimize(Net(), graph, "2xcpu", loss=loss, strategy="data")


def test_labels_that_the_loss_ignores_are_none() -> None:
    graph = with_label(-100, nodes=4000, edges=9000)
    autoplan.optimize(Net(), graph, "cpu", loss=own_loss)


def test_labels_that_the_loss_changes_are_taken_as_changed() -> None:
    def from_one(out: Tensor, graph: Data) -> Tensor:
        labels = graph.y.clone()
        labels[graph.y == 4] = 0
        return functional.cross_entropy(out, labels)

    autoplan.optimize(Net(), with_label(4, nodes=4000, edges=9000), "cpu", loss=from_one)


def test_numbers_without_a_row_in_a_table() -> None:
    graph = awkward_graph(4000, 9000)
    graph.node_type = torch.randint(0, 5, (4000,))
    graph.node_type[3999] = 5
    with pytest.raises(TraceError, match=r"graph\.node_type holds 5, .* table of 5 rows"):
        autoplan.optimize(NetWithTable(), graph, "2xcpu")


def test_what_fails_on_the_whole_graph_alone_is_named() -> None:
    def loss(out: Tensor, graph: Data) -> Tensor:
        hot = functional.one_hot(graph.y, 4)
        return -(out.log_softmax(-1) * hot).sum()

    with pytest.raises(TraceError, match="fails on the whole graph, though not on samples of it"):
        autoplan.optimize(Net(), with_label(4, nodes=4000, edges=9000), "cpu", loss=loss)


def test_what_fails_in_plain_torch_is_named() -> None:
    def loss(out: Tensor, graph: Data) -> Tensor:
        weights = torch.from_numpy(np.ones(len(out), dtype=np.float32))  # NumPy: not recorded
        each = functional.cross_entropy(out, graph.y, reduction="none")
        return (each * weights).mean()

    graph = with_label(4, nodes=4000, edges=9000)
    with pytest.raises((TraceError, ExecutionError), match="Target 4 is out of bounds; a label"):
        autoplan.optimize(Net(), graph, "cpu", loss=loss).train(
            Net(), graph, epochs=1, progress=False
        )


def test_arguments_that_the_graph_lacks() -> None:
    with pytest.raises(
        TraceError, match=r"forward needs 'depth', .*Set graph\.depth, or .*inputs="
    ):
        autoplan.optimize(NetWithDepth(), awkward_graph(), "2xcpu")


def test_a_loss_that_captures_node_indices() -> None:
    graph = awkward_graph()
    mask, train_idx = graph.train_mask, graph.train_mask.nonzero().view(-1)

    def by_mask(out: Tensor, graph: Data) -> Tensor:
        return functional.cross_entropy(out[mask], graph.y[mask])

    def by_list(out: Tensor, graph: Data) -> Tensor:
        return functional.cross_entropy(out[train_idx], graph.y[train_idx])

    for loss, name in ((by_mask, "mask"), (by_list, "train_idx")):
        with pytest.raises(TraceError, match=rf"captures '{name}'.*put it on the graph"):
            autoplan.optimize(Net(), graph, "2xcpu", loss=loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "dat"}, "strategy='dat' .*: auto, single, data"),
        ({"strategy": None}, "strategy=None .*: auto, single, data"),
        ({"objective": "beauty"}, "objective='beauty' is not one of time, memory"),
        ({"optimizer": "adamx"}, "no optimizer 'adamx'; did you mean 'adamax'"),
    ],
)
def test_names_that_there_are_not(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        autoplan.optimize(Net(), awkward_graph(), "2xcpu", **arguments)


@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (1, 3), (3, 5)])
def test_more_workers_than_nodes_take_one_device(nodes: int, workers: int) -> None:
    torch.manual_seed(0)
    graph = Data(
        x=torch.randn(nodes, 8),
        edge_index=torch.randint(0, nodes, (2, 2 * nodes)),
        y=torch.randint(0, 4, (nodes,)),
    )
    plan = autoplan.optimize(Net(), graph, f"{workers}xcpu")
    assert plan.strategy == "single"
    losses = plan.train(Net(), graph, epochs=2, progress=False).losses
    assert all(np.isfinite(losses))
    reasons = [
        a.reason for a in plan.alternatives if a.strategy == "data" and a.devices == workers > 1
    ]
    assert all(reason and f"{nodes} node" in reason for reason in reasons)


def test_one_node_cannot_be_shared_out() -> None:
    graph = Data(
        x=torch.randn(1, 8), edge_index=torch.zeros(2, 1, dtype=torch.long), y=torch.tensor([1])
    )
    with pytest.raises(InfeasibleError, match="there is 1 node to share out over 2 devices"):
        autoplan.optimize(Net(), graph, "2xcpu", strategy="data")


def test_data_that_is_asked_for_uses_all_devices_or_is_refused() -> None:
    nodes = 3
    graph = Data(
        x=torch.randn(nodes, 8), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), y=torch.arange(3)
    )
    refused = r"there are 3 nodes to share out over 5 devices; give at most 3 devices$"
    with pytest.raises(InfeasibleError, match=refused):
        autoplan.optimize(Net(), graph, "5xcpu", strategy="data")
    plan = autoplan.optimize(Net(), graph, "3xcpu", strategy="data")
    assert len(plan.data.devices) == 3
    assert autoplan.verify(plan, Net(), graph).ok


def test_every_message_is_one_sentence_for_people() -> None:
    with pytest.raises(AutoplanError) as refused:
        autoplan.optimize(Net(), with_label(4), "2xcpu", loss=own_loss)
    text = str(refused.value)
    assert "\n" not in text
    assert not re.search(r"Traceback|0x[0-9a-f]{6}", text)
