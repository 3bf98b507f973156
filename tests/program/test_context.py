from __future__ import annotations

import numpy as np
import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.threads import run_ranks
from autoplan.opgraph import EDGE, NODE
from autoplan.partition.halo import build_shards, gather_order
from autoplan.program.communicator import Communicator, LocalCommunicator
from autoplan.program.context import RankContext

OWNER = np.array([1, 0, 1, 0, 2])
EDGES = np.array([[0, 1, 2, 4, 0], [1, 0, 0, 3, 4]])
SHARDS = build_shards(OWNER, {EDGE: EDGES}, {"index:train": np.array([4, 1, 0])})


def test_rows_and_keys_by_state():
    class First(LocalCommunicator):
        size = 3

    context = RankContext.from_shard(SHARDS[0], First(), seed=5, step=2)
    assert [context.rows(NODE, state) for state in "ROHS"] == [5, 2, 4, 5]
    assert context.keys(NODE, "O").tolist() == [1, 3]
    assert context.keys(NODE, "H").tolist() == [1, 3, 0, 4]
    assert context.keys(NODE, "R").tolist() == [0, 1, 2, 3, 4]
    assert context.keys(EDGE, "O").tolist() == [0, 3]
    assert context.rows(EDGE, "H") == 2
    assert context.keys("index:train", "O").tolist() == [1]
    assert (context.seed, context.step) == (5, 2)


def test_the_group_tells_the_order_of_its_rows():
    def work(communicator):
        context = RankContext.from_shard(SHARDS[communicator.rank], communicator)
        assert context.axes[NODE].gathered_ids is None
        context.prepare((NODE, EDGE))
        context.prepare((NODE,))
        return context.axes

    for axes in run_ranks(3, work):
        for name in (NODE, EDGE):
            order = axes[name].gathered_ids
            assert order.tolist() == gather_order(SHARDS, name).tolist()
            assert order[axes[name].gathered_positions].tolist() == list(range(5))


def test_one_rank_owns_all():
    context = RankContext.whole({NODE: 4, EDGE: 7})
    assert context.rows(NODE, "H") == context.rows(NODE, "R") == 4
    context.prepare((EDGE,))
    assert context.axes[EDGE].gathered_positions.tolist() == list(range(7))
    assert isinstance(context.communicator, Communicator)


def test_a_shard_of_another_rank_is_refused():
    with pytest.raises(PlanError, match="rank 1 of 3 but this process is rank 0 of 1"):
        RankContext.from_shard(SHARDS[1], LocalCommunicator())


def test_read_only_shards_are_copied():
    SHARDS[0].nodes["node"].owned.flags.writeable = False

    class First(LocalCommunicator):
        size = 3

    RankContext.from_shard(SHARDS[0], First()).axes[NODE].ids.add_(0)
    assert torch.equal(torch.from_numpy(SHARDS[0].nodes["node"].owned.copy()), torch.tensor([1, 3]))


def test_graphs_are_whole_where_the_partition_does_not_cut_them():
    shards = build_shards(OWNER, {EDGE: EDGES}, {}, graphs=4)

    class First(LocalCommunicator):
        size = 3

    context = RankContext.from_shard(shards[0], First())
    assert not context.closed
    assert [context.rows("graph", state) for state in "ROS"] == [4, 4, 4]
    assert context.keys("graph", "O").tolist() == [0, 1, 2, 3]


def test_graphs_have_owners_on_a_closed_partition():
    edges = np.array([[0, 1, 4], [2, 3, 4]])
    shards = build_shards(
        OWNER, {EDGE: edges}, {}, parts=3, closed=True, graph_owner=np.array([1, 0, 1])
    )

    class Second(LocalCommunicator):
        rank, size = 1, 3

    context = RankContext.from_shard(shards[1], Second())
    assert context.closed
    assert [context.rows("graph", state) for state in "ROS"] == [3, 2, 3]
    assert context.keys("graph", "O").tolist() == [0, 2]
