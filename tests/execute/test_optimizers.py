from __future__ import annotations

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


def test_a_value_that_torch_refuses_is_a_plan_error() -> None:
    with pytest.raises(PlanError, match=r"'sgd': Invalid learning rate: -1"):
        OptimizerSpec("sgd", {"lr": -1.0}).build([torch.nn.Parameter(torch.ones(1))])
