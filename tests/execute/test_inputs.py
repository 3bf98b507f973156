from __future__ import annotations

import numpy as np
import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.inputs import shard_inputs
from autoplan.opgraph import IndexInto
from autoplan.partition.halo import build_shards
from autoplan.program.rank_program import RankInput

EDGES = np.array([[0, 1, 2, 4, 0, 3], [1, 0, 0, 3, 4, 3]])
LISTED = np.array([4, 1, 0])
SHARDS = build_shards(np.array([1, 0, 1, 0, 2]), {"edge": EDGES}, {"index:train": LISTED}, parts=4)
X = torch.arange(10.0).view(5, 2)
ENDS = IndexInto(("node",), ("src", "dst"))


def cut(rank, *wanted):
    attributes = {"x": X, "edge_index": torch.tensor(EDGES), "train": torch.tensor(LISTED)}
    return shard_inputs(wanted, attributes, SHARDS[rank])


def test_rows_by_state():
    inputs = [RankInput("x", state, 0, "node", None) for state in ("R", "O", "H", "O")]
    found = cut(0, *inputs)
    assert found["x", "R"].data_ptr() == X.data_ptr()
    assert torch.equal(found["x", "O"], X[[1, 3]])
    assert torch.equal(found["x", "H"], X[[1, 3, 0, 4]])


def test_positions_are_local():
    edges = RankInput("edge_index", "O", 1, "edge", ENDS)
    listed = RankInput("train", "O", 0, "index:train", IndexInto(("node",), ("self",)))
    for rank, shard in enumerate(SHARDS):
        found = cut(rank, edges, listed)
        assert found["edge_index", "O"].tolist() == shard.edge_index["edge"].tolist()
        assert found["train", "O"].tolist() == shard.index_values["index:train"].tolist()


def test_what_has_no_place_in_a_partition_is_whole():
    assert cut(1, RankInput("x", "R", None, None, None))["x", "R"].data_ptr() == X.data_ptr()


def test_foreign_nodes_and_missing_attributes_are_errors():
    stranger = RankInput("edge_index", "O", 1, "edge", ENDS)
    with pytest.raises(PlanError, match="names nodes that rank 0 neither owns nor reads"):
        shard_inputs([stranger], {"edge_index": torch.full((2, 6), 2)}, SHARDS[0])
    with pytest.raises(PlanError, match=r"graph\.z, which this graph does not have; it has x"):
        shard_inputs([RankInput("z", "R", 0, "node", None)], {"x": X}, SHARDS[0])
    elsewhere = RankInput("train", "O", 0, "index:train", IndexInto(("edge",), ("self",)))
    with pytest.raises(PlanError, match="not nodes"):
        cut(0, elsewhere)


def test_numbers_of_graphs_are_local_on_closed_partitions_only():
    batch = torch.tensor([0, 0, 1, 2, 2])
    wanted = RankInput("batch", "O", 0, "node", IndexInto(("graph",), ("self",)))
    owner = np.array([1, 1, 0, 1, 1])
    closed = build_shards(owner, {}, {}, parts=3, closed=True, graph_owner=np.array([1, 0, 1]))
    found = [shard_inputs([wanted], {"batch": batch}, shard)["batch", "O"] for shard in closed]
    assert [numbers.tolist() for numbers in found] == [[0], [0, 0, 1, 1], []]
    cut = build_shards(owner, {}, {}, graphs=3)
    assert shard_inputs([wanted], {"batch": batch}, cut[1])["batch", "O"].tolist() == [0, 0, 2, 2]


def test_nodes_of_a_graph_that_another_rank_owns_are_an_error():
    wanted = RankInput("batch", "O", 0, "node", IndexInto(("graph",), ("self",)))
    shards = build_shards(np.array([0, 1]), {}, {}, closed=True, graph_owner=np.array([0]))
    with pytest.raises(PlanError, match="rank 1 owns nodes of graphs that it does not own"):
        shard_inputs([wanted], {"batch": torch.tensor([0, 0])}, shards[1])
