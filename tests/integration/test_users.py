"""What users bring: graphs and models at the edge of what is usual. Always against plain PyTorch."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric import nn as gnn
from torch_geometric.data import Data

import autoplan
from autoplan.errors import InfeasibleError, PlanError, TraceError
from tests.integration.graphs import awkward_graph


class Net(nn.Module):
    """Two convolutions."""

    def __init__(self, convolution: type[nn.Module] = gnn.SAGEConv, features: int = 8) -> None:
        super().__init__()
        self.first = convolution(features, 6)
        self.second = convolution(6, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features], [2, E] -> [N, 4]."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


class LazyNet(nn.Module):
    """Layers of both libraries that are sized by their first input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.SAGEConv(-1, 6)
        self.norm = nn.LazyBatchNorm1d()
        self.last = nn.LazyLinear(4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, any], [2, E] -> [N, 4]."""
        return self.last(self.norm(self.first(x, edge_index)).relu())


def small(nodes: int, edges: int) -> Data:
    return Data(
        x=torch.randn(nodes, 8),
        edge_index=torch.randint(0, nodes, (2, edges)),
        y=torch.randint(0, 4, (nodes,)),
    )


def assert_steps_like_torch(plan: autoplan.Plan, model: nn.Module, graph: Data) -> None:
    """Loss, outputs and gradients of cross-entropy over all rows."""
    alone = copy.deepcopy(model)
    out = alone(graph.x, graph.edge_index)
    loss = functional.cross_entropy(out, graph.y)
    loss.backward()
    step = plan.step(model, graph, seed=0)
    torch.testing.assert_close(step.loss, loss.detach())
    torch.testing.assert_close(step.outputs, out.detach())
    expected = {n: p.grad for n, p in alone.named_parameters() if p.grad is not None}
    torch.testing.assert_close(dict(step.gradients), expected)


@pytest.mark.parametrize("convolution", [gnn.GCNConv, gnn.SAGEConv])
@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (1, 1), (2, 3), (20, 0)])
def test_tiny_graphs(convolution: type[nn.Module], nodes: int, edges: int) -> None:
    model, graph = Net(convolution), small(nodes, edges)
    assert_steps_like_torch(autoplan.optimize(model, graph, "2xcpu"), model, graph)


def test_a_graph_without_edges_is_not_shared_out_and_the_decision_is_named() -> None:
    with pytest.raises(
        InfeasibleError, match=r"graph.edge_index: size\(1\) > 1 was True when recorded, and is not"
    ):
        autoplan.optimize(Net(), small(20, 0), "2xcpu", strategy="data")


def test_lazy_layers_are_sized_by_training_and_by_nothing_else() -> None:
    model, graph = LazyNet(), awkward_graph()
    parameters = list(model.parameters())
    plan = autoplan.optimize(model, graph, "2xcpu", strategy="data")
    before = plan.predict(model, graph)
    assert plan.step(model, graph, seed=0).gradients["last.weight"].shape == (4, 6)
    assert nn.parameter.is_lazy(model.last.weight)

    alone = autoplan.optimize(model, graph, "cpu")
    torch.testing.assert_close(alone.predict(model, graph), before)
    alone.train(model, graph, epochs=2, progress=False)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert type(model.last) is nn.Linear
    assert model.last.in_features == 6
    assert not model.last._forward_pre_hooks
    assert model.norm.num_batches_tracked == 2
    torch.testing.assert_close(
        plan.predict(model, graph), copy.deepcopy(model).eval()(graph.x, graph.edge_index).detach()
    )


@pytest.mark.parametrize("devices", ["cpu", "2xcpu"])
def test_no_gradient_is_left_on_the_graph(devices: str) -> None:
    model, graph = Net(), awkward_graph()
    graph.x.requires_grad_()
    strategy = "single" if devices == "cpu" else "data"
    plan = autoplan.optimize(model, graph, devices, strategy=strategy)
    plan.step(model, graph, seed=0)
    if devices == "cpu":
        plan.train(model, graph, epochs=1, progress=False)
    assert graph.x.grad is None


def test_sparse_gradients_stay_on_one_device_and_the_remedy_is_named() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(60, 8, sparse=True)
            self.net = Net()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.net(self.table(x), edge_index)

    model, graph = Table(), awkward_graph()
    graph.x = torch.arange(60)
    with pytest.raises(InfeasibleError, match="sparse=False"):
        autoplan.optimize(model, graph, "2xcpu", strategy="data")
    plan = autoplan.optimize(model, graph, "2xcpu", optimizer="sgd")
    assert plan.step(model, graph, seed=0).gradients["table.weight"].is_sparse
    assert autoplan.verify(plan, model, graph).ok


def test_frozen_parameters_are_not_reported_as_unreached() -> None:
    model, graph = Net(), awkward_graph()
    model.first.lin_l.weight.requires_grad_(False)
    model.unused = nn.Linear(2, 2)
    notes = autoplan.optimize(model, graph, "cpu").data.notes
    (note,) = notes
    assert note.startswith("the step does not use unused (2 parameters, 24 B)")


def test_results_go_by_the_models_own_names() -> None:
    model, graph, weight = Net(), awkward_graph(), torch.tensor([1.0, 2.0, 3.0, 4.0])
    model.second = gnn.Sequential(
        "x, edge_index", [(model.second, "x, edge_index -> x"), nn.BatchNorm1d(4)]
    )

    def loss(out: Tensor, graph: Data) -> Tensor:
        return functional.cross_entropy(out, graph.y, weight=weight)

    plan = autoplan.optimize(model, graph, "cpu", loss=loss)
    step = plan.step(model, graph, seed=0)
    result = plan.train(model, graph, epochs=1, progress=False)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    assert step.gradients.keys() == result.parameters.keys() == parameters.keys()
    assert step.buffers.keys() == result.buffers.keys() == buffers.keys()
    torch.testing.assert_close(dict(result.buffers), buffers)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"epochs": 2.5}, "epochs is 2.5; it must be a whole number"),
        ({"seed": "one"}, "seed is 'one'"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"metrics": [len]}, "metrics is a list; give functions by name"),
        ({"metrics": {"size": 3}}, r"metrics\['size'\] is 3"),
    ],
)
def test_arguments_of_train_are_checked_before_anything_runs(wrong: dict, message: str) -> None:
    model, graph = Net(), awkward_graph()
    plan = autoplan.optimize(model, graph, "cpu")
    with pytest.raises(PlanError, match=message):
        plan.train(model, graph, **{"epochs": 1, "progress": False, **wrong})


def test_what_is_no_model_or_no_optimizer_is_named() -> None:
    graph = awkward_graph()
    with pytest.raises(TraceError, match="the model is a function; give an instance"):
        autoplan.optimize(lambda x: x, graph, "cpu")
    with pytest.raises(TraceError, match="the model is the class Net"):
        autoplan.optimize(Net, graph, "cpu")
    with pytest.raises(PlanError, match="optimizer is None; give a name"):
        autoplan.optimize(Net(), graph, "cpu", optimizer=None)


def test_a_metric_that_is_no_number_is_named() -> None:
    model, graph = Net(), awkward_graph()
    plan = autoplan.optimize(model, graph, "cpu")
    metrics = {"columns": lambda out, graph: out.sum(0)}
    with pytest.raises(
        TraceError, match=r"metric 'columns' is float32 \[4\]; it must be one number"
    ):
        plan.train(model, graph, epochs=1, metrics=metrics, progress=False)


def test_another_model_is_refused_with_the_op_that_differs() -> None:
    graph = awkward_graph()
    plan = autoplan.optimize(Net(), graph, "cpu")
    with pytest.raises(PlanError, match=r"its op \d+ was aten\..* in first.* and is aten\."):
        plan.predict(Net(gnn.GCNConv), graph)
    wider = Net()
    wider.first, wider.second = gnn.SAGEConv(8, 9), gnn.SAGEConv(9, 4)
    with pytest.raises(
        PlanError, match=r"ops are the same, but first\..* was float32 .*; give it as it was"
    ):
        plan.predict(wider, graph)


def test_threads_plan_beside_each_other_and_beside_plain_torch() -> None:
    model, graph = Net(gnn.GCNConv), awkward_graph()
    expected = autoplan.optimize(model, graph, "cpu").data
    done = threading.Event()
    failures: list[BaseException] = []
    plans: list[object] = []

    def plain() -> None:
        alone = copy.deepcopy(model)
        while not done.is_set():
            alone(graph.x, graph.edge_index).sum().backward()

    def plan() -> None:
        plans.append(autoplan.optimize(copy.deepcopy(model), graph, "cpu").data)

    def guarded(function) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    background = threading.Thread(target=guarded, args=(plain,))
    planners = [threading.Thread(target=guarded, args=(plan,)) for _ in range(2)]
    for thread in (background, *planners):
        thread.start()
    for thread in planners:
        thread.join()
    done.set()
    background.join()
    assert not failures
    assert plans == [expected, expected]


class Autocast(Net):
    """In float64 this is another program."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features], [2, E] -> [N, 4]."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x, edge_index).float()


