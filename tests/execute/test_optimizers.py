from __future__ import annotations

from typing import Any

import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.optimizers import OPTIMIZERS, OptimizerSpec


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_steps(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = OptimizerSpec(name, {"lr": 0.1, "weight_decay": 0.01}).build([weight])
    weight.sum().backward()
    optimizer.step()
    assert bool((weight < 1).all())


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(PlanError, match=r"no optimizer 'Adam'; did you mean 'adam'\? .*adamw.*sgd"):
        OptimizerSpec("Adam")


def test_an_unknown_argument_lists_those_it_takes() -> None:
    with pytest.raises(PlanError, match=r"'sgd' has no argument 'betas'; it takes lr, momentum"):
        OptimizerSpec("sgd", {"betas": (0.9, 0.99)})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lr": -1.0}, "'sgd': Invalid learning rate: -1"),
        ({"nesterov": True}, "'sgd': Nesterov momentum requires a momentum"),
        ({"lr": float("nan")}, "'sgd': lr is nan; it must be finite"),
        ({"lr": torch.tensor(float("inf"))}, "'sgd': lr is inf; it must be finite"),
        ({"lr": "fast"}, "'sgd': '<' not supported"),
        ({"differentiable": True}, "'sgd' makes no step with differentiable=True: RuntimeError"),
    ],
)
def test_values_with_which_torch_makes_no_step_are_refused_where_they_are_given(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        OptimizerSpec("sgd", arguments)


def test_short_betas_are_refused() -> None:
    with pytest.raises(PlanError, match="optimizer 'adam'"):
        OptimizerSpec("adam", {"betas": (0.9,)})
