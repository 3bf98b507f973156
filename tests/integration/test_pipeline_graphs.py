"""Models of whole graphs in stages: micro-batches and replicas give one device's loss, outputs, gradients and buffers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from autoplan.execute.lockstep import StepResult, run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.execute.stage_program import stage_programs
from autoplan.execute.stages_in_threads import run_stages
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import Workload, cast
from autoplan.search.local import local_strategies
from tests.closed import batch_of, traced
from tests.execute.cuts import even, scattered
from tests.execute.test_pipeline import assert_equal
from tests.integration.test_graph_axis import LOSSES, MODELS

SIZES = (50, 4, 5, 11, 8, 30, 3)


def measured(workload: Workload, parts: int) -> MeasuredGraph:
    batch = batch_of(SIZES)
    batch.y[:3] = torch.tensor([0, 1, 2])
    for name in workload.traced.schema.names:
        batch[name] = cast(batch[name], torch.float64)
    return MeasuredGraph.of(batch, workload.traced.schema, (1,), closed_parts=(parts,))


def alone(workload: Workload, seed: int) -> StepResult:
    whole = measured(workload, 1)
    program = rank_program(workload.traced.program, workload.opgraph, {})
    state = state_of(workload)
    return run_lockstep(program, whole.shards(1), whole.tensors, *state, seed=seed, step=1)


def piped(workload, cut, schedule, replicas, micro_batches, seed) -> StepResult:
    parts = replicas * micro_batches
    local = local_strategies(workload.opgraph, {})
    choices = {op: strategy.name for op, strategy in local.items()}
    graph = measured(workload, parts)
    programs = stage_programs(
        workload.traced.program, workload.opgraph, choices, cut, partial_loss=True
    )
    return run_stages(
        programs,
        schedule,
        graph.shards(parts, closed=True),
        graph.tensors,
        *state_of(workload),
        replicas=replicas,
        micro_batches=micro_batches,
        seed=seed,
        step=1,
    )


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    torch.manual_seed(0)
    workload = traced(MODELS[name](), batch_of(SIZES))
    expected = alone(workload, 3)
    for stages, schedule, replicas, micro_batches in (
        (2, "gpipe", 1, 2),
        (3, "1f1b", 1, 3),
        (2, "1f1b", 1, 5),
        (2, "gpipe", 2, 5),
    ):
        cut = even(workload.opgraph, stages)
        found = piped(workload, cut, schedule, replicas, micro_batches, 3)
        assert_equal(found, expected)


@pytest.mark.parametrize("name", ["gat_max", "virtual_node"])
@pytest.mark.parametrize("seed", range(3))
def test_any_cut(name: str, seed: int) -> None:
    torch.manual_seed(0)
    workload = traced(MODELS[name](), batch_of(SIZES), LOSSES["labelled"])
    cut = scattered(workload.opgraph, 4, seed)
    assert_equal(piped(workload, cut, "1f1b", 1, 3, seed), alone(workload, seed))


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    torch.manual_seed(0)
    workload = traced(MODELS["gin_add"](), batch_of(SIZES), LOSSES[name])
    cut = even(workload.opgraph, 2)
    assert_equal(piped(workload, cut, "1f1b", 2, 2, 5), alone(workload, 5))


def test_parts_without_graphs_have_no_share_of_a_penalty() -> None:
    torch.manual_seed(0)
    model = MODELS["gin_add"]()

    def loss(out, graph):
        return F.cross_entropy(out, graph.y) + 0.01 * model.last.weight.square().sum()

    workload = traced(model, batch_of(SIZES), loss)
    cut = even(workload.opgraph, 2)
    assert_equal(piped(workload, cut, "gpipe", 2, 5, 5), alone(workload, 5))
