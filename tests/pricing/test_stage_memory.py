from __future__ import annotations

import pytest

from autoplan.pricing.memory import memory_model, static_memory
from autoplan.pricing.stage_memory import presence, stage_graph, stage_sheet
from autoplan.search.local import local_strategies
from autoplan.search.stage_setting import StagedProgram
from autoplan.stages import strategies_of
from tests.search.small import closed, gcn, parameters, stats


def program(parts: int, **more) -> StagedProgram:
    graph = gcn(**more)
    sizes = closed(8_000, 80_000) if parts > 1 else stats(8_000, 80_000)
    strategies = local_strategies(graph, {}) if parts > 1 else strategies_of(graph, {})
    return StagedProgram(
        graph,
        sizes,
        sizes.closed[parts] if parts > 1 else None,
        strategies,
        parameters(graph),
        "adam",
        True,
    )


def sheet(given: StagedProgram, ops, *, flight=1, received=None, sent=(), capacity=None):
    own = stage_graph(given.graph, ops, sent)
    static = static_memory(given.parameters, "adam", training=True)
    return stage_sheet(
        own,
        given.strategies,
        given.stats,
        given.virtual,
        range(given.rows.parts),
        flight,
        static,
        received or {},
        0.0,
        capacity,
        0.1,
        training=True,
    )


def test_one_stage_with_one_part_is_a_single_device():
    given = program(1)
    found = sheet(given, {op.index for op in given.graph.ops})
    static = static_memory(given.parameters, "adam", training=True)
    model = memory_model(given.graph, given.stats, given.virtual, static, training=True)
    here, kept = presence(given.graph, given.strategies, model)
    (whole,) = model.sheets(here, kept, (0.0,), (None,), 0.1)
    assert found == whole


def test_micro_batches_in_flight_keep_their_activations_and_only_these():
    given = program(4)
    ops = {op.index for op in given.graph.ops}
    one, three = sheet(given, ops, flight=1), sheet(given, ops, flight=3)
    assert three.weights == one.weights
    assert three.inputs == one.inputs
    rows = 8_000 / 4
    # of each of the two others: what relu keeps, the scores and the loss that are returned
    assert three.activations - one.activations == 2 * (rows * 16 * 4 + rows * 8 * 4 + 4)
    assert three.transient == one.transient


def test_inputs_of_all_micro_batches_are_held():
    ops = {op.index for op in gcn().ops}
    whole, split = sheet(program(1), ops), sheet(program(4), ops)
    # every part knows the ids of its rows
    ids = 8 * (8_000 + 80_000)
    assert split.inputs == pytest.approx(whole.inputs + ids, rel=0.01)
    assert split.transient < whole.transient / 3


def test_what_arrives_with_a_gradient_is_kept_from_the_start_to_the_end():
    given = program(1)
    last = {op.index for op in given.graph.ops[4:]}
    arrived = next(name for name in given.graph.ops[4].inputs if name.startswith("r"))
    kept = sheet(given, last, received={arrived: True})
    size = given.graph.tensors[arrived].bytes.evaluate({"node": 8_000.0})
    assert kept.activations >= size
    assert kept.capacity is None


def test_a_stage_without_storages_of_its_own_holds_its_parameters():
    given = program(1)
    nothing = sheet(given, set(), capacity=1000)
    static = static_memory(given.parameters, "adam", training=True)
    assert static.update > 0
    assert nothing.peak == static.total + static.update
    assert nothing.head_room == 100