def test_what_cannot_be_checked_is_not_shared_out_and_still_planned() -> None:
    model, graph = Autocast(), awkward_graph()
    plan = autoplan.optimize(model, graph, "2xcpu")
    assert plan.strategy == "single"
    assert plan.step(model, graph, seed=0).loss.isfinite()
    with pytest.raises(InfeasibleError, match="in float64 this model is another program"):
        autoplan.optimize(model, graph, "2xcpu", strategy="data")


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_gradients_are_refused(hook: str) -> None:
    model = Net()
    getattr(model.first.lin_l.weight, hook)(lambda value: None)
    with pytest.raises(TraceError, match=r"'first\.lin_l\.weight' has a hook on its gradient"):
        autoplan.optimize(model, awkward_graph(), "cpu")


def test_a_step_of_plain_torch_leaves_buffers_where_they_were() -> None:
    model, graph = Net(), awkward_graph()
    model.first.lin_r = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6))
    plan = autoplan.optimize(model, graph, "cpu")
    first, again = (plan.step(model, graph, seed=0) for _ in range(2))
    torch.testing.assert_close(dict(first.buffers), dict(again.buffers))
    assert autoplan.verify(plan, model, graph).ok


def test_outputs_of_plain_torch_are_detached_wherever_they_lie() -> None:
    class Counting(Net):
        calls = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
            self.calls += 1  # Python state: the trace is concrete
            return {"out": super().forward(x, edge_index)}

    model, graph = Counting(), awkward_graph()
    plan = autoplan.optimize(model, graph, "cpu", loss=lambda out, graph: out["out"].mean())
    assert plan.data.generality == "concrete"
    outputs = plan.step(model, graph, seed=0).outputs
    assert not outputs["out"].requires_grad
    assert model.calls == 0


def test_training_in_plain_torch_writes_nothing_to_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    # torch's allocator notes what was there before the step that is profiled and goes during it
    class Counting(Net):
        calls = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x, edge_index)

    model, graph = Counting(), awkward_graph()
    plan = autoplan.optimize(model, graph, "cpu")
    assert plan.data.generality == "concrete"
    plan.train(model, graph, epochs=4, progress=False)
    assert capfd.readouterr().err == ""
