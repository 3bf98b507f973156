import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import PlanError
from autoplan.partition.halo import Shard, build_shards, gather_order
from autoplan.partition.ownership import order_by_owner

EDGE_AXES = ("edge", "edge:pos_edge_index")
LIST_AXIS = "index:train_idx"


@st.composite
def partitioned_graphs(draw):
    """Directed graphs with loops, duplicates, isolated nodes; uneven and empty ranks; two edge axes and a node list."""
    nodes = draw(st.integers(0, 12))
    parts = draw(st.integers(1, 4))
    owner = draw(st.lists(st.integers(0, parts - 1), min_size=nodes, max_size=nodes))
    some_node = st.integers(0, max(nodes - 1, 0))
    limit = 30 if nodes else 0
    edges = {}
    for axis in EDGE_AXES:
        pairs = draw(st.lists(st.tuples(some_node, some_node), max_size=limit))
        edges[axis] = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    listed = np.array(draw(st.lists(some_node, max_size=limit)), dtype=np.int64)
    return np.array(owner, dtype=np.int64), parts, edges, {LIST_AXIS: listed}


def local_to_global(shard: Shard) -> np.ndarray:
    return np.concatenate([shard.nodes["node"].owned, shard.nodes["node"].halo])


@given(partitioned_graphs())
@settings(max_examples=150, deadline=None)
def test_every_row_has_one_owner_in_ascending_order(case):
    owner, parts, edges, listed = case
    shards = build_shards(owner, edges, listed, parts=parts)
    assert len(shards) == parts
    owners = {
        "node": owner,
        LIST_AXIS: owner[listed[LIST_AXIS]],
        **{axis: owner[index[1]] for axis, index in edges.items()},
    }
    for axis, ranks in owners.items():
        for shard in shards:
            np.testing.assert_array_equal(shard.rows(axis), np.flatnonzero(ranks == shard.rank))
        everything = gather_order(shards, axis)
        np.testing.assert_array_equal(np.sort(everything), np.arange(len(ranks)))
        np.testing.assert_array_equal(
            shards[0].owned_counts[axis], np.bincount(ranks, minlength=parts)
        )


@given(partitioned_graphs())
@settings(max_examples=150, deadline=None)
def test_local_numbers_name_the_global_nodes(case):
    owner, parts, edges, listed = case
    for shard in build_shards(owner, edges, listed, parts=parts):
        nodes = local_to_global(shard)
        for axis, index in edges.items():
            local = shard.edge_index[axis]
            np.testing.assert_array_equal(nodes[local], index[:, shard.edge_rows[axis]])
            assert (local[1] < len(shard.nodes["node"].owned)).all()
        rows, values = shard.index_rows[LIST_AXIS], shard.index_values[LIST_AXIS]
        np.testing.assert_array_equal(shard.nodes["node"].owned[values], listed[LIST_AXIS][rows])


@given(partitioned_graphs())
@settings(max_examples=150, deadline=None)
def test_the_halo_is_what_the_edges_read_and_no_more(case):
    owner, parts, edges, listed = case
    for shard in build_shards(owner, edges, listed, parts=parts):
        read = np.concatenate([index[0, shard.edge_rows[a]] for a, index in edges.items()])
        needed = {int(node) for node in read if owner[node] != shard.rank}
        expected = sorted(needed, key=lambda node: (owner[node], node))
        assert shard.nodes["node"].halo.tolist() == expected


