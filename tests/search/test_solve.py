from __future__ import annotations

import re
from dataclasses import replace

import pytest

from autoplan.errors import InfeasibleError, PlanError
from autoplan.search import ModelTensor, SearchOptions, solve
from tests.search.small import cluster, gcn, parameters, stats

ONE_GROUP = SearchOptions(families=("single", "data"))


def plan(graph, sizes, devices, **more):
    given = {"parameters": parameters(graph), "optimizer": "adam", "options": ONE_GROUP, **more}
    return solve(graph, sizes, devices, [], **given)


def test_gcn_on_two_ranks_exchanges_the_narrow_side():
    graph = gcn(features=256, hidden=16)
    result = plan(graph, stats(100_000, 1_000_000), cluster(2), strategy="data")
    best = result.best
    assert best.strategy == "data"
    exchanged = [(t.tensor, t.source, t.target) for t in best.transitions if t.exchange != "none"]
    assert exchanged == [("h1", "O", "H"), ("h2", "O", "H")]
    assert dict(best.inputs) == {"x": "O", "src": "O", "dst": "O"}
    assert best.status == "optimal"
    assert result.gap == 0.0


def test_x_is_loaded_with_its_halo_where_it_is_gathered_first():
    graph = gcn(gather_first=True)
    best = plan(graph, stats(100_000, 1_000_000), cluster(2), strategy="data").best
    assert ("x", "H") in best.inputs
    assert [t.tensor for t in best.transitions if t.exchange != "none"] == ["h2"]


def test_communication_bytes_are_exact():
    graph = gcn(features=256, hidden=16, classes=8)
    sizes = stats(100_000, 1_000_000)
    best = plan(graph, sizes, cluster(2), strategy="data").best
    gradients = 4 * (256 * 16 + 16 * 8)
    loss = 2 * (2 * 4)
    expected = [
        4 * (16 + 8) * (shard.sent_rows["node"] + shard.halo_rows["node"]) + gradients + loss
        for shard in sizes.partitions[2].shards
    ]
    assert list(best.prediction.communication_bytes) == expected


def test_small_graph_stays_on_one_device_and_lists_the_loser():
    result = plan(gcn(), stats(100, 500), cluster(2))
    assert result.best.strategy == "single"
    losers = [c for c in result.candidates if c.strategy == "data"]
    assert [c.feasible for c in losers] == [True]
    assert any(name != "R" for name in losers[0].choices.values())


def test_data_is_tried_on_fewer_devices_too():
    result = plan(gcn(), stats(100_000, 1_000_000, parts=(2, 3)), cluster(3))
    names = [c.name for c in result.candidates]
    assert names == ["single on cpu:0", "data on 3 devices", "data on 2 of 3 devices"]
    assert all(c.feasible for c in result.candidates)


def test_workers_share_the_cores_of_their_host():
    result = plan(gcn(), stats(), cluster(2))
    assert {c.name: c.threads for c in result.candidates} == {
        "single on cpu:0": (4,),
        "data on 2 devices": (2, 2),
    }


def test_opaque_program_is_single_and_says_why():
    graph = replace(gcn(), single_only="it calls Flip.apply, which was not recorded")
    result = plan(graph, stats(), cluster(2))
    assert result.best.strategy == "single"
    assert "Flip.apply" in result.candidates[1].reason
    with pytest.raises(InfeasibleError, match=r"Flip\.apply"):
        plan(graph, stats(), cluster(2), strategy="data")


def test_unknown_ops_are_named_where_nothing_can_be_shared_out():
    graph = gcn()
    ops = tuple(replace(op, rule=None, strategies=op.strategies[:1]) for op in graph.ops)
    with pytest.raises(InfeasibleError, match=r"no rule covers aten\.mm"):
        plan(replace(graph, ops=ops), stats(), cluster(2), strategy="data")


def test_denied_strategies_are_not_used():
    graph = gcn()
    gather = next(op for op in graph.ops if op.forward.kind == "gather")
    result = plan(
        graph,
        stats(100_000, 1_000_000),
        cluster(2),
        strategy="data",
        denied={gather.index: frozenset({"O"})},
    )
    assert result.best.choices[gather.index] == "R"


def test_data_needs_two_devices():
    with pytest.raises(InfeasibleError, match="at least two devices"):
        plan(gcn(), stats(), cluster(1), strategy="data")


def test_missing_partition_is_a_reason():
    result = plan(gcn(), stats(parts=(2,)), cluster(4))
    assert "cut into 4 parts" in result.candidates[1].reason


def test_unknown_family_lists_those_there_are():
    with pytest.raises(PlanError, match="auto, single, data, model, pipeline, hybrid"):
        plan(gcn(), stats(), cluster(2), strategy="piepline")


def test_a_family_that_is_not_to_be_tried_says_so():
    with pytest.raises(InfeasibleError, match="families to be tried: single, data"):
        plan(gcn(), stats(), cluster(2), strategy="model:stages")


