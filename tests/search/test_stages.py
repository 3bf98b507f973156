from __future__ import annotations

from dataclasses import replace

import pytest

from autoplan.device import Cluster
from autoplan.errors import InfeasibleError, PlanError
from autoplan.search import ModelTensor, SearchOptions, solve
from autoplan.search.assemble import partition_use, pipeline_use, stage_plans
from autoplan.search.layouts import closed_parts, hybrid_shapes, micro_batch_counts, stage_counts
from autoplan.stages import check_stages
from tests.search.small import closed, cluster, gcn, parameters, profile, stats

ACCELERATOR = profile(
    name="test_gpu", kind="gpu", cores=None, torch_device="cuda", launch_seconds=1e-6
)


def plan(graph, sizes, devices, **more):
    given = {"parameters": parameters(graph), "optimizer": "adam", **more}
    return solve(graph, sizes, devices, [], **given)


def fast(count: int, memory_bytes: int | None = None) -> Cluster:
    """Devices that share nothing, with a quick link."""
    return cluster(count, memory_bytes, latency=1e-6, bandwidth=5e10, kind=ACCELERATOR)


def test_one_graph_is_a_model_of_stages_and_no_pipeline():
    graph = gcn()
    best = plan(graph, stats(), cluster(2), strategy="model").best
    assert set(best.stage_of.values()) == {0, 1}
    check_stages(graph, best.stage_of)
    assert set(best.choices.values()) == {"R"}
    assert (best.micro_batches, best.replicas, best.schedule) == (1, 1, "gpipe")
    assert not best.closed
    with pytest.raises(
        InfeasibleError, match=r"without losing edges; use strategy='model'.*'data'"
    ):
        plan(graph, stats(), cluster(2), strategy="pipeline")
    assert plan(graph, stats(), cluster(2), strategy="model:stages").best == best


def test_many_graphs_are_a_pipeline_of_micro_batches():
    graph, sizes = gcn(), closed(200_000, 2_000_000)
    best = plan(graph, sizes, fast(2), strategy="pipeline").best
    assert best.micro_batches > 1
    assert best.closed
    heavy = [op for op in graph.ops if op.forward.kind in ("dense", "gather", "scatter")]
    assert all(best.choices[op.index] == "O" for op in heavy)
    assert best.choices[graph.ops[-1].index] == "P"
    single = plan(graph, sizes, fast(1), strategy="single").best
    assert best.prediction.step_seconds.value < single.prediction.step_seconds.value
    use = pipeline_use(best)
    assert use.micro_batches == best.micro_batches
    assert 0 < use.bubble < 0.6
    assert partition_use(best, sizes).method == "closed"
    assert partition_use(best, sizes).parts == best.micro_batches


def test_replicas_of_a_pipeline_meet_in_the_sum_of_gradients():
    graph, sizes = gcn(), closed(200_000, 2_000_000)
    best = plan(graph, sizes, fast(4), strategy="hybrid").best
    assert best.replicas == 2
    assert len(best.ranks) == 4
    stages = stage_plans(best, graph, parameters=("conv1.weight", "conv2.weight"))
    assert [stage.devices for stage in stages] == [(0, 2), (1, 3)]
    held = [stage.parameters for stage in stages]
    assert sorted(name for names in held for name in names) == ["conv1.weight", "conv2.weight"]
    size = {p.name: p.bytes for p in parameters(graph)}
    for number, stage in enumerate(stages):
        sent = [sum(send.forward_bytes[d] for send in stage.sends) for d in range(2)]
        back = [
            send.backward_bytes[d]
            for d in range(2)
            for other in stages
            for send in other.sends
            if send.target == number
        ]
        gradients = sum(size[name] for name in stage.parameters)
        expected = sum(sent) + sum(back) + 2 * gradients
        found = sum(best.prediction.communication_bytes[rank] for rank in stage.devices)
        assert found == expected


def test_batch_norm_allows_one_micro_batch_and_names_the_layer():
    graph, sizes = gcn(norm=True), closed()
    norm = next(op for op in graph.ops if "batch_norm" in op.name)
    with pytest.raises(
        InfeasibleError,
        match=rf"{norm.module} \(aten.native_batch_norm.*one micro-batch; use strategy='model'",
    ):
        plan(graph, sizes, cluster(2), strategy="pipeline")
    assert plan(graph, sizes, cluster(2), strategy="model").best.micro_batches == 1


def test_denied_strategies_leave_no_pipeline_where_nothing_else_is_local():
    graph, sizes = gcn(), closed()
    gather = next(op for op in graph.ops if op.forward.kind == "gather")
    with pytest.raises(InfeasibleError, match="needs all rows"):
        plan(
            graph,
            sizes,
            cluster(2),
            strategy="pipeline",
            denied={gather.index: frozenset({"O"})},
        )


