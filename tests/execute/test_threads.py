from __future__ import annotations

import time

import pytest
import torch

from autoplan.errors import ExecutionError, PlanError
from autoplan.execute.threads import run_ranks
from autoplan.program.communicator import Communicator


def test_rows_cross_and_sums_agree():
    def work(communicator):
        assert isinstance(communicator, Communicator)
        rank = communicator.rank
        # rank r sends r rows to every rank, all of value 10 r + receiver
        rows = torch.tensor([10 * rank + to for to in range(3) for _ in range(rank)]).long()
        received = communicator.all_to_all(rows, [rank] * 3, [0, 1, 2])
        total = communicator.all_reduce(torch.tensor([0.1 * rank, 1.0]))
        return received.tolist(), total

    results = run_ranks(3, work)
    for rank, (received, total) in enumerate(results):
        assert received == [10 + rank, 20 + rank, 20 + rank]
        assert torch.equal(total, results[0][1])


def test_results_are_tensors_of_their_own():
    def work(communicator):
        mine = torch.ones(2)
        first = communicator.all_reduce(mine)
        mine.zero_()
        second = communicator.all_reduce(mine)
        return first.tolist(), second.tolist()

    assert run_ranks(2, work) == [([2.0, 2.0], [0.0, 0.0])] * 2


def test_a_failing_rank_releases_the_others():
    def work(communicator):
        if communicator.rank == 1:
            raise ValueError("no such column")
        communicator.all_reduce(torch.ones(1))

    start = time.monotonic()
    with pytest.raises(
        ExecutionError, match="rank 1 of 3 failed: ValueError: no such column"
    ) as error:
        run_ranks(3, work)
    assert time.monotonic() - start < 5
    assert error.value.rank == 1
    assert "in work" in error.value.worker_traceback


def test_own_errors_come_through_as_they_are():
    def work(communicator):
        raise PlanError("give another plan")

    with pytest.raises(PlanError, match="give another plan"):
        run_ranks(2, work)


def test_ranks_that_call_different_things_are_told():
    def work(communicator):
        if communicator.rank:
            communicator.all_reduce(torch.ones(3))
        else:
            communicator.all_to_all(torch.ones(2, 3), [1, 1], [1, 1])

    with pytest.raises(ExecutionError, match="out of step"):
        run_ranks(2, work)


def test_a_late_rank_is_given_up():
    def work(communicator):
        if communicator.rank == 0:
            communicator.all_reduce(torch.ones(1))

    with pytest.raises(ExecutionError, match="rank 0 of 2 failed: BrokenBarrierError"):
        run_ranks(2, work, seconds=0.2)


def test_each_thread_has_its_own_grad_mode():
    with torch.no_grad():
        assert run_ranks(2, lambda communicator: torch.is_grad_enabled()) == [True, True]
