from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, PNA, GCNConv, GraphSAGE, global_mean_pool

from autoplan.execute.loop import default_dtype
from autoplan.program.binding import bind
from autoplan.trace.prepare import prepare_step
from autoplan.trace.step import TracedStep, trace_step
from autoplan.trace.step_module import user_name
from tests.trace.graphs import CLASSES, FEATURES, SIZES, masked_loss, node_graph


def accuracy(out, graph):
    return (out.argmax(dim=1) == graph.y)[graph.val_mask].float().mean()


def degrees(graph: Data) -> torch.Tensor:
    return torch.bincount(torch.bincount(graph.edge_index[1], minlength=300))


MODELS = {
    "GCN": lambda: GCN(*SIZES, dropout=0.5),
    "GCN, cached": lambda: GCN(*SIZES, cached=True),
    "GCN, lazy": lambda: GCN(-1, 16, 2, CLASSES),
    "GCN, jumping knowledge": lambda: GCN(FEATURES, 16, 3, CLASSES, jk="cat"),
    "GAT": lambda: GAT(*SIZES, heads=4, dropout=0.5),
    "SAGE, mean": lambda: GraphSAGE(*SIZES),
    "SAGE, max": lambda: GraphSAGE(*SIZES, aggr="max"),
    "GIN, batch norm": lambda: GIN(*SIZES, norm="batch_norm"),
    "PNA": lambda: PNA(
        *SIZES,
        aggregators=["mean", "max", "std"],
        scalers=["identity", "amplification"],
        deg=degrees(node_graph()),
    ),
}


