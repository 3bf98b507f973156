"""Figures of programs: by op, layer and phase, along critical paths, with each storage once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autoplan.analysis import LOSS, MODEL, analyse, analyse_at, largest_of, layers_of, roles_of
from autoplan.graphstats import GraphStats
from autoplan.graphstructure import DegreeStats, GraphStructure, RelationStructure
from autoplan.opgraph import Axis, Op, OpGraph, OpStrategy, Phase, Polynomial, TensorMeta, Work
from autoplan.storage import hoisted_values, saved_bytes
from autoplan.symbolic import Depth, most

AXES = {
    "node": Axis("node", "node", "base", rows=Polynomial.of(1, "node")),
    "edge": Axis("edge", "edge", "base", rows=Polynomial.of(1, "edge")),
}
ROWS = {"node": 100.0, "edge": 800.0}
WHOLE = OpStrategy("R", (), (), "R")


def tensor(name: str, *dims: str | int, origin: str = "op", dtype: str = "float32") -> TensorMeta:
    return TensorMeta(name, dims, dtype, origin)


def work(kind: str, depth: float, flops: float = 0.0) -> Work:
    return Work(kind, Polynomial.of(flops), depth=Depth(depth))


def op(
    index: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
    forward: Work,
    *,
    backward: Work | None = None,
    module: str = "model",
    phase: Phase = "update",
    hoistable: bool = False,
    saved: Sequence[str] = (),
    rule: str | None = "rule",
) -> Op:
    through = tuple(inputs) if backward is not None else ()
    return Op(
        index, f"aten.op{index}.default", module, "", tuple(inputs), tuple(outputs), rule, forward,
        backward, tuple(saved), (WHOLE,), through, (), hoistable, phase, not module,
    )  # fmt: skip


def graph(*ops: Op, outputs: Sequence[str] = (), more: Sequence[TensorMeta] = ()) -> OpGraph:
    named = {name: tensor(name, "node", 4) for each in ops for name in each.outputs}
    named |= {"x": tensor("x", "node", 4, origin="input")}
    named |= {"w": tensor("w", 4, 4, origin="parameter")}
    named |= {meta.name: meta for meta in more}
    return OpGraph(ops, named, AXES, tuple(outputs), False, True)


def diamond() -> OpGraph:
    """a -> (b, c) -> d, with a long way over b and a short one over c."""
    return graph(
        op(0, ["x"], ["a"], work("elementwise", 1, 10), backward=work("elementwise", 2)),
        op(1, ["a"], ["b"], work("reduce", 5, 20), backward=work("elementwise", 1)),
        op(2, ["a"], ["c"], work("elementwise", 1, 30), backward=work("reduce", 7)),
        op(3, ["b", "c"], ["d"], work("elementwise", 1, 40), backward=work("elementwise", 1)),
        outputs=["d"],
    )


def test_depth_is_that_of_the_critical_path():
    total = analyse_at(diamond(), ROWS).total
    assert total.forward.depth == 1 + 5 + 1
    assert total.backward.depth == 1 + 7 + 2
    assert total.both.depth == 17
    assert total.forward.flops == total.forward.work == 100
    assert total.forward.parallelism == 100 / 7


def test_a_weights_gradient_keeps_no_other_waiting():
    deep = Work(
        "dense", Polynomial.of(1), depth=Depth(20), towards=(("h", Depth(3)), ("w", Depth(20)))
    )
    program = graph(
        op(0, ["x"], ["h"], work("elementwise", 1), backward=work("elementwise", 1)),
        op(1, ["h", "w"], ["y"], work("dense", 1), backward=deep),
        op(2, ["y", "w"], ["z"], work("dense", 1), backward=work("elementwise", 30)),
    )
    assert analyse_at(program, ROWS).total.backward.depth == 30 + 20
    shorter = graph(*program.ops[:2])
    assert analyse_at(shorter, ROWS).total.backward.depth == 20


def test_layers_are_outermost_modules_that_move_rows_along_edges():
    program = graph(
        op(0, ["x"], ["a"], work("elementwise", 1)),
        op(1, ["a"], ["b"], work("dense", 1), module="model.convs.0.lin"),
        op(2, ["b"], ["c"], work("gather", 1), module="model.convs.0", phase="gather"),
        op(3, ["c"], ["d"], work("scatter", 1), module="model.convs.0.aggr", phase="aggregate"),
        op(4, ["d"], ["e"], work("elementwise", 1), module="model.acts.0"),
        op(5, ["e"], ["f"], work("gather", 1), module="", phase="gather"),
    )
    layers = layers_of(program)
    assert [layers[index] for index in range(6)] == [
        MODEL, "convs.0", "convs.0", "convs.0", "acts.0", LOSS,
    ]  # fmt: skip
    figures = analyse_at(program, ROWS)
    assert [layer.name for layer in figures.layers] == [MODEL, "convs.0", "acts.0", LOSS]
    assert figures.layers[1].ops == (1, 2, 3)
    assert figures.layers[1].forward.depth == 3
    assert figures.model.ops == (0, 1, 2, 3, 4)
    # plans name modules as the model does
    named = [
        replace(each, module=each.module.removeprefix("model").lstrip(".")) for each in program.ops
    ]
    assert layers_of(graph(*named)) == layers
    assert [phase.name for phase in figures.phases] == ["update", "gather", "aggregate"]


def test_saved_storages_count_once_and_parameters_not():
    program = graph(
        op(0, ["x", "w"], ["a"], work("dense", 1), saved=["x", "w", "a"]),
        op(1, ["a"], ["a.1"], work("elementwise", 1), saved=["a.1", "a"]),
        op(2, ["a.1", "x"], ["c"], work("elementwise", 1), saved=["x", "a.1"]),
    )
    table = 100 * 4 * 4
    # x, a, and a.1: what was kept before it was written is a copy
    assert saved_bytes(program, ROWS) == 3 * table
    assert analyse_at(program, ROWS).total.saved_bytes == 3 * table
    assert saved_bytes(program, ROWS, [program.ops[0]]) == 2 * table
    assert saved_bytes(program, ROWS, []) == 0


def test_hoisted_values_are_the_frontier():
    program = graph(
        op(0, ["x"], ["a"], work("elementwise", 1), hoistable=True),
        op(1, ["a"], ["b"], work("elementwise", 1), hoistable=True),
        op(2, ["b"], ["view"], Work("view"), hoistable=True),
        op(3, ["x"], ["flat"], Work("view"), hoistable=True),
        op(4, ["view", "w"], ["c"], work("dense", 1)),
        op(5, ["view", "b", "flat"], ["d"], work("elementwise", 1)),
    )
    found = {each.tensor: each for each in hoisted_values(program, ROWS)}
    # the view and what it looks at are one storage; a view of the features takes nothing
    assert {name: each.bytes for name, each in found.items()} == {
        "view": 1600.0, "b": 0.0, "flat": 0.0,
    }  # fmt: skip
    assert found["view"].readers == (4, 5)
    total = analyse_at(program, ROWS).total
    assert (total.hoistable, total.unknown) == (4, 0)


def test_unknown_ops_are_told():
    program = graph(op(0, ["x"], ["a"], work("other", 1), rule=None))
    figures = analyse_at(program, ROWS)
    assert not figures.ops[0].known
    assert figures.total.unknown == 1


def test_degrees_come_from_the_graph():
    symbol = most("edge", "dst", "node")
    each = Work("scatter", Polynomial.of(2, "edge"), depth=Depth.over(Polynomial.of(1, symbol)))
    program = graph(op(0, ["x"], ["a"], each, phase="aggregate"))
    stats = GraphStats({"node": 100, "edge": 800}, 32, 8.0, 0, {}, {})
    assert analyse(program, stats).total.forward.depth == 6
    assert analyse(program, stats, {symbol: 64}).total.forward.depth == 7
    # unknown: all edges may end in one node
    assert analyse_at(program, {"node": 16.0, "edge": 512.0}).total.forward.depth == 10


def test_degrees_of_a_described_graph():
    few, many = DegreeStats(1, 1, 2, 3, 0, 0), DegreeStats(1, 1, 2, 50, 0, 0)
    relations = {"edge[a__w__p]": RelationStructure(9, 0, few, many)}
    structure = GraphStructure({"node[a]": 4, "node[p]": 5}, relations, 1, 9, (), ())
    assert largest_of(structure, {"edge[a__w__p]": ("node[a]", "node[p]")}) == {
        most("edge[a__w__p]", "dst", "node[p]"): 3,
        most("edge[a__w__p]", "src", "node[a]"): 50,
    }


def test_density_is_the_share_of_pairs_that_meet():
    each = Work("spmm", nnz=Polynomial.of(1, "edge"), cells=Polynomial.of(1, "node", "node"))
    program = graph(op(0, ["x"], ["a"], each), op(1, ["a"], ["b"], work("elementwise", 1)))
    first, second = analyse_at(program, ROWS).ops
    assert first.forward.density == pytest.approx(0.08)
    assert second.forward.density is None


def test_roles_of_dimensions():
    axes = {
        **AXES,
        "node[paper]": Axis("node[paper]", "node", "base"),
        "other0": Axis("other0", "const", "other"),
    }
    assert roles_of(tensor("v", "node", 4), axes) == ("node", "feature")
    assert roles_of(tensor("v", "node[paper]", 1, 4), axes) == ("node[paper]", "const", "feature")
    assert roles_of(tensor("v", 2, "edge", dtype="int64"), axes) == ("const", "edge")
    assert roles_of(tensor("v", "other0"), axes) == ("const",)
