import numpy as np
import pytest

from autoplan.partition.halo import build_shards
from autoplan.partition.measure import graph_stats, measure


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("nodes", [3, 40])
def test_the_sizes_are_those_of_the_shards(nodes, parts):
    draw = np.random.default_rng(nodes + parts)
    owner = draw.integers(0, parts, nodes)
    edges = {axis: draw.integers(0, nodes, (2, 90)) for axis in ("edge", "edge:links")}
    listed = {"index:train_idx": draw.integers(0, nodes, 20)}
    shards = build_shards(owner, edges, listed, parts=parts)
    stats = measure(owner, edges, listed, parts=parts, method="given", seed=3)
    assert stats.shards == tuple(shard.sizes for shard in shards)
    assert (stats.parts, stats.method, stats.seed) == (parts, "given", 3)
    cut = sum(int((owner[index[0]] != owner[index[1]]).sum()) for index in edges.values())
    assert stats.cut_edges == cut


def test_graph_stats_by_hand():
    edge_index = np.array([[0, 1, 1, 3, 3], [1, 1, 2, 1, 1]])
    extra = np.array([[4], [0]])
    stats = graph_stats(
        6,
        {"edge": edge_index, "edge:links": extra},
        {"index:train_idx": np.array([5, 5])},
        attribute_bytes={"x": 96},
    )
    assert stats.rows == {"node": 6, "edge": 5, "edge:links": 1, "index:train_idx": 2}
    assert stats.max_in_degree == 4
    assert stats.mean_in_degree == 5 / 6
    assert stats.isolated_nodes == 1
    assert stats.attribute_bytes == {"x": 96}
    assert list(stats.partitions) == [1]
    whole = stats.partitions[1]
    assert (whole.method, whole.cut_edges) == ("single", 0)
    assert whole.shards[0].owned_rows == stats.rows
    assert whole.shards[0].halo_rows == {"node": 0}


def test_a_graph_of_nothing():
    stats = graph_stats(0, {"edge": np.empty((2, 0), dtype=np.int64)})
    assert (stats.max_in_degree, stats.mean_in_degree, stats.isolated_nodes) == (0, 0.0, 0)
