"""Ranks that are threads of one process: for checks that would be slow on processes.

Torch's grad mode is a property of the thread and starts enabled, so a rank's program sets it itself. CPU backward runs in
the thread that calls it, so exchanges in backward meet as those in forward do.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from autoplan.errors import AutoplanError, ExecutionError
from autoplan.program.communicator import Communicator

T = TypeVar("T")

SECONDS = 120.0
"""How long a rank waits for the others before it gives up."""


class Meeting:
    """Where the threads of one group exchange tensors."""

    def __init__(self, size: int, seconds: float = SECONDS) -> None:
        self.size = size
        self.posted: list[tuple[str, object]] = [("", None)] * size
        self._barrier = threading.Barrier(size, timeout=seconds)

    def wait(self) -> None:
        """Returns when every rank is here. Raises threading.BrokenBarrierError when one has failed or is late."""
        self._barrier.wait()

    def abort(self) -> None:
        """Releases every rank that waits, with an error."""
        self._barrier.abort()


class ThreadCommunicator:
    """One thread's view of a `Meeting`."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank = rank
        self.size = meeting.size
        self._meeting = meeting

    def all_to_all(
        self, buffer: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> torch.Tensor:
        """See `Communicator.all_to_all`."""
        posted = self._exchange(
            f"all_to_all of {buffer.dtype} rows {tuple(buffer.shape[1:])}",
            torch.split(buffer.detach(), list(send_counts)),
        )
        parts = [blocks[self.rank] for blocks in posted]
        for sender, (part, count) in enumerate(zip(parts, recv_counts, strict=True)):
            if part.size(0) != count:
                raise ExecutionError(
                    f"rank {self.rank} expects {count} rows from rank {sender}, which sends {part.size(0)}",
                    rank=self.rank,
                )
        received = torch.cat(parts)
        self._meeting.wait()
        return received

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Communicator.all_reduce`. Every rank adds in rank order, so all get the same bits."""
        posted = self._exchange(
            f"all_reduce of {tensor.dtype} {tuple(tensor.shape)}", tensor.detach()
        )
        total = posted[0].clone()
        for other in posted[1:]:
            total += other
        self._meeting.wait()
        return total

    def _exchange(self, what: str, mine: T) -> list[T]:
        """What every rank posts, in rank order; the caller waits once more when it has read it."""
        self._meeting.posted[self.rank] = (what, mine)
        self._meeting.wait()
        calls = [call for call, _ in self._meeting.posted]
        if len(set(calls)) > 1:
            raise ExecutionError(f"ranks are out of step: {calls}", rank=self.rank)
        return [value for _, value in self._meeting.posted]  # type: ignore[misc]


def run_ranks(size: int, work: Callable[[Communicator], T], seconds: float = SECONDS) -> list[T]:
    """Runs ``work(communicator)`` on ``size`` threads.

    Args:
        size: number of ranks.
        work: what each rank does; its communicator says which rank it is.
        seconds: how long a rank waits for another in one exchange.

    Returns:
        The results in rank order.

    Raises:
        AutoplanError: as a rank raised it, or ExecutionError with the first failing rank's traceback; the other ranks are
            released.
    """
    meeting = Meeting(size, seconds)
    return run_threads(size, lambda rank: work(ThreadCommunicator(rank, meeting)), meeting.abort)


def run_threads(size: int, work: Callable[[int], T], abort: Callable[[], None]) -> list[T]:
    """Runs ``work(rank)`` on ``size`` threads.

    Args:
        size: number of ranks.
        work: what each rank does; one that is released because another failed raises BrokenBarrierError.
        abort: releases all ranks that wait.

    Returns:
        The results in rank order.

    Raises:
        AutoplanError: as a rank raised it, or ExecutionError with the first failing rank's traceback.
    """
    results: list[T | None] = [None] * size
    failures: list[tuple[int, BaseException, str]] = []

    def rank_main(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            failures.append((rank, error, traceback.format_exc()))
            abort()

    threads = [
        threading.Thread(target=rank_main, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        # ranks that were waiting fail after the one that broke the meeting; its error is the one to report
        first = next(
            (f for f in failures if not isinstance(f[1], threading.BrokenBarrierError)), failures[0]
        )
        rank, error, text = first
        if isinstance(error, AutoplanError):
            raise error
        raise ExecutionError(
            f"rank {rank} of {size} failed: {type(error).__name__}: {error}",
            rank=rank,
            worker_traceback=text,
        ) from error
    return results  # type: ignore[return-value]
