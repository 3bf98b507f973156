from __future__ import annotations

import pytest

from autoplan.opgraph import Polynomial
from autoplan.program.ir import Expression
from autoplan.trace.rules.axes import AxisTable
from autoplan.trace.rules.numbers import Numbers


@pytest.fixture
def numbers():
    table = AxisTable.of([{"node": 10, "edge": 31}, {"node": 12, "edge": 40}])
    chosen = table.select("v9", "edge", (20, 25))
    joined = table.concat([chosen, "node"])
    dims = {"v1": ("node", 16), "v2": (chosen,), "v3": (2, joined), "v4": ("edge", 3)}
    return Numbers(dims.__getitem__, table.axes)


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("s1_0", "node"),
        ("v1.size(0)", "node"),
        ("s1_1", 16),
        ("(1 * s4_0 * s1_1 // 1)", None),
        ("(s1_0 + s4_0)", None),
        ("s3_1", "concat(select(v9),node)"),
        ("i7_0", None),
        ("(s1_0 // 2)", None),
        ("(s1_1 + 3)", 19),
    ],
)
def test_shape_arguments(numbers, text, dim):
    assert numbers.dim(Expression(text)) == dim


def test_polynomial(numbers):
    assert numbers.polynomial(Expression("n4")) == Polynomial.of(3, "edge")
    assert numbers.polynomial(Expression("(2 * s1_0) - s4_0")) == Polynomial.of(
        2, "node"
    ) + Polynomial.of(-1, "edge")


@pytest.mark.parametrize(
    ("test", "expected", "always"),
    [
        ("s3_0 == 2", True, True),
        ("(s3_0 != 2)", False, True),
        ("s1_1", 16, True),
        ("s1_0 == s1_0", True, True),
        ("(n3 == 0)", False, True),  # self-loops: never empty
        ("(n2 == 0)", False, False),  # a mask may choose nothing
        ("(s2_0 <= s4_0)", True, True),  # a selection is no larger than what it is made from
        ("(s2_0 < s4_0)", True, False),
        ("(s1_0 > 100)", False, False),
        ("bool((s3_1 >= s1_0))", True, True),
        ("i3_0 == 0", True, False),
    ],
)
def test_guards_that_hold_for_every_graph(numbers, test, expected, always):
    assert numbers.always(test, expected) is always


def test_the_highest_graph_number_counts_graphs():
    table = AxisTable.of(
        [{"node": 10, "edge": 31, "graph": 3}, {"node": 12, "edge": 40, "graph": 5}]
    )
    numbers = Numbers({"v1": ("graph", 16)}.__getitem__, table.axes, {"i7_0": "graph"})
    assert numbers.dim(Expression("(int(i7_0) + 1)")) == "graph"
    assert numbers.always("((int(i7_0) + 1) == s1_0)", True)
    assert numbers.dim(Expression("i7_0")) is None
    assert numbers.dim(Expression("(int(i8_0) + 1)")) is None