def test_all_in_one_graph_is_slow_and_feasible():
    graph = gcn()
    even = closed(20_000, 200_000, units=4)
    lopsided = closed(
        20_000, 200_000, units=4, shares={n: (1.0,) + (0.0,) * (n - 1) for n in range(2, 5)}
    )
    quick = plan(graph, even, fast(2), strategy="pipeline").best
    slow = plan(graph, lopsided, fast(2), strategy="pipeline").best
    assert slow.prediction.step_seconds.value > quick.prediction.step_seconds.value
    # parts beside one that has it all are not worth trying, unless they are asked for
    assert slow.micro_batches == 2
    options = SearchOptions(micro_batches=(4,))
    asked = plan(graph, lopsided, fast(2), strategy="pipeline", options=options).best
    assert asked.micro_batches == 4


def test_equal_layers_are_balanced():
    graph = gcn(features=16, hidden=16, classes=16, layers=64)
    best = plan(graph, stats(), fast(4), strategy="model").best
    layers = [0] * 4
    for op in graph.ops:
        if op.forward.kind == "dense":
            layers[best.stage_of[op.index]] += 1
    assert layers == [16, 16, 16, 16]
    spread = [sum(e.seconds for e in best.timeline if e.rank == rank) for rank in range(4)]
    assert max(spread) < 1.1 * min(spread)


def test_a_model_that_one_device_cannot_hold_is_cut():
    graph = gcn(features=64, hidden=512, classes=8, layers=4)
    free = plan(graph, stats(500, 2000), fast(1), strategy="single").best
    peak = int(free.prediction.peak_bytes[0].value)
    small = fast(2, memory_bytes=int(peak * 0.9))
    best = plan(graph, stats(500, 2000), small).best
    assert best.strategy == "model"
    for sheet in best.memory:
        assert sheet.peak + sheet.head_room <= sheet.capacity * (1 + 1e-6)


def test_stages_that_fit_nowhere_say_which_and_how_much_is_short():
    graph = gcn(features=64, hidden=512, classes=8, layers=4)
    with pytest.raises(
        InfeasibleError,
        match=r"stage \d of 2 needs .* MiB on 'cpu:\d' .*short by .* MiB; the largest it holds is .*give",
    ):
        plan(graph, stats(500, 2000), fast(2, memory_bytes=5 << 20), strategy="model")


def test_a_parameter_that_fits_nowhere_is_named_for_stages_too():
    emb = ModelTensor("emb.weight", 32 << 20, True)
    with pytest.raises(InfeasibleError, match=r"'emb\.weight' needs 32\.0 MiB"):
        plan(gcn(), stats(), fast(2, memory_bytes=8 << 20), parameters=(emb,), strategy="model")


def test_one_forward_one_backward_keeps_less_than_all_forward_first():
    graph, sizes = gcn(hidden=128, layers=4), closed(50_000, 100_000)
    wide = plan(graph, sizes, fast(2), strategy="pipeline", objective="memory").best
    assert wide.schedule == "1f1b"


def test_objective_memory_needs_no_more_than_objective_time():
    graph, sizes = gcn(hidden=64, layers=4), closed(50_000, 100_000)
    for family in ("model", "pipeline"):
        quick = plan(graph, sizes, fast(3), strategy=family).best
        small = plan(graph, sizes, fast(3), strategy=family, objective="memory").best
        assert _peak(small) <= _peak(quick) * 1.05


def _peak(candidate):
    return max(peak.value for peak in candidate.prediction.peak_bytes)


def test_tied_weights_are_held_and_summed_by_both_stages():
    graph = gcn(features=16, hidden=16, classes=16, layers=3)
    tied = {
        name: replace(tensor, source="shared.weight") if tensor.origin == "parameter" else tensor
        for name, tensor in graph.tensors.items()
    }
    graph = replace(graph, tensors=tied)
    weight = ModelTensor("shared.weight", 16 * 16 * 4, True)
    best = plan(graph, stats(), fast(2), strategy="model", parameters=(weight,)).best
    stages = stage_plans(best, graph, parameters=("shared.weight",))
    assert [stage.parameters for stage in stages] == [("shared.weight",)] * 2
    assert [e.rank for e in best.timeline if e.kind == "gradients"] == [0, 1]


