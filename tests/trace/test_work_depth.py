"""Work and depth of layers follow Besta & Hoefler's table as nodes n, edges m, width k, layers and in-degree d grow.

Per layer: GCN, GAT, SAGE, MoNet O(mk + nk^2) work; GIN the same with its perceptron; EdgeConv with a perceptron O(mk^2); SGC and
SIGN O(Hmk) for their hops. PyG's gated GCN transforms once per node, not per edge, so that it has GCN's work. PyG's EdgeConv
transforms nothing per node. Depth per layer: O(log k + log d), and as often log k as a perceptron has layers. Exponents are slopes of
log(work) against log(size) where one term of the sum dominates.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from autoplan.analysis import Analysis, analyse
from autoplan.opgraph import OpGraph
from tests.trace.layers import HOPS, NETWORKS, described, edges, sizes

WIDTH, LAYERS = 64, 2
ONE_LAYER = ("SGC", "SIGN")
PER_EDGE_PRODUCTS = ("EdgeConv",)
DEPTH = {
    "GCN": (1, 1),
    "GAT": (2, 3),  # scores contract k, too; softmax takes a maximum and a sum over a node's edges
    "GIN": (2, 1),
    "SAGE": (1, 1),
    "MoNet": (1, 1),
    "gated GCN": (1, 1),
    "EdgeConv": (2, 1),
}
"""How often log2 k and log2 d are in the depth of a layer."""


def squares(out: Tensor, graph: Data) -> Tensor:
    return out.square().mean()


@cache
def program(name: str, width: int = WIDTH, layers: int = LAYERS) -> OpGraph:
    torch.manual_seed(0)
    graph = Data(x=torch.randn(90, width), edge_index=edges(90, 400), edge_attr=torch.rand(400, 2))
    return described(NETWORKS[name](width, layers), graph, squares)


def figures(graph: OpGraph, n: int = 10**4, m: int = 10**5, d: int = 1024) -> Analysis:
    return analyse(graph, sizes({"node": n, "edge": m}, d))


def exponent(values: list[float], found: list[float]) -> float:
    slope, _ = np.polyfit(np.log(values), np.log(found), 1)
    return float(slope)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", NETWORKS)
def test_work_grows_with_nodes_and_edges(name: str, direction: str):
    graph = program(name)

    def work(n: int, m: int) -> float:
        return getattr(figures(graph, n, m).model, direction).work

    many = [10**8, 2 * 10**8, 4 * 10**8]
    if name not in ONE_LAYER or direction == "forward":
        # what hops read asks for no gradient: backward knows nothing of edges
        assert exponent(many, [work(1000, m) for m in many]) == pytest.approx(1.0, abs=0.02)
    assert exponent(many, [work(n, 1000) for n in many]) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", NETWORKS)
def test_work_grows_with_width(name: str):
    widths = [WIDTH, 2 * WIDTH]
    both = [program(name, width) for width in widths]

    def slope(n: int, m: int) -> float:
        return exponent(widths, [figures(graph, n, m).model.forward.work for graph in both])

    along_edges = 2.0 if name in PER_EDGE_PRODUCTS else 1.0
    assert slope(1000, 10**8) == pytest.approx(along_edges, abs=0.1)
    along_nodes = 1.0 if name in PER_EDGE_PRODUCTS else 2.0
    assert slope(10**8, 1000) == pytest.approx(along_nodes, abs=0.1)


@pytest.mark.parametrize("name", DEPTH)
def test_work_and_depth_grow_with_layers(name: str):
    two, three = figures(program(name)), figures(program(name, layers=3))
    ratio = three.model.forward.work / two.model.forward.work
    assert ratio == pytest.approx(1.5, rel=0.03)
    width_of, degree_of = DEPTH[name]
    deeper = figures(program(name), d=2048)
    deeper_three = figures(program(name, layers=3), d=2048)
    wider = figures(program(name, 2 * WIDTH))
    # per layer: twice the width, one level more in each tree over it
    widened = wider.model.loop.depth - two.model.loop.depth
    assert widened == pytest.approx(LAYERS * width_of)
    # the third layer's trees over the edges of a node
    added = three.model.loop.depth - two.model.loop.depth
    added_at_twice = deeper_three.model.loop.depth - deeper.model.loop.depth
    assert added_at_twice - added == pytest.approx(degree_of, abs=0.01)
    # all else in a layer is a few operations
    constant = added - width_of * np.log2(WIDTH) - degree_of * np.log2(1024)
    assert 0 < constant < 25


@pytest.mark.parametrize("name", ONE_LAYER)
def test_hops_leave_the_loop(name: str):
    graph = program(name)
    once, loop = figures(graph).model.once, figures(graph).model.loop
    assert once.work > HOPS * 10**5 * WIDTH
    few, many = figures(graph, m=10**5).model, figures(graph, m=10**6).model
    assert many.loop.work == few.loop.work
    assert many.once.work > 8 * few.once.work
    # the hops' trees, and for SGC those of the degrees: H log d
    deeper = figures(graph, d=2048).model
    assert deeper.loop.depth == loop.depth
    hops = deeper.once.depth - once.depth
    assert HOPS - 0.01 < hops < HOPS + 1.01
    wider = figures(program(name, 2 * WIDTH)).model.loop
    assert wider.depth - loop.depth == pytest.approx(1.0)


def test_average_parallelism_is_work_over_depth():
    total = figures(program("GCN")).total
    assert total.forward.parallelism == pytest.approx(total.forward.work / total.forward.depth)
    # ten times the graph, a few levels more
    larger = figures(program("GCN"), 10**5, 10**6).total
    assert larger.forward.parallelism > 8 * total.forward.parallelism


def test_gradients_of_weights_are_trees_over_all_nodes():
    graph = program("GCN")
    deeper = figures(graph, n=2 * 10**4).model.backward.depth
    assert deeper - figures(graph).model.backward.depth == pytest.approx(1.0, abs=0.01)
