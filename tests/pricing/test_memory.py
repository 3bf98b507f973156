from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoplan.opgraph import OpGraph
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor, memory_model, static_memory, storage_roots
from tests.search.small import AXES, Builder, cluster, gcn, row_wise, stats, strategy, tensor

WEIGHTS = (ModelTensor("w", 100, True), ModelTensor("running_mean", 10, False))


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [("sgd", 0), ("sgd_momentum", 1), ("rmsprop", 1), ("adam", 2), ("adamw", 2), ("unheard_of", 2)],
)
def test_optimizer_state_by_kind(optimizer, states):
    memory = static_memory(WEIGHTS, optimizer, training=True)
    assert (memory.weights, memory.gradients, memory.optimizer) == (110, 100, states * 100)


def test_evaluation_holds_weights_alone():
    assert static_memory(WEIGHTS, "adam", training=False).total == 110


@pytest.mark.parametrize(
    ("optimizer", "kinds", "update"),
    [
        ("sgd", ("cpu",), 0),
        ("adam", ("cpu",), 2 * 100 + 40),  # the largest, and what is left of the one before
        ("adagrad", ("cpu",), 100 + 40),
        ("radam", ("cpu",), 2 * 100),
        ("adam", ("gpu",), 170),  # all at once
        ("adagrad", ("gpu",), 2 * 170),
        ("adam", ("cpu", "gpu"), 240),
    ],
)
def test_temporaries_of_an_update_by_optimizer_and_kind(optimizer, kinds, update):
    sizes = (40, 100, 30)
    weights = [ModelTensor(f"w{size}", size, True) for size in sizes]
    frozen = ModelTensor("frozen", 900, False)
    memory = static_memory((*weights, frozen), optimizer, training=True, kinds=kinds)
    assert memory.update == update


def test_the_update_is_a_point_of_its_own_without_activations_and_buffers():
    graph = chain()
    model = model_of(graph, nodes=100)
    here, kept = all_in_r(graph, model)
    plain = {name: usage.max() for name, usage in model.usage(here, kept, (7.0,)).items()}
    assert plain["update"] == 400.0  # x
    most = max(plain.values())
    model = replace(model, static=replace(model.static, update=most))
    usage = model.usage(here, kept, (7.0,))
    assert usage["update"].tolist() == [[400.0 + most]]
    assert {name: usage[name].max() for name in ("forward", "backward")} == {
        name: plain[name] for name in ("forward", "backward")
    }
    (sheet,) = model.sheets(here, kept, (7.0,), (None,), 0.0)
    assert (sheet.inputs, sheet.transient, sheet.peak) == (400.0, most, 400.0 + most)
    assert (sheet.activations, sheet.messages, sheet.buffers) == (0.0, 0.0, 0.0)


def model_of(graph, nodes=100, edges=1000, training=True, count=1):
    sizes = stats(nodes, edges)
    group = Group(cluster(count), tuple(range(count)), sizes.partitions.get(count))
    static = static_memory((), "sgd", training=training)
    return memory_model(graph, sizes, group, static, training=training)


def all_in_r(graph, model):
    here = np.array([state == "R" for _, state in model.units])
    kept = np.zeros(len(model.units), dtype=bool)
    for op in graph.ops:
        for name in op.saved:
            if (name, "R") in model.unit_of:
                kept[model.unit_of[name, "R"]] = True
    return here, kept


def chain(views=False) -> OpGraph:
    """x -> a -> b -> c, all [node, 1]; only b is saved."""
    b = Builder()
    on = {"requires_grad": True, "reaches_loss": True}
    last = b.put(tensor("x", "node", 1, origin="input", source="x"))
    for name in ("a", "b", "c"):
        kind = "view" if views and name == "b" else "elementwise"
        last = b.op(
            "aten.op",
            kind,
            (last,),
            tensor(name, "node", 1, **on),
            row_wise(),
            saved=("b",) if name == "c" else (),
        )
    return OpGraph(tuple(b.ops), b.tensors, AXES, ("c",), has_loss=False, training=True)


def test_liveness_of_a_chain():
    graph = chain()
    model = model_of(graph, nodes=100)
    usage = model.usage(*all_in_r(graph, model), (0.0,))
    unit = 400.0
    # forward: x; x a | x a b | x b c
    assert usage["forward"][:, 0].tolist() == [2 * unit, 3 * unit, 3 * unit]
    # backward, by op: gradients of what lives there, x and c throughout, b until its saver is done
    assert usage["backward"][0, 0] == 2 * unit + unit
    assert usage["backward"][2, 0] == 2 * unit + unit + unit


def test_a_view_takes_no_memory_of_its_own():
    graph = chain(views=True)
    assert storage_roots(graph)["b"] == "a"
    model = model_of(graph)
    assert ("b", "R") not in model.units
    assert model.unit_of["b", "R"] == model.unit_of["a", "R"]


def test_messages_are_told_from_activations_and_everything_adds_up():
    graph = gcn(hidden=16)
    model = model_of(graph, nodes=100, edges=5000)
    here, kept = all_in_r(graph, model)
    kept[model.unit_of["a1_message", "R"]] = True
    usage = model.usage(here, kept, (7.0,))
    (sheet,) = model.sheets(here, kept, (7.0,), (10**9,), 0.1)
    assert sheet.messages >= 5000 * 16 * 4
    assert sheet.peak == pytest.approx(max(float(u.max()) for u in usage.values()))
    assert sheet.head_room == 1e8
    assert sheet.capacity == 10**9
    assert sheet.buffers == 7.0


def test_head_room_without_a_capacity_is_a_share_of_the_peak():
    graph = gcn()
    model = model_of(graph)
    (sheet,) = model.sheets(*all_in_r(graph, model), (0.0,), (None,), 0.1)
    assert sheet.head_room == pytest.approx(0.1 * sheet.peak)


def test_a_shard_needs_less_than_the_whole():
    graph = gcn()
    model = model_of(graph, count=2)
    for rank in range(2):
        assert (
            model.bytes[model.unit_of["h1", "O"], rank]
            < model.bytes[model.unit_of["h1", "H"], rank]
        )
        assert (
            model.bytes[model.unit_of["h1", "H"], rank]
            < model.bytes[model.unit_of["h1", "R"], rank]
        )


def test_in_place_versions_share_their_storage():
    b = Builder()
    x = b.put(tensor("x", "node", 1, origin="input", source="x"))
    first = b.op("aten.relu", "elementwise", (x,), tensor("v5", "node", 1), row_wise())
    b.op(
        "aten.add_",
        "elementwise",
        (first, x),
        tensor("v5.1", "node", 1),
        (strategy("R", ("R", "R"), "R"),),
    )
    graph = OpGraph(tuple(b.ops), b.tensors, AXES, ("v5.1",), has_loss=False, training=False)
    assert storage_roots(graph)["v5.1"] == "v5"
