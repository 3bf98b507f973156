"""The memory of an optimizer's update: the table of temporaries is what torch allocates, and a plan's peak has them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import autoplan
from autoplan.execute.optimizers import OPTIMIZERS, OptimizerSpec
from autoplan.optimizermemory import OPTIMIZER_STATES, OPTIMIZER_UPDATES, update_bytes

SIZES = (60_000, 80_000, 20_000)
"""Elements of parameters; the two largest are updated one after the other, and the largest last of them."""
SLACK = 4096
"""Bytes of step counters and other scalars."""


def extra_bytes(optimizer: torch.optim.Optimizer) -> int:
    """The most that a step has allocated at one time, by the profiler's events of allocation and release."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        optimizer.step()
    events = [
        event for event in measured.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


@pytest.mark.parametrize(("kind", "foreach"), [("cpu", False), ("gpu", True)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_temporaries_of_an_update_are_what_torch_allocates(name, kind, foreach):
    """What every parameter is updated in one call for on a GPU allocates the same lists on a CPU."""
    parameters = [nn.Parameter(torch.randn(size)) for size in SIZES]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = OptimizerSpec(name, {"lr": 0.01}).build(parameters)
    for group in optimizer.param_groups:
        group["foreach"] = foreach
    optimizer.step()
    expected = update_bytes(name, [4 * size for size in SIZES], kind=kind)
    assert extra_bytes(optimizer) == pytest.approx(expected, abs=SLACK)


def test_every_optimizer_is_in_both_tables():
    assert set(OPTIMIZER_UPDATES) == set(OPTIMIZER_STATES)
    assert set(OPTIMIZERS) <= set(OPTIMIZER_UPDATES)
    assert update_bytes("unheard_of", [8.0], kind="cpu") == update_bytes("adam", [8.0], kind="cpu")


class Wide(nn.Module):
    """Nearly all memory is one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(1500, 400)
        self.second = GCNConv(400, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize(("optimizer", "update"), [("adam", 2), ("sgd", 0)])
def test_a_plan_knows_the_peak_of_the_update(optimizer, update):
    torch.manual_seed(0)
    graph = Data(
        x=torch.randn(12, 1500),
        edge_index=torch.randint(0, 12, (2, 40)),
        y=torch.randint(0, 2, (12,)),
    )
    model = Wide()
    plan = autoplan.optimize(model, graph, "1xcpu", optimizer=optimizer)
    ((sheet,),) = (stage.memory for stage in plan.stages)
    largest = 4 * model.first.lin.weight.numel()
    if update:
        assert sheet.transient == pytest.approx(update * largest, rel=0.01)
    else:
        assert sheet.transient < 0.1 * largest
    result = plan.train(model, graph, epochs=2, progress=False)
    expected = plan.predicted.peak_bytes[0].value
    assert expected == pytest.approx(result.peak_bytes[0], rel=0.03)
