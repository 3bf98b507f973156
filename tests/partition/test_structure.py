"""Structures against brute force: degrees, components, growth by hops, sampled sizes; memory stays within slices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping

import networkx as nx
import numpy as np
import pytest

from autoplan.graphstats import PartitionStats
from autoplan.partition.measure import measure
from autoplan.partition.sampled import _draw, incoming, neighbourhood
from autoplan.partition.structure import degree_stats, structure

RELATIONS = {
    "edge[a__to__b]": ("node[a]", "node[b]"),
    "edge[b__to__a]": ("node[b]", "node[a]"),
}
NODES = {"node[a]": 23, "node[b]": 31}


def _edges(seed: int, count: int = 30) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        axis: np.stack([generator.integers(0, NODES[end], count) for end in ends])
        for axis, ends in RELATIONS.items()
    }


def _as_networkx(edges: Mapping[str, np.ndarray]) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((axis, n) for axis, count in NODES.items() for n in range(count))
    for axis, ends in edges.items():
        source, destination = RELATIONS[axis]
        graph.add_edges_from(((source, u), (destination, v)) for u, v in ends.T.tolist())
    return graph


@pytest.mark.parametrize("seed", range(3))
def test_components_and_growth_of_several_types_equal_brute_force(seed: int) -> None:
    edges = _edges(seed)
    graph = _as_networkx(edges)
    generator = np.random.default_rng(seed)
    owner = {axis: generator.integers(0, 3, count) for axis, count in NODES.items()}
    stats = measure(owner, edges, relations=RELATIONS, parts=3)
    found = structure(NODES, edges, RELATIONS, partitions=[(stats, owner)], hops=4)
    components = list(nx.weakly_connected_components(graph))
    assert found.components == len(components)
    assert found.largest == max(map(len, components))
    (cut,) = found.partitions
    for part in range(3):
        there = {n for n in graph if owner[n[0]][n[1]] == part}
        for hop in range(5):
            assert cut.reached[hop][part] == len(there)
            if hop == 1:
                assert len(there) == stats.shards[part].nodes + stats.shards[part].halo
            there |= {source for source, destination in graph.edges() if destination in there}
    assert cut.cut_share == stats.cut_edges / 60


def test_degrees_and_their_inequality() -> None:
    even, one = degree_stats(np.full(50, 4)), degree_stats(np.array([0] * 99 + [200]))
    assert (even.mean, even.median, even.p99, even.max, even.without) == (4, 4, 4, 4, 0)
    assert even.gini == pytest.approx(0)
    assert (one.mean, one.median, one.p99, one.max, one.without) == (2, 0, 0, 200, 99)
    assert one.gini == pytest.approx(0.99)
    values = np.random.default_rng(0).integers(0, 30, 200)
    pairwise = np.abs(values[:, None] - values[None]).sum() / (2 * 200**2 * values.mean())
    assert degree_stats(values).gini == pytest.approx(pairwise)


def test_all_neighbours_are_the_closure_and_fan_outs_bound_each_draw() -> None:
    edges = _edges(0)
    ordered = incoming(NODES, edges, RELATIONS)
    whole = neighbourhood(NODES, ordered, (-1, -1), "node[b]", seeds=54, batches=1)
    # every node of the one type is a seed, none of the other
    assert (whole.seeds, whole.axis, whole.nodes[0]) == (31, "node[b]", 31)
    sources = {int(node) for node in edges["edge[a__to__b]"][0]}
    assert whole.nodes == (31, 31 + len(sources), 31 + len(sources))
    # hop by hop all edges into what is new
    assert whole.edges == 30 + sum(node in sources for node in edges["edge[b__to__a]"][1].tolist())
    drawn = neighbourhood(NODES, ordered, (2, 1), "node[a]", seeds=10, batches=20)
    assert drawn.nodes[0] == 10
    assert 10 < drawn.nodes[1] <= 10 + 2 * 10
    assert drawn.nodes[1] <= drawn.nodes[2] <= drawn.most
    assert drawn == neighbourhood(NODES, ordered, (2, 1), "node[a]", seeds=10, batches=20)
    described = structure(NODES, edges, RELATIONS, fan_outs=[(2,), (2, 1)])
    assert [each.axis for each in described.neighbourhoods] == ["node[a]"] * 2 + ["node[b]"] * 2


def test_draws_without_replacement_are_fair() -> None:
    # one node with 40 distinct neighbours, of which 10 are drawn
    star = {"edge": np.stack([np.arange(1, 41), np.zeros(40, dtype=np.int64)])}
    ordered = incoming({"node": 41}, star)
    generator = np.random.default_rng(0)
    seen = np.zeros(41)
    for _ in range(400):
        # two nodes at once take the way of many nodes
        picked = _draw(ordered[0], np.array([0, 1]), 10, generator)
        assert len(set(picked.tolist())) == 10
        seen[picked] += 1
    assert 60 < seen[1:].min() <= seen[1:].max() < 145


def test_a_graph_without_edges_or_nodes_has_a_structure() -> None:
    none = structure({"node": 0}, {"edge": np.empty((2, 0), dtype=np.int64)}, fan_outs=[(5,)])
    assert (none.components, none.largest, none.neighbourhoods[0].most) == (0, 0, 0)
    bare = structure({"node": 4}, {"edge": np.empty((2, 0), dtype=np.int64)}, fan_outs=[(5,)])
    assert (bare.components, bare.largest, bare.neighbourhoods[0].nodes) == (4, 1, (4.0, 4.0))


def test_memory_beside_the_graph_is_at_most_28_bytes_an_edge() -> None:
    # ten million edges: 280 MB
    generator = np.random.default_rng(0)
    nodes, count = 100_000, 2_000_000
    edges = {"edge": generator.integers(0, nodes, (2, count))}
    owner = {"node": generator.integers(0, 2, nodes)}
    cut = (PartitionStats(2, "given", 0, 0, ()), owner)
    tracemalloc.start()
    structure({"node": nodes}, edges, partitions=[cut], fan_outs=[(15, 10)], batches=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # slices and what is kept for each node do not grow with the edges
    assert peak < 28 * count + 40 * nodes + 40 * 2**20
