from __future__ import annotations

import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.numbers import Numbers, is_shape
from autoplan.execute.source import Body
from autoplan.opgraph import Axis, OpGraph, TensorMeta
from autoplan.program.ir import Expression, OpStep
from autoplan.program.torch_internals import operator_name, tree_flatten

AXES = {
    "node": Axis("node", "node", "base"),
    "edge": Axis("edge", "edge", "base"),
    "select(v3)": Axis("select(v3)", "edge", "select", ("edge",)),
    "concat(select(v3),node)": Axis(
        "concat(select(v3),node)", "edge", "concat", ("select(v3)", "node")
    ),
    "other0": Axis("other0", "const", "other"),
}
LOOPS = "concat(select(v3),node)"
TENSORS = {
    tensor.name: tensor
    for tensor in (
        TensorMeta("v1", ("node", 4), "float32", "input", source="x"),
        TensorMeta("v3", ("edge",), "bool", "op"),
        TensorMeta("v4", (2, "select(v3)"), "int64", "op"),
        TensorMeta("v5", (2, LOOPS), "int64", "op"),
        TensorMeta("v6", ("other0",), "float32", "input", source="z"),
    )
}
GRAPH = OpGraph((), TENSORS, AXES, (), False, False)


def numbers(*defined):
    body = Body()
    names = {}
    for tensor, state in defined:
        name = f"{tensor}_{state}"
        names[tensor, state] = name
        body.add(f"{name} = ...", name)

    def load(tensor, state):
        name = f"{tensor}_{state}"
        body.add_first(f"{name} = inputs[...]", name)
        return name

    return Numbers(GRAPH, body, names, load, lambda tensor: None), body


def text(body):
    return body.render("def step():", "[]", True).splitlines()[2:-1]


def test_sizes_are_local_as_shapes_and_whole_as_values():
    made, body = numbers()
    assert made.resolve("(s1_0 + 1)", "O") == "(rows_node_O + 1)"
    assert made.resolve("1 / v1.size(0)", "R") == "1 / rows_node_R"
    assert made.resolve("n1 * s1_1", "H") == "(rows_node_H * 4) * 4"
    assert made.resolve("i7_0 + 2", "O") == "i7_0 + 2"
    assert made.rows("edge", "H") == "rows_edge_O"
    assert "    rows_node_O = context.rows('node', 'O')" in text(body)


def test_rows_of_a_selection_come_from_a_tensor_that_has_them():
    made, body = numbers(("v3", "O"), ("v4", "O"), ("v1", "O"))
    assert made.resolve("s4_1", "O") == "rows_select_v3_O"
    lines = text(body)
    at = lines.index("    rows_select_v3_O = v4_O.size(1)")
    assert lines[at - 1] == "    v4_O = ..."
    assert made.resolve("s4_1", "O") == "rows_select_v3_O"
    assert len(text(body)) == len(lines)


def test_rows_without_such_a_tensor_are_counted():
    made, body = numbers(("v3", "R"))
    assert made.resolve("s5_1", "R") == "rows_concat_select_v3_node_R"
    lines = text(body)
    assert "    rows_select_v3_R = int(v3_R.sum())" in lines
    assert "    rows_concat_select_v3_node_R = rows_select_v3_R + rows_node_R" in lines
    made, body = numbers(("v3", "R"))
    made.resolve("s4_1", "O")
    assert "    v3_O = exchange.own_rows(context, v3_R, 'edge', 0)" in text(body)


def test_other_axes_are_whole_and_may_need_an_input():
    made, body = numbers()
    assert made.resolve("s6_0", "O") == "rows_other0_R"
    assert text(body)[:2] == ["    v6_R = inputs[...]", "    rows_other0_R = v6_R.size(0)"]


def test_keys_follow_selections_and_concatenations():
    made, body = numbers(("v3", "O"))
    assert made.keys(LOOPS, "O") == "keys_concat_select_v3_node_O"
    lines = [line.strip() for line in text(body)]
    assert "keys_select_v3_O = keys_edge_O[v3_O]" in lines
    assert (
        "keys_concat_select_v3_node_O = torch.cat([keys_select_v3_O, keys_node_O + (rows_edge_R)])"
        in lines
    )


def test_what_cannot_be_known_is_an_error():
    made, _ = numbers()
    with pytest.raises(PlanError, match="tensor v3 selects are needed in state O"):
        made.keys("select(v3)", "O")


def step(operator, *args, **kwargs):
    flat, spec = tree_flatten((args, kwargs))
    return OpStep(operator, tuple(flat), spec, ("v9",), None, True, False, "", "")


N = Expression("s1_0")


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (step(torch.ops.aten.new_zeros.default, Expression("v1"), [N, 4], dtype=None), [N, 4]),
        (step(torch.ops.aten.full.default, [N], N), [N]),
        (step(torch.ops.aten.mul.Scalar, Expression("v1"), N), []),
        (step(torch.ops.aten.arange.default, N), [N]),
        (step(torch.ops.aten.expand.default, Expression("v1"), [N, -1]), [N, -1]),
    ],
)
def test_which_arguments_are_shapes(call, shapes):
    flags = is_shape(call, operator_name(call.func) or "")
    found = [a for a, flag in zip(call.args, flags, strict=True) if flag and a is not None]
    assert found == shapes