def test_the_step_names_the_model_once_more():
    graph = gcn()
    wrapped = {
        name: replace(tensor, source=f"model.{tensor.source}")
        if tensor.origin == "parameter"
        else tensor
        for name, tensor in graph.tensors.items()
    }
    other = replace(graph, tensors=wrapped)
    plain = plan(graph, stats(), cluster(2), strategy="model").best
    found = plan(other, stats(), cluster(2), strategy="model", parameters=parameters(graph)).best
    assert found.memory == plain.memory
    held = [
        s.parameters for s in stage_plans(found, other, parameters=("conv1.weight", "conv2.weight"))
    ]
    assert sorted(name for names in held for name in names) == ["conv1.weight", "conv2.weight"]


def test_a_faster_kind_takes_more_layers():
    slow = profile(
        name="slow", kind="gpu", cores=None, flop_per_s={"float32": 5e10}, bytes_per_s=2e9
    )
    graph = gcn(features=16, hidden=16, classes=16, layers=16)
    devices = fast(1).devices + cluster(1, kind=slow).devices
    both = Cluster(
        tuple(replace(d, name=f"d{i}", index=i) for i, d in enumerate(devices)), fast(1).intra_host
    )
    best = plan(
        graph, stats(), both, strategy="model", options=SearchOptions(families=("model",))
    ).best
    dense = [best.ranks[best.stage_of[op.index]] for op in graph.ops if op.forward.kind == "dense"]
    assert dense.count(0) > dense.count(1)


def test_an_opaque_program_has_no_stages():
    graph = replace(gcn(), single_only="it calls Flip.apply, which was not recorded")
    with pytest.raises(InfeasibleError, match=r"Flip\.apply"):
        plan(graph, stats(), cluster(2), strategy="model")


def test_too_few_devices_are_a_reason():
    with pytest.raises(InfeasibleError, match="model needs at least two devices, there is one"):
        plan(gcn(), stats(), cluster(1), strategy="model")
    with pytest.raises(InfeasibleError, match="hybrid needs at least four devices, there are 3"):
        plan(gcn(), closed(), cluster(3), strategy="hybrid")


@pytest.mark.parametrize(
    ("devices", "strategy", "micro_batches", "units", "said"),
    [
        (2, "pipeline", (9,), 6, "6 graphs in a step are too few for 9 micro-batches"),
        (2, "pipeline", (1,), 6, "one micro-batch is strategy='model'"),
        (
            4,
            "hybrid",
            (2,),
            3,
            "3 graphs in a step are too few for 2 micro-batches for each of 2 replicas",
        ),
    ],
)
def test_batches_that_do_not_make_the_micro_batches(devices, strategy, micro_batches, units, said):
    options = SearchOptions(micro_batches=micro_batches)
    with pytest.raises(InfeasibleError, match=said):
        plan(gcn(), closed(units=units), cluster(devices), strategy=strategy, options=options)


@pytest.mark.parametrize(
    "asked",
    [{"micro_batches": (0,)}, {"micro_batches": ()}, {"schedules": ("zigzag",)}, {"schedules": ()}],
)
def test_micro_batches_and_schedules_that_there_cannot_be(asked):
    with pytest.raises(PlanError, match=next(iter(asked))):
        SearchOptions(**asked)


def test_one_device_may_split_its_batch():
    best = plan(gcn(), closed(), cluster(1), strategy="pipeline").best
    assert len(best.ranks) == 1
    assert best.micro_batches > 1
    assert best.bubble == 0.0


def test_data_on_many_graphs_keeps_them_whole():
    graph, sizes = gcn(), closed(100_000, 1_000_000)
    best = plan(graph, sizes, fast(2), strategy="data").best
    assert best.closed
    assert partition_use(best, sizes).method == "closed"
    assert [rank.halo_rows for rank in sizes.closed[2].shards] == [{}, {}]


def test_the_same_input_gives_the_same_stages():
    graph, sizes = gcn(), closed()
    assert plan(graph, sizes, cluster(3)).candidates == plan(graph, sizes, cluster(3)).candidates


def test_forward_only_sends_nothing_back():
    best = plan(gcn(), stats(), cluster(2), strategy="model", training=False).best
    sends = [send for stage in best.stages for send in stage.sends]
    assert sends
    assert not any(any(send.backward_bytes) for send in sends)
    assert {entry.kind for entry in best.timeline} == {"forward"}


def test_numbers_that_are_tried():
    assert stage_counts(1) == ()
    assert stage_counts(3) == (2, 3)
    assert stage_counts(12) == (2, 3, 4, 5, 6, 7, 8, 12)
    assert hybrid_shapes(4) == ((2, 2),)
    assert hybrid_shapes(8) == ((2, 4), (3, 2), (4, 2))
    assert micro_batch_counts(3, 100, 1) == (2, 3, 4, 6, 8)
    assert micro_batch_counts(2, 5, 2) == (1, 2)
    assert closed_parts(1, 4) == ()
    assert closed_parts(4, 2) == (2, 3, 4)
