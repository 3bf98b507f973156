"""Cases A of the shared README (tracing), through the public surface; A2 is in test_cases.py, A22 and A23 with graphs of several types."""

from __future__ import annotations

import time
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import coalesce, to_torch_csr_tensor

import autoplan
from autoplan.errors import AutoplanError, PlanError, TraceError
from tests.integration.graphs import awkward_graph
from tests.integration.test_cases import case


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(8, 12), GCNConv(12, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def test_a1_readout_of_a_batch() -> None:
    h13 = case("h13")
    b = h13.build()
    began = time.perf_counter()
    traced = autoplan.trace(b["model"], b["graph"], training=False)
    assert time.perf_counter() - began < 20  # the machine may be shared; alone it takes about 2 s
    assert traced.generality == "general", traced.reason
    assert not traced.unknown_ops
    assert len(traced.ops) >= 8
    assert {"gather", "scatter", "dense"} <= {op.forward.kind for op in traced.ops}
    assert any(op.module.startswith("s2s") for op in traced.ops)
    names = [op.name.split(".")[1] for op in traced.ops]
    observed = {"error": None, "nodes": len(names), "ops": names}
    plan = autoplan.optimize(b["model"], b["graph"], h13.DEVICES)
    observed["out_shape"] = tuple(plan.predict(b["model"], b["graph"]).shape)
    h13.check(observed, h13.reference())


@torch.library.custom_op("autoplan_tests::nearest", mutates_args=())
def nearest(pos: Tensor, k: int) -> Tensor:
    """Edges from the k nearest nodes, as an extension's compiled operator makes them."""
    distance = torch.cdist(pos, pos)
    distance.fill_diagonal_(float("inf"))
    source = distance.topk(k, largest=False).indices
    target = torch.arange(pos.size(0)).unsqueeze(1).expand_as(source)
    return torch.stack([source.reshape(-1), target.reshape(-1)])


class Cloud(nn.Module):
    """Builds its own edges from positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv(8, 4)

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.conv(x, torch.ops.autoplan_tests.nearest(pos, 3))


class Missing(nn.Module):
    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        from torch_geometric.nn import knn_graph

        return x[knn_graph(pos, 3)[0]]


def cloud() -> Data:
    graph = awkward_graph()
    graph.pos = torch.randn(graph.num_nodes, 3)
    return graph


def test_a5_an_operator_of_an_extension_is_one_node_with_a_cost() -> None:
    torch.manual_seed(0)
    model, graph = Cloud(), cloud()
    traced = autoplan.trace(model, graph)
    (own,) = [op for op in traced.ops if "nearest" in op.name]
    assert own in traced.unknown_ops
    assert own.forward.bytes_read.evaluate({"node": 60.0}) == 60 * 3 * 4

    plan = autoplan.optimize(model, graph, "2xcpu")

    step = plan.step(model, graph)
    out = model(graph.x, graph.pos)
    loss = F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])
    torch.testing.assert_close(step.loss, loss.detach())


def test_a5_a_missing_package_is_named() -> None:
    with pytest.raises(TraceError, match=r"'knn_graph' requires '(pyg-lib|torch-cluster)"):
        autoplan.optimize(Missing(), cloud(), "2xcpu")


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(8, 12), SAGEConv(12, 4)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, adj_t).relu(), adj_t)


def test_a8_a_sparse_adjacency_is_planned_with_products_of_its_entries() -> None:
    graph = awkward_graph()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ")
        adjacency = to_torch_csr_tensor(coalesce(graph.edge_index).flip(0), size=(60, 60))
    del graph.edge_index
    graph.adj_t = adjacency
    torch.manual_seed(0)
    model = Sparse()
    plan = autoplan.optimize(model, graph, "2xcpu", strategy="data")
    products = {c.strategy for c in plan.stages[0].choices if "spmm" in c.name}
    assert products == {"O"}
    result = autoplan.verify(plan, model, graph, steps=2)
    assert result.ok, str(result)


class LayerDrop(nn.Module):
    """Leaves a layer out by a draw of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = GCNConv(8, 8), GCNConv(8, 8), GCNConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv1(x, edge_index).relu()
        if not self.training or torch.rand(()) > 0.3:
            h = self.conv2(h, edge_index).relu()
        return self.conv3(h, edge_index)


def test_a10_layer_drop_gives_one_plan() -> None:
    model, graph = LayerDrop(), awkward_graph(24, 60)
    found = set()
    for number in range(20):
        torch.manual_seed(number)
        plan = autoplan.optimize(model, graph, "1xcpu")
        found.add(repr(plan.data))
    assert len(found) == 1


def test_a13_lazy_layers_are_sized_by_the_graph() -> None:
    h05 = case("h05")
    b = h05.build()
    plan = autoplan.optimize(b["model"], b["graph"], h05.DEVICES, loss=lambda out, g: out.sum())
    assert h05.uninitialised(b["model"])  # planning leaves no mark
    plan.train(b["model"], b["graph"], epochs=1, lr=0.1, progress=False)
    shapes = {name: tuple(p.shape) for name, p in b["model"].named_parameters()}
    h05.check({"error": None, "shapes": shapes}, h05.reference())


def test_a15_another_size_is_no_silent_fallback() -> None:
    torch.manual_seed(0)
    model, graph = Net(), awkward_graph()
    plan = autoplan.optimize(model, graph, "1xcpu")
    other = awkward_graph(80, 300, seed=3)
    with pytest.raises(PlanError, match=r"rebind"):
        plan.step(model, other)
    moved = plan.rebind(other)
    result = moved.train(model, other, epochs=1, progress=False)
    assert result.ran_as_planned


class WithTeacher(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = Net(), nn.Linear(500, 500)
        self.teacher.requires_grad_(False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.student(x, edge_index)


def test_a16_a_frozen_teacher_has_no_optimizer_memory() -> None:
    graph = awkward_graph()
    plan = autoplan.optimize(WithTeacher(), graph, "1xcpu")
    assert any("does not use teacher (2 parameters, 979 KiB)" in note for note in plan.data.notes)
    with_teacher = plan.stages[0].memory[0]
    alone = autoplan.optimize(Net(), graph, "1xcpu").stages[0].memory[0]
    teacher = 4 * (500 * 500 + 500)
    assert with_teacher.weights - alone.weights in (0, teacher)
    assert with_teacher.optimizer == alone.optimizer
    assert with_teacher.gradients == alone.gradients


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a18_half_features_name_the_first_layer_and_both_dtypes(dtype: torch.dtype) -> None:
    graph = awkward_graph()
    graph.x = graph.x.to(dtype)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(AutoplanError) as caught:
        autoplan.optimize(Net(), graph, "2xcpu")
    assert "conv1.lin" in str(caught.value)
    assert name in str(caught.value)
    assert "float32" in str(caught.value)


def test_wrapped_models_are_unwrapped_with_one_warning() -> None:
    model, graph = Net(), awkward_graph()
    wrapped = nn.DataParallel(model)
    with pytest.warns(UserWarning, match="wrapped in DataParallel") as told:
        plan = autoplan.optimize(wrapped, graph, "1xcpu")
    assert len(told) == 1
    assert set(plan.step(wrapped, graph).gradients) == {n for n, _ in model.named_parameters()}


class Potential(nn.Module):
    """The energy of a cloud of points."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs, self.head = nn.Linear(1, 8), nn.Linear(8, 1)

    def forward(self, pos: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        distance = (pos[source] - pos[target]).pow(2).sum(-1, keepdim=True)
        messages = self.pairs((-distance).exp()).tanh()
        rows = messages.new_zeros(pos.size(0), 8).index_add(0, target, messages)
        return self.head(rows.tanh()).sum()


def test_forces_run_on_one_device_which_says_why() -> None:
    graph = awkward_graph()
    torch.manual_seed(0)
    graph.pos = torch.randn(60, 3).requires_grad_()
    graph.force = torch.randn(60, 3)
    model = Potential()

    def loss(out: Tensor, g: Data) -> Tensor:
        (slope,) = torch.autograd.grad(out, g.pos, create_graph=True)
        return (slope + g.force).pow(2).mean() + out.pow(2) * 1e-3

    plan = autoplan.optimize(model, graph, "2xcpu", loss=loss)
    assert plan.strategy == "single"
    reasons = {a.strategy: a.reason for a in plan.alternatives}
    assert "grad" in str(reasons["data"])
    step = plan.step(model, graph)
    value = loss(model(graph.pos, graph.edge_index), graph)
    value.backward()
    torch.testing.assert_close(step.loss, value.detach())
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(step.gradients[name], parameter.grad)
