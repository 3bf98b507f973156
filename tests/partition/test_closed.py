import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.errors import PlanError
from autoplan.partition.closed import BALANCE, closed_owner, pack, units_of
from autoplan.partition.halo import build_shards
from autoplan.partition.measure import measure

EDGES = {"edge": np.array([[0, 1, 4, 6, 6], [1, 0, 5, 6, 2]])}


def balance(loads, part, parts):
    filled = np.bincount(part, weights=loads, minlength=parts)
    return filled.max() / (np.sum(loads) / parts)


def test_units_without_a_batch_are_connected_components():
    units = units_of(8, EDGES)
    assert units.of["node"].tolist() == [0, 0, 1, 2, 3, 3, 1, 4]
    assert (units.count, units.kind, units.graph_of) == (5, "component", None)


def test_units_are_joined_by_edges_of_every_axis():
    units = units_of(8, {**EDGES, "edge:pairs": np.array([[3], [7]])})
    assert units.of["node"].tolist() == [0, 0, 1, 2, 3, 3, 1, 2]


def test_units_of_a_batch_are_its_graphs_even_those_without_nodes():
    batch = np.array([0, 0, 0, 2, 2, 2, 3])
    units = units_of(7, {"edge": np.array([[0, 4], [1, 4]])}, batch, 5)
    assert units.of["node"].tolist() == batch.tolist()
    assert (units.count, units.kind, units.graph_of.tolist()) == (5, "graph", [0, 1, 2, 3, 4])


def test_graphs_that_an_edge_joins_are_one_unit():
    units = units_of(4, {"edge": np.array([[3], [0]])}, np.array([0, 1, 2, 3]), 4)
    assert units.of["node"].tolist() == [0, 1, 2, 0]
    assert (units.count, units.kind) == (3, "component")


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_closed_shards_have_no_halo_and_own_every_graph(parts):
    batch = np.array([0, 0, 0, 2, 2, 2, 3])
    edges = {"edge": np.array([[0, 4, 2], [1, 4, 0]])}
    owner = closed_owner(units_of(7, edges, batch, 5), edges, parts)
    shards = build_shards(
        owner.nodes, edges, {}, parts=parts, closed=True, graph_owner=owner.graphs
    )
    assert all(len(shard.nodes["node"].halo) == 0 and shard.closed for shard in shards)
    owned = np.concatenate([shard.rows("graph") for shard in shards])
    assert sorted(owned) == [0, 1, 2, 3, 4]
    for shard in shards:
        assert set(batch[shard.nodes["node"].owned]) <= set(shard.rows("graph"))
    stats = measure(owner.nodes, edges, parts=parts, method="closed", graph_owner=owner.graphs)
    assert stats.closed
    assert stats.cut_edges == 0
    assert stats.shards == tuple(shard.sizes for shard in shards)


def test_parts_are_balanced_by_nodes_and_edges():
    # one graph with few nodes and many edges, two with many nodes
    batch = np.array([0] * 2 + [1] * 6 + [2] * 6)
    edges = {"edge": np.zeros((2, 10), dtype=np.int64)}
    owner = closed_owner(units_of(14, edges, batch, 3), edges, 2)
    assert owner.graphs.tolist() == [0, 1, 1]


def test_an_edge_between_parts_of_a_closed_partition_is_refused():
    with pytest.raises(PlanError, match="node 1 is read by rank 0 and owned by rank 1"):
        build_shards(np.array([0, 1]), {"edge": np.array([[1], [0]])}, {}, closed=True)


def test_more_parts_than_units_leave_parts_empty():
    assert sorted(pack(np.array([3, 9]), 4)) == [0, 1]


def test_a_packing_that_largest_first_misses():
    loads = np.array([3, 3, 2, 2, 2])
    assert balance(loads, pack(loads, 2), 2) == 1


def test_no_parts_are_refused():
    with pytest.raises(PlanError, match="at least 1 part, not 0"):
        pack(np.array([1]), 0)


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_balanced_where_a_balanced_packing_exists(groups, random):
    """Parts of equal load are cut into units, shuffled, and packed again."""
    full = max(sum(group) for group in groups)
    loads = list(itertools.chain.from_iterable([*group, full - sum(group)] for group in groups))
    random.shuffle(loads)
    part = pack(np.array(loads), len(groups))
    assert balance(loads, part, len(groups)) <= BALANCE
    assert np.array_equal(part, pack(np.array(loads), len(groups)))
