from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from autoplan.errors import ExecutionError, GuardError, PlanError
from autoplan.execute.lockstep import StepResult, run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.opgraph import OpStrategy
from autoplan.partition.halo import build_shards
from autoplan.program.context import RankContext
from tests.execute.hand_made import ATTRIBUTES, Step, choices, opgraph_of, sample, traced

NODES, EDGES = 50, 160
GRAPH = dict(zip(ATTRIBUTES, sample(NODES, EDGES, 9), strict=True))
WAYS = {"R": (), "O": ("O", "S"), "H": ("H", "O", "S"), "O, sums reduced": ("O",)}


def shards_of(parts):
    """Uneven; with three ranks or more rank 2 owns one node, which has no label and no incoming edge."""
    owner = np.random.default_rng(parts).integers(0, parts, NODES)
    if parts > 2:
        owner[owner == 2] = 0
        lonely = np.setdiff1d(np.arange(NODES), GRAPH["edge_index"][1].numpy())
        owner[next(n for n in lonely if not GRAPH["mask"][n])] = 2
    return build_shards(owner, {"edge": GRAPH["edge_index"].numpy()}, {}, parts=parts)


@pytest.fixture(scope="module", params=["masked", "selected"])
def model(request):
    torch.manual_seed(0)
    module = Step(select=request.param == "selected").double()
    program = traced(module)
    return module, program, opgraph_of(program)


def run(model, chosen, parts=1, **more) -> StepResult:
    module, program, opgraph = model
    written = rank_program(program, opgraph, chosen)
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    return run_lockstep(written, shards_of(parts), GRAPH, parameters, buffers, seed=3, **more)


def assert_equal(found: StepResult, expected: StepResult) -> None:
    assert torch.allclose(found.loss, expected.loss, rtol=0, atol=1e-12)
    for mine, wanted in zip(found.outputs, expected.outputs, strict=True):
        assert torch.allclose(mine, wanted, rtol=0, atol=1e-12)
    for name, wanted in expected.gradients.items():
        assert torch.allclose(found.gradients[name], wanted, rtol=0, atol=1e-12), name
    for name, wanted in expected.buffers.items():
        assert torch.equal(found.buffers[name], wanted)


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_one_devices_numbers(model, parts, way):
    chosen = choices(model[2], *WAYS[way])
    assert_equal(run(model, chosen, parts), run(model, {}))


def test_one_device_is_eager_without_dropout():
    torch.manual_seed(0)
    module = Step(dropout=0.0).double()
    program = traced(module)
    found = run((module, program, opgraph_of(program)), {})
    loss, out = module(*GRAPH.values())
    loss.backward()
    assert torch.equal(found.loss, loss.detach())
    assert torch.equal(found.outputs[0], out.detach())
    for name, parameter in module.named_parameters():
        assert torch.equal(found.gradients[name], parameter.grad), name
    assert found.buffers["steps"] == 1


def test_steps_draw_differently(model):
    assert not torch.equal(run(model, {}, step=0).loss, run(model, {}, step=1).loss)


def test_the_text_says_what_it_needs(model):
    _, program, opgraph = model
    whole = rank_program(program, opgraph, {})
    assert {(i.attribute, i.state) for i in whole.inputs} == {(a, "R") for a in ATTRIBUTES}
    assert not whole.transitions
    shared = rank_program(program, opgraph, choices(opgraph, "O", "S"))
    loaded = {(i.attribute, i.state): i for i in shared.inputs}
    assert ("edge_index", "O") in loaded
    assert (loaded["edge_index", "O"].dim, loaded["edge_index", "O"].axis) == (1, "edge")
    exchanged = [(t.exchange, t.differentiable) for t in shared.transitions if t.exchange != "none"]
    assert exchanged.count(("halo_exchange", True)) == 2
    assert ("all_reduce", True) in exchanged
    for written in (whole, shared):
        assert set(written.trained) == set(written.parameters)
        assert written.buffers == written.written == ("steps",)
        assert written.outputs[0].state == "R"
    assert "v14_H" not in whole.source


def test_a_transition_is_made_once_and_right_before_its_need(model):
    _, program, opgraph = model
    lines = rank_program(program, opgraph, choices(opgraph, "O")).source.splitlines()
    (at,) = [k for k, line in enumerate(lines) if "v14_H = exchange.halo_exchange" in line]
    following = [line for line in lines[at + 1 :] if not line.strip().startswith("del")]
    assert "aten_index_select(v14_H" in following[0]


def test_tensors_are_freed_after_their_last_use(model):
    _, program, opgraph = model
    source = rank_program(program, opgraph, {}).source
    body = source.splitlines()
    for name in ("v14_R", "v15_R", "v22_R"):
        uses = [k for k, line in enumerate(body) if name in line]
        assert body[uses[-1]].strip().startswith("del")
        assert uses[-1] - uses[-2] == 1


