from __future__ import annotations

from dataclasses import replace

import pytest

from autoplan.opgraph import Op, Polynomial, Work
from autoplan.search.local import NotLocal, local_strategies
from tests.search.small import gcn, strategy, tensor


def test_every_op_on_rows_runs_on_a_part_of_them():
    graph = gcn()
    chosen = local_strategies(graph, {})
    assert all(found.rows == "O" for found in chosen.values())
    assert chosen[graph.ops[-1].index].outputs == ("S",)
    assert not any(found.collectives for found in chosen.values())


def test_a_loss_that_must_be_whole_is_no_sum_of_parts():
    graph = gcn()
    last = graph.ops[-1]
    whole = replace(last, strategies=tuple(s for s in last.strategies if s.name != "P"))
    with pytest.raises(
        NotLocal, match=r"layer7 \(aten\.nll_loss\.default, model\.py:1 in forward\) needs all rows"
    ):
        local_strategies(replace(graph, ops=(*graph.ops[:-1], whole)), {})


def _and_then(graph, *strategies):
    """The graph with one more op, which reads the scores."""
    reader = Op(
        99,
        "aten.sort.default",
        "head",
        "model.py:9 in forward",
        (graph.outputs[1],),
        ("sorted",),
        "rule",
        Work("sort", Polynomial.of(1, "node")),
        None,
        (),
        strategies,
    )
    return replace(
        graph,
        ops=(*graph.ops, reader),
        tensors={**graph.tensors, "sorted": tensor("sorted", "node", 8)},
    )


def test_what_needs_all_rows_of_a_part_is_named():
    graph = _and_then(gcn(), strategy("R", ("R",), "R"))
    with pytest.raises(NotLocal, match=r"^head \(aten\.sort\.default"):
        local_strategies(graph, {})


def test_owned_rows_with_an_empty_halo_are_the_same_rows():
    graph = _and_then(gcn(), strategy("R", ("R",), "R"), strategy("H", ("H",), "H"))
    assert local_strategies(graph, {})[99].name == "H"


def test_work_that_only_runs_whole_on_rows_that_are_loaded_is_refused_where_it_is_heavy():
    graph = gcn()
    first = graph.ops[0]
    assert first.forward.kind == "dense"
    only = replace(first, strategies=first.strategies[:1])
    with pytest.raises(NotLocal, match="layer0"):
        local_strategies(replace(graph, ops=(only, *graph.ops[1:])), {})
