"""Which of the user's functions and variables a step reaches."""

from __future__ import annotations

import functools

import torch.nn as nn
import torch.nn.functional as F

from autoplan.trace.model_state import ModelState
from autoplan.trace.user_code import UserCode, is_library, variables

LIMIT = 3
HISTORY: list[int] = []


def helper():
    HISTORY.append(LIMIT)


def scaled(factor, out):
    helper()
    return out * factor


class Schedule:
    def __init__(self):
        self.step = 0

    def advance(self):
        self.step += 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        schedule = Schedule()
        self.linear = nn.Linear(2, 2)
        self.metrics = {"scaled": functools.partial(scaled, 2.0)}
        self.loss = lambda out: (schedule.advance(), F.relu(out))

    def forward(self, x):
        return self.loss(self.linear(x))


def test_functions_are_found_through_attributes_partials_and_names() -> None:
    names = {function.__name__ for function in UserCode(Model()).functions}
    assert {"forward", "<lambda>", "scaled", "helper", "advance"} <= names
    assert "relu" not in names


def test_variables_are_closures_and_named_globals() -> None:
    found = {name: value for name, _, value in variables(helper)}
    assert found == {"HISTORY": HISTORY, "LIMIT": 3}
    assert [name for name, _, _ in variables(Model().loss)] == ["schedule", "F"]


def test_libraries_are_not_the_users() -> None:
    assert is_library("torch_geometric.nn")
    assert is_library("collections.abc")
    assert not is_library("__main__")
    assert not is_library(__name__)


def test_changes_of_python_state_show_and_are_put_back() -> None:
    model = Model()
    state = ModelState(model)
    with state.kept():
        before = state.python()
        model.loss(model.linear.weight)
        helper()
        after = state.python()
        changed = {name.rpartition(".")[2] for name in after if after[name] != before.get(name)}
        assert {"schedule", "HISTORY"} <= changed
    assert HISTORY == []
    assert state.python() == before