@given(partitioned_graphs())
@settings(max_examples=150, deadline=None)
def test_what_is_sent_is_what_was_asked_for(case):
    owner, parts, edges, listed = case
    shards = build_shards(owner, edges, listed, parts=parts)
    sent = [
        np.split(
            shard.nodes["node"].owned[shard.nodes["node"].send_rows],
            np.cumsum(shard.nodes["node"].send_counts)[:-1],
        )
        for shard in shards
    ]
    for shard in shards:
        received = np.concatenate([sent[peer][shard.rank] for peer in range(parts)])
        np.testing.assert_array_equal(received, shard.nodes["node"].halo)
        assert shard.nodes["node"].recv_counts.sum() == len(shard.nodes["node"].halo)
        assert (
            shard.nodes["node"].send_counts[shard.rank]
            == shard.nodes["node"].recv_counts[shard.rank]
            == 0
        )
        for peer in shards:
            assert (
                shard.nodes["node"].recv_counts[peer.rank]
                == peer.nodes["node"].send_counts[shard.rank]
            )


def test_a_small_directed_graph_by_hand():
    owner = np.array([0, 0, 1, 1, 2])
    edge_index = np.array([[2, 3, 3, 0, 4, 1, 1], [0, 1, 0, 0, 2, 3, 3]])
    first, second, third = build_shards(owner, {"edge": edge_index}, {})
    assert first.nodes["node"].halo.tolist() == [2, 3]
    assert first.edge_rows["edge"].tolist() == [0, 1, 2, 3]
    assert first.edge_index["edge"].tolist() == [[2, 3, 3, 0], [0, 1, 0, 0]]
    assert second.nodes["node"].halo.tolist() == [1, 4]
    assert second.nodes["node"].send_rows.tolist() == [0, 1]
    assert second.nodes["node"].send_counts.tolist() == [2, 0, 0]
    assert first.nodes["node"].send_rows.tolist() == [1]
    assert third.nodes["node"].halo.tolist() == []
    assert third.nodes["node"].send_counts.tolist() == [0, 1, 0]
    assert second.sizes.halo_rows == {"node": 2}
    assert second.sizes.owned_rows == {"node": 2, "edge": 3}
    assert second.sizes.sent_rows == {"node": 2}


def test_more_ranks_than_a_16_bit_sort_holds():
    owner = np.array([2**16 + 2, 0, 7, 2**16])
    ownership = order_by_owner(owner)
    assert ownership.parts == 2**16 + 3
    assert ownership.nodes.tolist() == [1, 2, 3, 0]


def test_ranks_that_own_nothing_need_parts():
    assert len(build_shards(np.array([0, 1]), {}, {})) == 2
    shards = build_shards(np.array([0, 1]), {}, {}, parts=4)
    assert [len(shard.nodes["node"].owned) for shard in shards] == [1, 1, 0, 0]


def test_two_million_edges_take_a_second_or_two():
    draw = np.random.default_rng(0)
    nodes, edges = 200_000, 2_000_000
    edge_index = draw.integers(0, nodes, (2, edges))
    owner = draw.integers(0, 4, nodes)
    begin = time.perf_counter()
    shards = build_shards(owner, {"edge": edge_index}, {})
    assert time.perf_counter() - begin < 15.0
    assert sum(shard.edge_index["edge"].shape[1] for shard in shards) == edges


@pytest.mark.parametrize(
    ("owner", "edge_index", "listed", "message"),
    [
        ([0, 5], [[0], [1]], [0], "0 to 5 but there are 2 parts"),
        ([0, -1], [[0], [1]], [0], "-1 to 0"),
        ([0, 1], [[0], [2]], [0], "'edge' names node 2 but the graph has 2 nodes"),
        ([0, 1], [[-1], [1]], [0], "'edge' names node -1"),
        ([0, 1], [[0], [1], [1]], [0], "shape \\[3, 1\\]; it must be \\[2, E\\]"),
        ([0, 1], [[0], [1]], [9], "'index:train_idx' names node 9"),
        ([0, 1], [[0], [1]], [[0]], "shape \\[1, 1\\]; it must be \\[K\\]"),
    ],
)
def test_what_does_not_exist_is_named(owner, edge_index, listed, message):
    with pytest.raises(PlanError, match=message):
        build_shards(
            np.array(owner),
            {"edge": np.array(edge_index)},
            {LIST_AXIS: np.array(listed)},
            parts=2,
        )
