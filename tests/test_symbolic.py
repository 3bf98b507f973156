"""Polynomials and depths as functions of sizes."""

from __future__ import annotations

import pytest

from autoplan.symbolic import Depth, Log, Polynomial, counted_in, most

NODES = Polynomial.of(1, "node")


def test_depth_of_a_tree():
    tree = Depth.over(NODES)
    assert tree.evaluate({"node": 1024}) == 11
    # nothing to add up
    assert tree.evaluate({"node": 1}) == tree.evaluate({"node": 0}) == 1
    with pytest.raises(KeyError):
        tree.evaluate({"edge": 3})


def test_depths_add_up():
    total = Depth.over(NODES) + Depth.over(NODES) + Depth.over(Polynomial.of(8), constant=0)
    assert total.evaluate({"node": 16}) == 2 + 8 + 3
    assert len(total.logs) == 2
    assert Depth.over(NODES) + Depth() == Depth.over(NODES)


def test_depth_of_a_sort():
    assert Depth.over(NODES, power=2).evaluate({"node": 256}) == 1 + 64


def test_depths_are_readable():
    tree = Depth(2.0, (Log(3.0, NODES), Log(1.0, Polynomial.of(16), 2)))
    assert str(tree) == "2 + 3*log2(1*node) + log2(16)^2"
    assert str(Depth()) == "0"


def test_the_largest_degree_is_a_symbol():
    symbol = most("edge[author__writes__paper]", "dst", "node[paper]")
    assert counted_in(symbol) == "edge[author__writes__paper]"
    assert counted_in(most("edge:pairs", "src", "node")) == "edge:pairs"
    assert counted_in("edge:pairs") is None
    tree = Depth.over(Polynomial.of(1, symbol))
    assert tree.symbols == {symbol}
    assert tree.evaluate({symbol: 4}) == 3