def test_a_parameter_that_fits_nowhere_is_named_with_both_sizes():
    graph = gcn()
    emb = ModelTensor("emb.weight", 32 << 20, True)
    with pytest.raises(
        InfeasibleError, match=r"'emb\.weight' needs 32\.0 MiB, the largest device has 8\.0 MiB"
    ):
        plan(graph, stats(), cluster(2, memory_bytes=8 << 20), parameters=(emb,))


def test_a_model_that_fits_nowhere_says_what_it_is_made_of():
    big = tuple(ModelTensor(f"w{i}", 2 << 20, True) for i in range(3))
    with pytest.raises(InfeasibleError, match=r"state of adam 12\.0, its update 6\.0.*more than"):
        plan(gcn(), stats(), cluster(2, memory_bytes=16 << 20), parameters=big)
    # what is held throughout would fit
    with pytest.raises(InfeasibleError, match=r"needs 30\.0 MiB on every device"):
        plan(gcn(), stats(), cluster(2, memory_bytes=29 << 20), parameters=big)


def test_activations_that_fit_nowhere_name_the_shortage():
    with pytest.raises(InfeasibleError, match=r"short by .* MiB; the largest tensor is"):
        plan(gcn(), stats(100_000, 1_000_000), cluster(2, memory_bytes=8 << 20))


def test_the_smallest_change_that_would_fit_comes_first_and_is_enough():
    big = tuple(ModelTensor(f"w{i}", 1 << 20, True) for i in range(3))
    graph, sizes = gcn(), stats(1000, 200_000, parts=(2, 3))
    with pytest.raises(InfeasibleError) as raised:
        plan(graph, sizes, cluster(3, memory_bytes=2 << 20), parameters=big)
    lines = str(raised.value).splitlines()
    found = re.search(r"smallest change .* at least ([\d.]+) MiB each, for (.*)$", lines[0])
    assert found is not None
    assert lines[1].startswith(f"  {found[2]}: ")
    # equal reasons, and candidates of one strategy, are told once
    assert len(lines) < 9
    enough = float(found[1]) + 0.1
    fits = plan(graph, sizes, cluster(3, memory_bytes=int(enough * 2**20)), parameters=big)
    assert fits.best.name == found[2]


def test_memory_limit_forces_data_where_one_device_is_too_small():
    graph, sizes = gcn(), stats(1000, 200_000)
    free = plan(graph, sizes, cluster(2, latency=10.0))
    assert free.best.strategy == "single"
    peak = free.best.prediction.peak_bytes[0].value
    bound = plan(graph, sizes, cluster(2, latency=10.0, memory_bytes=int(peak)))
    assert bound.best.strategy == "data"
    assert "short by" in bound.candidates[0].reason
    assert all(s.peak + s.head_room <= s.capacity * (1 + 1e-5) for s in bound.best.memory)


def test_head_room_is_part_of_the_limit():
    graph, sizes = gcn(), stats(1000, 200_000)
    peak = plan(graph, sizes, cluster(1)).best.prediction.peak_bytes[0].value
    with pytest.raises(InfeasibleError, match=r"10 % of it reserved"):
        plan(graph, sizes, cluster(1, memory_bytes=int(peak * 1.05)))
    none = SearchOptions(head_room=0.0)
    assert plan(graph, sizes, cluster(1, memory_bytes=int(peak * 1.05)), options=none).best


def test_objective_memory_needs_no_more_than_objective_time():
    graph, sizes = gcn(), stats(2000, 100_000)
    quick = plan(graph, sizes, cluster(2), strategy="data").best
    small = plan(graph, sizes, cluster(2), strategy="data", objective="memory").best

    def peak(candidate):
        return max(p.value for p in candidate.prediction.peak_bytes)

    assert peak(small) <= peak(quick)
    assert small.prediction.step_seconds.value >= quick.prediction.step_seconds.value


def test_the_same_input_gives_the_same_plan():
    graph, sizes = gcn(), stats(100_000, 1_000_000)
    first = plan(graph, sizes, cluster(2))
    second = plan(graph, sizes, cluster(2))
    assert first.candidates == second.candidates


def test_renaming_modules_changes_nothing():
    graph = gcn()
    ops = tuple(replace(op, module=f"x-> +[{op.index}]") for op in graph.ops)
    sizes = stats(100_000, 1_000_000)
    before = plan(graph, sizes, cluster(2)).best
    after = plan(replace(graph, ops=ops), sizes, cluster(2)).best
    assert before.choices == after.choices


def test_forward_only_has_no_gradients():
    result = plan(gcn(), stats(), cluster(2), training=False, strategy="data")
    sheet = result.best.memory[0]
    assert sheet.gradients == sheet.optimizer == 0.0
    assert all(not any(t.backward_bytes) for t in result.best.transitions)