def test_programs_survive_pickling(model):
    module, program, opgraph = model
    written = pickle.loads(pickle.dumps(rank_program(program, opgraph, choices(opgraph, "O"))))
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    found = run_lockstep(written, shards_of(2), GRAPH, parameters, buffers, seed=3)
    assert_equal(found, run(model, {}))


def test_the_users_tensors_stay_as_they_are(model):
    module, *_ = model
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run(model, choices(model[2], "O"), parts=2)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_choices_are_checked(model):
    _, program, opgraph = model
    op = opgraph.ops[0]
    with pytest.raises(PlanError, match=rf"op {op.index} .* has no strategy 'F' but R"):
        rank_program(program, opgraph, {op.index: "F"})
    with pytest.raises(PlanError, match="op 99999, which this program does not have"):
        rank_program(program, opgraph, {99999: "R"})
    alone = replace(opgraph, single_only="Reversal.apply is a Python function")
    with pytest.raises(PlanError, match=r"cannot run as 'O': Reversal\.apply"):
        rank_program(program, alone, {op.index: "O"})


def test_what_is_missing_is_named(model):
    module, program, opgraph = model
    written = rank_program(program, opgraph, {})
    context = RankContext.whole({"node": NODES, "edge": EDGES})
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    with pytest.raises(PlanError, match=r"reads input \('edge_index', 'R'\)"):
        written.run(context, parameters, buffers, {})
    parameters.pop("first.lin.bias")
    with pytest.raises(PlanError, match=r"reads parameter 'first\.lin\.bias'"):
        written.run(context, parameters, buffers, {})
    fewer = {name: value for name, value in GRAPH.items() if name != "y"}
    with pytest.raises(PlanError, match=r"graph\.y, which this graph does not have"):
        run_lockstep(written, shards_of(1), fewer, dict(module.named_parameters()), buffers)


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Small(nn.Module):
    """``kind`` says what is special about it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 3)
        self.kind = kind

    def forward(self, x, edge_index, y, mask):
        out = self.lin(x)
        if self.kind == "reversal":
            out = Reversal.apply(out)
        elif self.kind == "guard" and mask.any():
            out = out * 2
        elif self.kind == "constant":
            out = out * torch.tensor([1.0, float(x.size(0)), 3.0], dtype=x.dtype)
        elif self.kind == "no grad":
            with torch.no_grad():
                scale = out.mean()
            out = out * scale
        elif self.kind == "list":
            out = torch.cat([part * 2 for part in out.split([1, 2], 1)], 1)
        elif self.kind == "selected":
            # rows of a selection are put into one device's order by their keys
            return out.square().mean(), out[mask], edge_index[0], 7, x.size(0)
        return out.square().mean(), out


def small(kind):
    torch.manual_seed(0)
    module = Small(kind).double()
    program = traced(module)
    return module, program, opgraph_of(program)


@pytest.mark.parametrize("kind", ["constant", "no grad", "list", "selected"])
def test_special_steps(kind):
    model = small(kind)
    loss, out, *numbers = model[0](*GRAPH.values())
    loss.backward()
    for parts, way in ((1, ()), (3, ("O", "S")), (2, ("O",))):
        found = run(model, choices(model[2], *way), parts)
        assert torch.allclose(found.outputs[0], out, rtol=0, atol=1e-12)
        for mine, wanted in zip(found.outputs[1:], numbers, strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(wanted))
        for name, parameter in model[0].named_parameters():
            assert torch.allclose(found.gradients[name], parameter.grad, rtol=0, atol=1e-12)


def test_a_failing_op_shows_its_line():
    module, program, opgraph = small("plain")
    written = rank_program(program, opgraph, {})
    narrow = GRAPH | {"x": GRAPH["x"][:, :4]}
    with pytest.raises(ExecutionError) as error:
        run_lockstep(written, shards_of(1), narrow, dict(module.named_parameters()), {})
    assert "aten_addmm(" in error.value.worker_traceback


def test_guards_on_values_hold_at_run_time(monkeypatch):
    model = small("guard")
    run(model, {})
    monkeypatch.setitem(GRAPH, "mask", torch.zeros(NODES, dtype=torch.bool))
    with pytest.raises(GuardError, match=r"test_rewrite\.py:\d+"):
        run(model, {})


def test_python_functions_of_the_user_are_refused_by_name():
    _, program, opgraph = small("reversal")
    with pytest.raises(PlanError, match=r"test_rewrite\.py.*python\.Reversal\.apply"):
        rank_program(program, opgraph, {})


def test_a_strategy_may_ask_for_more_than_an_exchange_can_bring(model):
    """A selection's rows have another order in a shard: O -> R does not exist for them."""
    _, program, opgraph = model
    selections = [op for op in opgraph.ops if op.name == "aten.index.Tensor"]
    if not selections:
        pytest.skip("this model selects nothing")
    chosen = {selections[0].index: "O"}
    with pytest.raises(PlanError, match="produced in state O and needed in R"):
        rank_program(program, opgraph, chosen)
    assert isinstance(selections[0].strategies[1], OpStrategy)
