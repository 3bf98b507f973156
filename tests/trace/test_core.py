"""What `generalise_module` gives and leaves alone, over and above the traps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, PNAConv, SAGEConv

from autoplan.errors import TraceError
from autoplan.program.ir import ConstantStep, Expression, OpStep
from autoplan.trace.core import generalise_module
from autoplan.trace.validation import validate
from tests.trace.trapping import Net, graph, program_of, refusal_of, samples


def dropout(model, x, edge_index):
    return model.linear(F.dropout(model.conv(x, edge_index), 0.4, training=model.training))


CONVOLUTIONS = {
    "gcn": lambda: GCNConv(8, 8),
    "gat": lambda: GATConv(8, 4, heads=2),
    "sage": lambda: SAGEConv(8, 8),
    "sage max": lambda: SAGEConv(8, 8, aggr="max"),
    "gin": lambda: GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.BatchNorm1d(8))),
    "pna": lambda: PNAConv(
        8, 8, ["mean", "max", "std"], ["identity", "amplification"], deg=torch.tensor([0, 3, 5, 1])
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("training", [True, False])
def test_convolutions_are_exact_on_another_size(name: str, training: bool) -> None:
    model = CONVOLUTIONS[name]().train(training)
    program = generalise_module(model, samples()).program
    assert program is not None
    assert validate(program, model, graph(131)) == {"outputs": 0, "gradients": 0, "state": 0}


def test_a_program_for_double_has_the_same_ops() -> None:
    model, program = program_of(dropout)
    in_double = [(x.double(), edge_index) for x, edge_index in samples()]
    again = generalise_module(model.double(), in_double).program
    assert again is not None
    names = [[str(s.func) for s in p.steps if isinstance(s, OpStep)] for p in (program, again)]
    assert names[0] == names[1]


def test_steps_name_their_module_and_place() -> None:
    _, program = program_of(dropout)
    modules = [step.module for step in program.steps if isinstance(step, OpStep)]
    assert list(dict.fromkeys(modules)) == ["conv", "conv.lin", "conv.aggr_module", "", "linear"]
    random_ops = [s for s in program.steps if isinstance(s, OpStep) and "bernoulli" in str(s.func)]
    assert [step.where.split(":")[0] for step in random_ops] == ["test_core.py"]


def test_samples_tell_shapes_and_shared_memory() -> None:
    def body(model, x, edge_index):
        h = model.linear(x)
        return h.view(-1) + h.t().reshape(-1)

    _, program = program_of(body)
    assert len(program.samples) == 3
    assert [sample.shapes[program.inputs[0]] for sample in program.samples] == [
        (50, 8),
        (61, 8),
        (75, 8),
    ]
    (view,) = [
        step.outs[0]
        for step in program.steps
        if isinstance(step, OpStep) and str(step.func) == "aten.view.default"
    ]
    sample = program.samples[0]
    assert sample.alias[view] != view
    assert sample.shapes[sample.alias[view]] == (50, 8)


def test_random_state_and_module_are_untouched() -> None:
    model = Net(dropout, schedule={"steps": [1, 2]}, last=None)
    before = (
        random.getstate(),
        np.random.get_state()[1].tobytes(),
        torch.get_rng_state().tolist(),
        repr(model.state_dict()),
        repr(sorted(vars(model))),
    )
    generalise_module(model, samples())
    after = (
        random.getstate(),
        np.random.get_state()[1].tobytes(),
        torch.get_rng_state().tolist(),
        repr(model.state_dict()),
        repr(sorted(vars(model))),
    )
    assert before == after


def test_refused_python_state_is_put_back() -> None:
    def body(model, x, edge_index):
        model.schedule["steps"].append(x.size(0))
        np.random.random()
        return model.linear(x)

    model = Net(body, schedule={"steps": [1, 2]})
    numpy = np.random.get_state()[2]
    assert generalise_module(model, samples()).program is None
    assert model.schedule == {"steps": [1, 2]}
    assert np.random.get_state()[2] == numpy


def test_a_refused_model_still_has_a_recording() -> None:
    def body(model, x, edge_index):
        return model.conv(x, edge_index) * float(np.linalg.norm(x.numpy()))

    traced = generalise_module(Net(body), samples())
    assert traced.program is None
    assert traced.recording is not None
    (sample,) = traced.recording.samples
    assert sample.shapes[traced.recording.inputs[0]] == (50, 8)
    numbers = [
        argument
        for step in traced.recording.steps
        if isinstance(step, OpStep)
        for argument in step.args
        if isinstance(argument, Expression) and not argument.text.startswith("v")
    ]
    assert numbers == []


def test_a_model_that_fails_is_an_error() -> None:
    def body(model, x, edge_index):
        return x @ x

    with pytest.raises(TraceError, match="fails on a sample") as caught:
        generalise_module(Net(body), samples())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_too_few_samples() -> None:
    with pytest.raises(ValueError, match="3 samples"):
        generalise_module(Net(dropout), samples()[:3])


@pytest.mark.parametrize("sizes", [(50, 60, 70, 96), (51, 61, 71, 96), (50, 53, 59, 96)])
def test_samples_must_not_share_a_residue(sizes: tuple[int, ...]) -> None:
    """Padding by ``n % 2`` looks constant where every size is odd."""

    def body(model, x, edge_index):
        return F.pad(model.conv(x, edge_index), (0, 0, 0, x.size(0) % 2))

    traced = generalise_module(Net(body), samples(sizes=sizes))
    assert traced.program is None
    assert "share a residue" in (traced.reason or "")


def test_lazy_layers_are_initialised() -> None:
    assert generalise_module(SAGEConv(-1, 4), samples()).program is not None


def test_forward_hooks_are_recorded_and_backward_hooks_refused() -> None:
    model = Net(dropout)
    model.linear.register_forward_hook(lambda module, inputs, output: output * 2)
    program = generalise_module(model, samples()).program
    assert program is not None
    assert validate(program, model, graph(131))["outputs"] == 0
    model.linear.register_full_backward_hook(lambda module, given, made: None)
    traced = generalise_module(model, samples())
    assert "linear (Linear) has backward hooks" in (traced.reason or "")


def test_without_gradients() -> None:
    with torch.no_grad():
        model, program = program_of(dropout)
        assert not program.modes.grad
        assert validate(program, model, graph(131))["outputs"] == 0


class Step(nn.Module):
    """As `autoplan.trace.step` wraps a model and a loss: tensors in, (loss, output) out."""

    def __init__(self, model, loss):
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x, edge_index, y, mask):
        data = Data(x=x, edge_index=edge_index, y=y, train_mask=mask)
        out = self.model(data.x, data.edge_index)
        return self.loss(out, data), out


def step_samples() -> list:
    made = []
    for x, edge_index in samples():
        y = edge_index[0, : x.size(0)] % 8
        made.append((x, edge_index, y, y < 5))
    return made


def test_a_loss_held_as_an_attribute() -> None:
    def loss(out, data):
        labelled = int(data.train_mask.sum())
        entropy = F.cross_entropy(out[data.train_mask], data.y[data.train_mask], reduction="sum")
        return entropy / labelled + float(data.num_nodes) / len(data.y) - 1

    step = Step(GCNConv(8, 8), loss)
    traced = generalise_module(step, step_samples())
    assert traced.program is not None, traced.reason
    assert not any(
        isinstance(s, ConstantStep) and s.value is not None for s in traced.program.steps
    )


def test_a_loss_that_closes_over_a_tensor() -> None:
    weight = torch.ones(8)
    step = Step(GCNConv(8, 8), lambda out, data: F.cross_entropy(out, data.y, weight=weight))
    reason = generalise_module(step, step_samples()).reason or ""
    assert "a tensor of shape (8,)" in reason
    assert "test_core.py" in reason


def test_a_loss_that_counts() -> None:
    calls = 0

    def loss(out, data):
        nonlocal calls
        calls += 1
        return F.cross_entropy(out, data.y) * (1 if calls < 100 else 2)

    step = Step(GCNConv(8, 8), loss)
    reason = generalise_module(step, step_samples()).reason or ""
    assert "changes Python state" in reason
    assert "calls" in reason
    assert calls == 0


class Counter:
    """State in an object that a loss holds."""

    def __init__(self):
        self.calls = 0

    def weight(self):
        self.calls += 1
        return 1.0 if self.calls < 100 else 2.0


def test_a_loss_that_counts_in_an_object() -> None:
    counter = Counter()
    step = Step(GCNConv(8, 8), lambda out, data: F.cross_entropy(out, data.y) * counter.weight())
    assert "changes Python state" in (generalise_module(step, step_samples()).reason or "")
    assert counter.calls == 0


def test_numbers_from_an_earlier_pass() -> None:
    seen = []

    def body(model, x, edge_index):
        seen.append(x.size(0))
        return model.linear(x) * seen[0]

    assert refusal_of(body)
