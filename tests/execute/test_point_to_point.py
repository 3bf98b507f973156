from __future__ import annotations

import time

import pytest
import torch

from autoplan.errors import ExecutionError
from autoplan.execute.point_to_point import run_peers


def test_buffers_arrive_in_order_whatever_the_order_of_receives():
    def work(peers):
        if peers.rank == 0:
            for number in range(3):
                peers.send(1, torch.tensor([number]), f"number {number}")
            return [peers.receive(1, 1, torch.int64, "answer").item()]
        peers.send(0, torch.tensor([7]), "answer")
        found = [peers.receive(0, 1, torch.int64, f"number {k}").item() for k in range(3)]
        peers.finish()
        return found

    assert run_peers(2, work) == [[7], [0, 1, 2]]


def test_some_ranks_sum():
    def work(peers):
        mine = torch.tensor([1.0 + peers.rank])
        if peers.rank == 1:
            return mine
        return peers.sum((0, 2), mine)

    assert [value.item() for value in run_peers(3, work)] == [4.0, 2.0, 4.0]


def test_ranks_out_of_step_are_named():
    def work(peers):
        if peers.rank == 0:
            peers.send(1, torch.zeros(3), "activations v1")
        else:
            peers.receive(0, 4, torch.float32, "activations v1")

    with pytest.raises(ExecutionError, match=r"rank 1 expects activations v1 .4 .* rank 0, .*3 of"):
        run_peers(2, work)


def test_a_failure_releases_the_others():
    def work(peers):
        if peers.rank == 0:
            raise ValueError("broken")
        if peers.rank == 1:
            peers.sum((1, 2), torch.zeros(1))
        peers.receive(0, 1, torch.int64, "what never comes")

    started = time.monotonic()
    with pytest.raises(ExecutionError, match="rank 0 of 3 failed: ValueError: broken"):
        run_peers(3, work)
    assert time.monotonic() - started < 10


def test_what_never_comes_is_named():
    def work(peers):
        if peers.rank == 1:
            peers.receive(0, 1, torch.int64, "activations v9 of micro-batch 2")

    with pytest.raises(
        ExecutionError, match=r"rank 1 waited 0 s for activations v9 of micro-batch 2"
    ):
        run_peers(2, work, seconds=0.1)
