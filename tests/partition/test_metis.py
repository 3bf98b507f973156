import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.errors import PlanError
from autoplan.partition.metis import partition_nodes


def two_cliques(size: int) -> np.ndarray:
    """Two directed cliques joined by one edge, with self-loops and every edge twice."""
    pairs = [(a + base, b + base) for base in (0, size) for a in range(size) for b in range(size)]
    pairs.append((0, size))
    return np.array(pairs * 2, dtype=np.int64).T


@st.composite
def graphs(draw):
    nodes = draw(st.integers(0, 30))
    some_node = st.integers(0, max(nodes - 1, 0))
    pairs = draw(st.lists(st.tuples(some_node, some_node), max_size=60 if nodes else 0))
    return nodes, np.array(pairs, dtype=np.int64).reshape(-1, 2).T, draw(st.integers(1, 9))


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_every_node_has_a_rank_and_every_rank_a_node(case):
    nodes, edge_index, parts = case
    owner = partition_nodes(edge_index, nodes, parts)
    assert owner.shape == (nodes,)
    assert owner.dtype == np.int64
    counts = np.bincount(owner, minlength=parts)
    assert len(counts) == parts
    assert np.count_nonzero(counts) == min(nodes, parts)
    np.testing.assert_array_equal(owner, partition_nodes(edge_index, nodes, parts))


def test_the_natural_cut_is_found():
    owner = partition_nodes(two_cliques(8), 16, 2)
    assert len(set(owner[:8])) == len(set(owner[8:])) == 1
    assert owner[0] != owner[8]


def ring_with_hubs(nodes: int) -> np.ndarray:
    """A ring; the first tenth of the nodes get ten more edges each."""
    ring = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    draw = np.random.default_rng(0)
    hubs = np.repeat(np.arange(nodes // 10), 10)
    return np.concatenate([ring, np.stack([draw.integers(0, nodes, len(hubs)), hubs])], axis=1)


def test_edges_are_balanced_rather_than_nodes():
    edge_index = ring_with_hubs(1000)
    owner = partition_nodes(edge_index, 1000, 4)
    work = np.bincount(owner[edge_index[1]], minlength=4) + np.bincount(owner, minlength=4)
    assert work.max() <= 1.1 * work.mean()


def test_shares_follow_the_weights():
    edge_index = ring_with_hubs(1000)
    owner = partition_nodes(edge_index, 1000, 3, weights=[2.0, 1.0, 1.0])
    work = np.bincount(owner[edge_index[1]], minlength=3) + np.bincount(owner, minlength=3)
    np.testing.assert_allclose(work / work.sum(), [0.5, 0.25, 0.25], atol=0.03)


def test_no_edges_give_consecutive_blocks():
    nothing = np.empty((2, 0), dtype=np.int64)
    assert partition_nodes(nothing, 6, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert partition_nodes(nothing, 6, 2, weights=[2, 1]).tolist() == [0, 0, 0, 0, 1, 1]


def test_only_self_loops_are_no_edges():
    loops = np.array([[0, 1, 2, 3], [0, 1, 2, 3]])
    assert partition_nodes(loops, 4, 2).tolist() == [0, 0, 1, 1]


def test_a_share_too_small_for_a_node_still_gets_one():
    owner = partition_nodes(two_cliques(5), 10, 3, weights=[1e6, 1e6, 1.0])
    assert set(owner.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parts": 0}, "at least 1 part, not 0"),
        ({"parts": 2, "weights": [1.0]}, "do not fit 2 parts"),
        ({"parts": 2, "weights": [1.0, 0.0]}, "do not fit 2 parts"),
        ({"parts": 2, "weights": [1.0, float("nan")]}, "do not fit 2 parts"),
        ({"parts": 2, "num_nodes": 1}, "'edge' names node 1 but the graph has 1 nodes"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(PlanError, match=message):
        partition_nodes(np.array([[0], [1]]), **{"num_nodes": 2, **arguments})


def test_what_metis_prints_does_not_reach_standard_output():
    program = """
import ctypes
import numpy as np
import pymetis
from autoplan.partition.metis import partition_nodes

c_library = ctypes.CDLL(None)
part_graph = pymetis.part_graph

def noisy(*arguments, **options):
    c_library.printf(b"noise\\n")
    return part_graph(*arguments, **options)

pymetis.part_graph = noisy
c_library.printf(b"before\\n")
partition_nodes(np.stack([np.zeros(40, np.int64), np.arange(1, 41)]), 41, 30)
c_library.printf(b"after\\n")
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "before\nafter\n", answer.stderr
