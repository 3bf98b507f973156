from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.opgraph import Axis
from autoplan.search.stage_blocks import atoms, coarser, merged, messages_of
from autoplan.search.stage_problem import evaluate_stages, op_stages
from tests.search.random_stages import random_stages
from tests.search.small import gcn


def test_every_op_is_a_block_where_nothing_holds_it_to_another():
    graph = gcn()
    assert atoms(graph) == tuple((op.index,) for op in graph.ops)


def test_what_lies_between_ops_that_stay_together_stays_with_them():
    graph = gcn()
    first, third = graph.ops[0].index, graph.ops[2].index
    held = replace(graph, inseparable=(frozenset({first, third}),))
    assert atoms(held)[0] == tuple(op.index for op in graph.ops[:3])


def test_an_opaque_program_is_one_block():
    graph = replace(gcn(), single_only="it was not recorded")
    assert len(atoms(graph)) == 1


def test_ops_on_rows_of_an_unknown_number_are_one_block_where_sizes_must_be_known():
    graph = gcn()
    made = graph.ops[1].outputs[0]
    readers = [op.index for op in graph.ops if made in op.inputs]
    chosen = Axis("select(mask)", "node", "select", ("node",))
    tensor = replace(graph.tensors[made], dims=(chosen.name, 16))
    unknown = replace(
        graph,
        tensors={**graph.tensors, made: tensor},
        axes={**graph.axes, chosen.name: chosen},
    )
    together = {graph.ops[1].index, *readers}
    assert len(together) > 1
    assert any(together <= {*block} for block in atoms(unknown, known=True))
    assert all(len(block) == 1 for block in atoms(unknown))


def test_merging_prefers_one_module_and_keeps_boundaries():
    blocks = tuple((op,) for op in range(12))
    modules = {op: f"layer{op // 4}" for op in range(12)}
    seconds = dict.fromkeys(range(12), 1.0)
    assert merged(blocks, seconds, modules, 3) == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    kept = merged(blocks, seconds, modules, 2, keep=(6,))
    assert any(block[0] == 6 for block in kept)
    assert [op for block in kept for op in block] == list(range(12))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_a_coarser_problem_prices_the_same_stages_alike(seed):
    problem = random_stages(seed, blocks=9, tight=0.5)
    modules = {block: f"layer{block // 3}" for block in range(9)}
    seconds = {block: float(problem.seconds[0, block]) for block in range(9)}
    small = coarser(problem, merged(problem.blocks, seconds, modules, 4))
    stage_of = (0, 0, 1, 2)
    by_op = op_stages(small, stage_of)
    fine = evaluate_stages(problem, [by_op[block] for block in range(9)])
    coarse = evaluate_stages(small, stage_of)
    assert coarse.tau == pytest.approx(fine.tau)
    assert coarse.bytes == pytest.approx(fine.bytes)


def test_messages_are_what_other_blocks_read():
    graph = gcn()
    blocks = tuple((op.index,) for op in graph.ops)
    sizes = dict.fromkeys(graph.tensors, 8.0)
    found = {m.name: m for m in messages_of(graph, blocks, sizes, {"h1": 0}, training=True)}
    assert found["h1"].maker == 0
    assert found["h1"].readers == found["h1"].gradient == (1,)
    assert found["h1"].unit == 0
    forward = messages_of(graph, blocks, sizes, {}, training=False)
    assert not any(message.gradient for message in forward)
