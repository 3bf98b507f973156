"""Programs bound to models: guards, modes, live parameters."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from autoplan.errors import GuardError
from autoplan.program.binding import (
    bind,
    check_input_guards,
    input_check,
    input_guards,
    written_state,
)
from autoplan.program.modes import portable
from tests.trace.trapping import graph, program_of


def dropout(model, x, edge_index):
    return model.linear(F.dropout(model.conv(x, edge_index), 0.4, training=model.training))


def late_guard(model, x, edge_index):
    h = model.norm(model.conv(x, edge_index))
    return h if edge_index.max() > 35 else h * 2


def test_modes_are_guarded() -> None:
    model, program = program_of(dropout)
    run = bind(program, model)
    x = graph(131)
    run(*x)
    with torch.no_grad(), pytest.raises(GuardError, match="recorded in"):
        run(*x)
    with torch.autocast("cpu"), pytest.raises(GuardError, match="recorded in"):
        run(*x)
    model.linear.eval()
    with pytest.raises(GuardError, match="training mode of 'linear'"):
        run(*x)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, edge_index: (x.double(), edge_index), "dtype was torch.float32"),
        (lambda x, edge_index: (x[:, :7].contiguous(), edge_index), r"size\(1\) was 8"),
        (lambda x, edge_index: (x, edge_index[:, :0]), r"size\(1\) > 1 was True"),
        (lambda x, edge_index: (x, edge_index, 1), "another structure"),
        (lambda x, edge_index: (x, 3), "is a tensor, or no longer"),
        (lambda x, edge_index: (x, x), "one tensor, recorded as two"),
        (lambda x, edge_index: (x.t().contiguous().t(), edge_index), "is_contiguous"),
    ],
)
def test_inputs_are_guarded(change, said: str) -> None:
    model, program = program_of(dropout)
    inputs = change(*graph(131))
    with pytest.raises(GuardError, match=said):
        bind(program, model)(*inputs)
    with pytest.raises(GuardError, match=said):
        check_input_guards(program, inputs, model)


def test_input_guards_leave_contents_alone() -> None:
    model, program = program_of(late_guard)
    check_input_guards(program, graph(20), model)  # edge_index.max() < 35 is not looked at
    with pytest.raises(GuardError, match="was True when recorded"):
        bind(program, model)(*graph(20))
    texts = [guard.test.text for guard in input_guards(program)]
    assert not any(text.startswith("i") for text in texts)
    assert f"{program.inputs[0]}.dtype" in texts


def test_size_guards_of_inputs_are_input_guards() -> None:
    def body(model, x, edge_index):
        return model.linear(x) if x.size(0) < 100 else x

    model, program = program_of(body)
    check_input_guards(program, graph(99), model)
    with pytest.raises(GuardError, match=r"test_binding\.py"):
        check_input_guards(program, graph(100), model)
    check = input_check(program, model)
    for size in (99, 100, 98):
        if size < 100:
            check(graph(size))
        else:
            with pytest.raises(GuardError, match=r"test_binding\.py"):
                check(graph(size))


def test_a_late_guard_puts_buffers_back() -> None:
    model, program = program_of(late_guard)
    written = {program.state[i].path for i in written_state(program)}
    assert written == {
        "memory",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }
    before = repr(model.state_dict())
    with pytest.raises(GuardError):
        bind(program, model)(*graph(20))
    assert repr(model.state_dict()) == before
    assert torch.is_grad_enabled()


def test_dropout_draws_anew() -> None:
    model, program = program_of(dropout)
    run = bind(program, model)
    x = graph(131)
    assert not torch.equal(run(*x), run(*x))


def test_parameters_are_read_at_each_call() -> None:
    model, program = program_of(lambda model, x, edge_index: model.linear(x) * model.scale.item())
    run = bind(program, model)
    x = graph(131)
    with torch.no_grad():
        model.scale.fill_(3.0)
    model.linear.weight = nn.Parameter(model.linear.weight * 2)
    with portable():
        assert torch.equal(run(*x), model(*x))