def check_against_eager(step: TracedStep, graph: Data) -> None:
    """The program on the real graph gives what the recorded module gives, with gradients."""
    tensors = step.schema.tensors(graph)
    results = []
    for run in (bind(step.program, step.module), step.module):
        torch.manual_seed(7)
        step.module.zero_grad()
        out = run(*tensors)
        first = out[0] if isinstance(out, tuple) else out
        first.sum().backward()
        grads = {name: p.grad for name, p in step.module.named_parameters()}
        results.append((first.detach(), copy.deepcopy(grads)))
    (value, grads), (wanted, wanted_grads) = results
    assert torch.allclose(value, wanted, rtol=1e-5, atol=1e-6)
    for name, gradient in wanted_grads.items():
        assert (gradient is None) == (grads[name] is None), name
        if gradient is not None:
            assert torch.allclose(grads[name], gradient, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_models_are_general(name, training):
    graph = node_graph()
    metrics = None if training else {"accuracy": accuracy}
    step = trace_step(MODELS[name](), graph, training=training, metrics=metrics)
    assert step.reason is None
    assert step.has_loss == training
    assert len(step.sample_rows) == len(step.program.samples) == 4
    assert step.program.input_paths is not None
    assert len(step.program.inputs) == len(step.schema.attributes)
    if "lazy" not in name:
        check_against_eager(step, graph)


def test_evaluation_returns_output_and_metrics():
    graph, model = node_graph(), GCN(*SIZES)
    step = trace_step(model, graph, training=False, metrics={"accuracy": accuracy})
    out, values = bind(step.program, step.module)(*step.schema.tensors(graph))
    model.eval()
    expected = model(graph.x, graph.edge_index)
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.equal(values["accuracy"], accuracy(expected, graph))
    assert step.metrics == ("accuracy",)


@pytest.mark.parametrize(
    ("training", "loss", "metrics", "kinds"),
    [
        (True, masked_loss, None, "loss out"),
        (True, masked_loss, {"a": accuracy}, "loss out metrics"),
        (False, None, {"a": accuracy}, "out metrics"),
        (False, masked_loss, None, "loss out"),
        (False, None, None, "out"),
    ],
)
def test_what_a_step_returns(training, loss, metrics, kinds):
    step = prepare_step(GCN(*SIZES), node_graph(), loss, training=training, metrics=metrics)
    result = step.module(*step.samples[0].tensors)
    parts = result if isinstance(result, tuple) else (result,)
    found = [
        "metrics" if isinstance(part, dict) else "out" if part.dim() else "loss" for part in parts
    ]
    assert " ".join(found) == kinds


class Remembering(nn.Module):
    """Buffers, caches, a gradient and a Python attribute that planning must not change."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, 16, cached=True)
        self.norm = nn.BatchNorm1d(16)
        self.second = GCNConv(16, CLASSES)
        self.calls = 0

    def forward(self, data):
        h = self.norm(self.first(data.x, data.edge_index)).relu()
        return self.second(F.dropout(h, training=self.training), data.edge_index)


def test_nothing_of_the_user_is_touched():
    graph, model = node_graph(), Remembering()
    masked_loss(model(graph), graph).backward()
    model.norm.eval()
    cache = model.first._cached_edge_index
    state = copy.deepcopy(model.state_dict())
    grads = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    tensors = {name: value.clone() for name, value in graph.to_dict().items()}
    modes = [module.training for module in model.modules()]
    attributes = [dict(vars(module)) for module in model.modules()]
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()

    for training in (True, False):
        trace_step(model, graph, masked_loss, training=training, metrics={"accuracy": accuracy})

    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before[1:]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, grads[name]) for name, p in model.named_parameters())
    assert all(torch.equal(value, tensors[name]) for name, value in graph.to_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert model.first._cached_edge_index is cache
    assert model.first.cached
    for module, kept in zip(model.modules(), attributes, strict=True):
        assert vars(module).keys() == kept.keys()
        assert all(vars(module)[name] is value for name, value in kept.items())


def test_same_call_same_program():
    graph, model = node_graph(), GCN(*SIZES, dropout=0.5)
    one, other = (trace_step(model, graph).program for _ in range(2))
    assert [repr(step) for step in one.steps] == [repr(step) for step in other.steps]
    assert one.inputs == other.inputs


def test_lazy_model_is_sized_on_the_copy_only():
    model = GCN(-1, 16, 2, CLASSES)
    step = trace_step(model, node_graph())
    assert step.lazy == ("convs.0.lin.weight",)
    assert nn.parameter.is_lazy(model.convs[0].lin.weight)
    assert step.module.get_parameter("model.convs.0.lin.weight").shape == (16, FEATURES)


def test_paths_are_the_users_own():
    step = trace_step(GCN(*SIZES), node_graph())
    assert set(step.parameters) == {user_name(slot.path) for slot in step.program.state}
    assert user_name("model") == ""
    assert user_name("modelling.x") == "modelling.x"


def test_state_tensors_are_the_users_own():
    model, weight = GCN(*SIZES), torch.rand(CLASSES)
    step = trace_step(model, node_graph(), lambda out, g: F.cross_entropy(out, g.y, weight=weight))
    found = step.state_tensors(model)
    assert found["model.convs.0.lin.weight"] is model.convs[0].lin.weight
    assert torch.equal(found["captured.weight"], weight)


def test_indices_on_the_graph_are_followed():
    graph, model = node_graph(), GCN(*SIZES)
    graph.train_idx = graph.train_mask.nonzero().view(-1)
    step = trace_step(
        model, graph, lambda out, g: F.cross_entropy(out[g.train_idx], g.y[g.train_idx])
    )
    assert step.reason is None
    check_against_eager(step, graph)


# ---- graphs


def test_graph_of_the_users_class_with_its_constants():
    class Molecule(Data):
        @property
        def scaled(self):
            return self.x * self.factor

    graph = Molecule(**node_graph().to_dict(), factor=2.0, name="ring")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES)

        def forward(self, data):
            assert data.name == "ring"
            data.x = data.scaled
            return self.conv(data.x, data.edge_index) / data.num_nodes

    model = Net()
    step = trace_step(model, graph, training=False)
    assert step.reason is None
    out = bind(step.program, step.module)(*step.schema.tensors(graph))
    expected = model.conv(graph.x * 2, graph.edge_index) / 300
    assert torch.allclose(out, expected, atol=1e-7)


@pytest.mark.parametrize("explicit", [True, False])
def test_node_count_follows_the_sample(explicit):
    graph = Data(
        positions=torch.randn(300, FEATURES), edge_index=node_graph().edge_index, num_nodes=300
    )
    if not explicit:
        graph.x = graph.positions

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(FEATURES, CLASSES)

        def forward(self, data):
            return self.lin(data.positions) / data.num_nodes

    step = trace_step(Net(), graph, training=False)
    assert step.reason is None
    check_against_eager(step, graph)


def test_link_prediction():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, 8)

        def forward(self, x, edge_index, edge_label_index, edge_weight):
            h = self.conv(x, edge_index, edge_weight)
            return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=1)

    graph = node_graph(
        edge_label_index=torch.randint(0, 300, (2, 70)),
        edge_label=torch.randint(0, 2, (70,)).float(),
        edge_weight=torch.rand(900),
    )
    del graph.y
    step = trace_step(
        Net(),
        graph,
        lambda out, g: F.binary_cross_entropy_with_logits(out, g.edge_label),
    )
    assert step.reason is None
    check_against_eager(step, graph)


def test_readout_over_a_batch():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, 8)
            self.head = nn.Linear(8, CLASSES)

        def forward(self, x, edge_index, batch):
            return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))

    graph = node_graph(batch=torch.arange(300) // 10, y=torch.randint(0, CLASSES, (30,)))
    step = trace_step(Net(), graph)
    assert step.reason is None
    assert "cross-entropy over all rows" in step.loss
    check_against_eager(step, graph)


def test_what_is_not_general_says_why_and_keeps_a_recording():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES)
            self.calls = 0

        def forward(self, x, edge_index):
            self.calls += 1
            return self.conv(x, edge_index) / self.calls

    model = Counting()
    step = trace_step(model, node_graph())
    assert step.program is None
    assert "Python state" in step.reason
    assert step.recording is not None
    assert step.state_tensors(model)["model.conv.bias"] is model.conv.bias
    assert model.calls == 0


def test_one_graph_program_serves_another_size():
    graph = node_graph()
    step = trace_step(GCN(*SIZES), graph)
    other = Data(
        x=torch.randn(50, FEATURES),
        edge_index=torch.randint(0, 50, (2, 77)),
        y=torch.randint(0, CLASSES, (50,)),
    )
    for name in ("train_mask", "val_mask", "test_mask"):
        other[name] = torch.rand(50) < 0.5
    check_against_eager(step, other)


def test_float64():
    graph, model, weight = node_graph(), GCN(*SIZES), torch.rand(CLASSES)
    step = trace_step(
        model,
        graph,
        lambda out, g: F.cross_entropy(out, g.y, weight=weight),
        dtype=torch.float64,
    )
    plain = trace_step(model, graph, lambda out, g: F.cross_entropy(out, g.y, weight=weight))
    assert step.schema["x"].dtype == "float64"
    names = [[getattr(s, "func", type(s)) for s in t.program.steps] for t in (step, plain)]
    assert names[0] == names[1]
    doubled = graph.clone().apply(lambda t: t.double() if t.is_floating_point() else t)
    with default_dtype(torch.float64):  # part of what surrounds the program
        result, _ = bind(step.program, step.module)(*step.schema.tensors(doubled))
    assert result.dtype == torch.float64
    assert model.convs[0].lin.weight.dtype == torch.float32


def test_table_looked_up_by_ids_on_the_graph():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(300, 8)
            self.conv = GCNConv(8, CLASSES)

        def forward(self, x, edge_index):
            return self.conv(self.table(x), edge_index)

    graph = node_graph(x=torch.arange(300))
    step = trace_step(Net(), graph)
    assert step.reason is None
    check_against_eager(step, graph)
