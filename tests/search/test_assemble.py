from __future__ import annotations

import pytest

from autoplan.search import solve
from autoplan.search.assemble import alternatives, device_uses, partition_use, stage_plans
from tests.search.small import cluster, gcn, parameters, stats


@pytest.fixture(scope="module")
def answer():
    graph, sizes, devices = gcn(), stats(100_000, 1_000_000), cluster(3)
    result = solve(
        graph,
        sizes,
        devices,
        [],
        parameters=parameters(graph),
        optimizer="adam",
        strategy="data",
    )
    return graph, sizes, devices, result


def test_the_stage_has_a_choice_for_every_op(answer):
    graph, _, _, result = answer
    (stage,) = stage_plans(result.best, graph, parameters=("conv1.weight",))
    assert [c.op for c in stage.choices] == [op.index for op in graph.ops]
    assert stage.devices == tuple(range(len(result.best.ranks)))
    assert stage.parameters == ("conv1.weight",)
    assert len(stage.memory) == len(stage.devices)


def test_alternatives_mark_the_chosen_one(answer):
    *_, result = answer
    listed = alternatives(result)
    assert [a.chosen for a in listed].count(True) == 1
    assert next(a for a in listed if a.chosen).name == result.best.name
    assert all((a.step_seconds is None) == (a.reason is not None) for a in listed)


def test_devices_and_partition_of_the_chosen_one(answer):
    _, sizes, devices, result = answer
    uses = device_uses(result.best, devices)
    assert [use.rank for use in uses] == list(range(len(result.best.ranks)))
    cut = partition_use(result.best, sizes)
    assert cut is not None
    assert sum(cut.owned_nodes) == 100_000
    assert sum(cut.owned_edges) == 1_000_000
    single = next(c for c in result.candidates if c.strategy == "single")
    assert partition_use(single, sizes) is None


def test_a_rejected_candidate_has_no_stage(answer):
    graph, *_ = answer
    rejected = solve(
        graph, stats(parts=()), cluster(2), [], parameters=(), optimizer="sgd"
    ).candidates[1]
    with pytest.raises(ValueError, match="rejected"):
        stage_plans(rejected, graph)
