"""Several node types: owners, halos and exchange lists of each, from relations between any two of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import PlanError
from autoplan.partition.closed import closed_owner, units_of
from autoplan.partition.halo import build_shards, gather_order
from autoplan.partition.measure import graph_stats, measure
from autoplan.partition.metis import partition_nodes, partition_types
from autoplan.partition.union import NodeUnion

A, B, C = "node[a]", "node[b]", "node[c]"
RELATIONS = {
    "edge[a__to__b]": (A, B),
    "edge[b__to__a]": (B, A),
    "edge[a__likes__a]": (A, A),
    "edge[c__to__b]": (C, B),
    "edge[c__to__b]:pairs": (C, B),
}
LISTS = {"index[a]:train_idx": A, "index[b]:seeds": B}


@st.composite
def partitioned_graphs(draw):
    """Directed relations with loops and duplicates; isolated nodes, empty types, relations and ranks."""
    parts = draw(st.integers(1, 4))
    nodes = {axis: draw(st.integers(0, 9)) for axis in (A, B, C)}
    ranks = st.integers(0, parts - 1)
    owner = {
        axis: np.array(draw(st.lists(ranks, min_size=n, max_size=n)), dtype=np.int64)
        for axis, n in nodes.items()
    }

    def some(axis, most):
        limit = most if nodes[axis] else 0
        return st.lists(st.integers(0, max(nodes[axis] - 1, 0)), max_size=limit)

    edges = {}
    for axis, (source, destination) in RELATIONS.items():
        sources = draw(some(source, 20 if nodes[destination] else 0))
        end = st.integers(0, max(nodes[destination] - 1, 0))
        destinations = draw(st.lists(end, min_size=len(sources), max_size=len(sources)))
        edges[axis] = np.array([sources, destinations], dtype=np.int64)
    listed = {axis: np.array(draw(some(of, 6)), dtype=np.int64) for axis, of in LISTS.items()}
    return nodes, owner, parts, edges, listed


@given(partitioned_graphs())
@settings(max_examples=100, deadline=None)
def test_local_numbers_and_halos_of_every_type(case):
    nodes, owner, parts, edges, listed = case
    shards = build_shards(owner, edges, listed, relations=RELATIONS, parts=parts)
    for axis, ranks in owner.items():
        order = gather_order(shards, axis)
        np.testing.assert_array_equal(np.sort(order), np.arange(nodes[axis]))
        for shard in shards:
            np.testing.assert_array_equal(shard.rows(axis), np.flatnonzero(ranks == shard.rank))
    for shard in shards:
        read = {axis: set() for axis in owner}
        for axis, (source, destination) in RELATIONS.items():
            mine = np.flatnonzero(owner[destination][edges[axis][1]] == shard.rank)
            np.testing.assert_array_equal(shard.rows(axis), mine)
            local = shard.edge_index[axis]
            sources = shard.local_rows(source)[local[0]]
            np.testing.assert_array_equal(sources, edges[axis][0][mine])
            owned = shard.rows(destination)[local[1]]
            np.testing.assert_array_equal(owned, edges[axis][1][mine])
            read[source] |= set(edges[axis][0][mine].tolist())
        for axis, rows in shard.nodes.items():
            wanted = {node for node in read[axis] if owner[axis][node] != shard.rank}
            expected = sorted(wanted, key=lambda node: (owner[axis][node], node))
            assert rows.halo.tolist() == expected
            asked = np.split(rows.owned[rows.send_rows], np.cumsum(rows.send_counts)[:-1])
            for peer, sent in zip(shards, asked, strict=True):
                theirs = peer.nodes[axis].halo
                np.testing.assert_array_equal(sent, theirs[owner[axis][theirs] == shard.rank])
        for axis, of in LISTS.items():
            rows = shard.index_rows[axis]
            values = shard.nodes[of].owned[shard.index_values[axis]]
            np.testing.assert_array_equal(values, listed[axis][rows])


@given(partitioned_graphs())
@settings(max_examples=50, deadline=None)
def test_measured_without_being_made(case):
    _, owner, parts, edges, listed = case
    shards = build_shards(owner, edges, listed, relations=RELATIONS, parts=parts)
    found = measure(owner, edges, listed, relations=RELATIONS, parts=parts)
    assert found.shards == tuple(shard.sizes for shard in shards)


@given(partitioned_graphs())
@settings(max_examples=50, deadline=None)
def test_components_go_over_types(case):
    nodes, _, parts, edges, _ = case
    units = units_of(nodes, edges, relations=RELATIONS)
    for axis, (source, destination) in RELATIONS.items():
        ends = units.of[source][edges[axis][0]], units.of[destination][edges[axis][1]]
        np.testing.assert_array_equal(*ends)
    packed = closed_owner(units, edges, parts, RELATIONS)
    shards = build_shards(packed.nodes, edges, {}, relations=RELATIONS, parts=parts, closed=True)
    assert not any(len(rows.halo) for shard in shards for rows in shard.nodes.values())


def test_the_union_is_cut_as_one_graph():
    generator = np.random.default_rng(0)
    nodes = {A: 60, B: 30}
    relations = {"edge[a__to__b]": (A, B), "edge[a__to__b]:pairs": (A, B)}
    edges = {
        "edge[a__to__b]": np.stack([generator.integers(0, 60, 200), generator.integers(0, 30, 200)])
    }
    pairs = {"edge[a__to__b]:pairs": np.array([[0, 1], [2, 3]])}
    found = partition_types(nodes, {**edges, **pairs}, relations, 3, seed=4)
    union = edges["edge[a__to__b]"] + np.array([[0], [60]])
    expected = partition_nodes(union, 90, 3, seed=4)
    np.testing.assert_array_equal(np.concatenate([found[A], found[B]]), expected)
    assert NodeUnion({A: 5}).joined({}, None).shape == (2, 0)


def test_sizes_of_a_graph_of_several_types():
    edges = {
        "edge[a__to__b]": np.array([[0, 0, 1], [1, 1, 1]]),
        "edge[b__to__b]": np.array([[0], [1]]),
    }
    relations = {"edge[a__to__b]": (A, B), "edge[b__to__b]": (B, B)}
    stats = graph_stats({A: 3, B: 2}, edges, relations=relations)
    assert dict(stats.rows) == {A: 3, B: 2, "edge[a__to__b]": 3, "edge[b__to__b]": 1}
    assert (stats.nodes, stats.max_in_degree, stats.isolated_nodes) == (5, 4, 1)
    assert stats.mean_in_degree == 4 / 5


def test_an_end_that_is_no_node_of_its_type_is_named():
    edges = {"edge[a__to__b]": np.array([[2], [2]])}
    relations = {"edge[a__to__b]": (A, B)}
    owner = {A: np.array([0, 0, 0]), B: np.array([0, 0])}
    with pytest.raises(PlanError, match=r"'edge\[a__to__b\]' names node 2 but the graph has 2"):
        build_shards(owner, edges, {}, relations=relations)
