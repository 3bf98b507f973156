"""How ranks of a pipeline reach each other: buffers sent from one rank to another, and sums over some of the ranks.

Two ways with one interface: `ProcessPeers` over torch.distributed, `ThreadPeers` for ranks that are threads of one process.
Sends return at once and never wait for the other side, so that no order of receives can make ranks wait for each other in a
circle; buffers are kept until they have left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from queue import SimpleQueue
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist

from autoplan.errors import ExecutionError
from autoplan.execute.processes import ProcessCommunicator
from autoplan.execute.threads import SECONDS, Meeting, ThreadCommunicator, run_threads

Ranks = tuple[int, ...]
T = TypeVar("T")


class Peers(Protocol):
    """The other ranks, seen from one of them.

    Attributes:
        rank: this rank; size: number of ranks.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def send(self, target: int, buffer: torch.Tensor, what: str) -> None:
        """Begins to send a one-dimensional buffer of at least one element, which nobody changes afterwards.

        Args:
            target: the rank that receives it, in the order in which buffers are sent to it.
            buffer: what is sent.
            what: what it holds, for errors.
        """
        ...

    def receive(self, source: int, count: int, dtype: torch.dtype, what: str) -> torch.Tensor:
        """Waits for the next buffer of a rank: [count] of ``dtype``, on the CPU."""
        ...

    def finish(self) -> None:
        """Returns when everything that was sent has left."""
        ...

    def sum(self, ranks: Ranks, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over ``ranks``, this one among them, in a tensor of its own; all get the same bits.

        All of them call it, and any two groups that share ranks in the same order.
        """
        ...


class _Sending:
    """A buffer on its way: kept until it has left."""

    def __init__(self, work: dist.Work, buffer: torch.Tensor, doing: str) -> None:
        self.doing = doing
        self.left = threading.Event()
        self.error: RuntimeError | None = None
        # gloo reads the buffer while it waits for the other side
        self._kept: tuple[dist.Work, torch.Tensor] | None = work, buffer

    def wait(self) -> None:
        """Returns when it has left, or failed to."""
        assert self._kept is not None
        try:
            self._kept[0].wait()
        except RuntimeError as error:
            self.error = error
        self.left.set()

    def forget(self) -> None:
        """Frees the buffer of what has left."""
        self._kept = None


class _Waiter:
    """A thread that waits for what is sent to one rank: gloo tells of a buffer that it has left to those alone who wait."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Sending] = SimpleQueue()
        # no rank that fails is kept alive by what it has sent
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, sending: _Sending) -> None:
        """Waits for one more buffer."""
        self._queue.put(sending)

    def _run(self) -> None:
        while True:
            self._queue.get().wait()


class ProcessPeers:
    """Ranks that are processes of the default group of torch.distributed.

    Attributes:
        rank: this process's rank; size: the number of ranks.
    """

    def __init__(self, groups: Collection[Ranks]) -> None:
        """Makes a process group for every set of ranks that will sum; all ranks give the same sets."""
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._pending: list[_Sending] = []
        self._waiters: dict[int, _Waiter] = {}
        self._groups: dict[Ranks, ProcessCommunicator] = {}
        for ranks in sorted(groups):
            group = dist.new_group(list(ranks)) if len(ranks) < self.size else None
            if self.rank in ranks:
                self._groups[ranks] = ProcessCommunicator(group)

    def send(self, target: int, buffer: torch.Tensor, what: str) -> None:
        """See `Peers.send`."""
        self._free()
        kept = buffer.to("cpu")
        doing = f"send {what} to rank {target}"
        try:
            work = dist.isend(kept, target)
        except RuntimeError as error:
            raise self._failure(doing, error) from error
        assert work is not None
        sending = _Sending(work, kept, doing)
        self._pending.append(sending)
        if target not in self._waiters:
            self._waiters[target] = _Waiter()
        self._waiters[target].put(sending)

    def receive(self, source: int, count: int, dtype: torch.dtype, what: str) -> torch.Tensor:
        """See `Peers.receive`."""
        buffer = torch.empty(count, dtype=dtype)
        try:
            dist.recv(buffer, source)
        except RuntimeError as error:
            raise self._failure(f"receive {what} from rank {source}", error) from error
        # what has left while this rank waited takes no memory in the pass that follows
        self._free()
        return buffer

    def finish(self) -> None:
        """See `Peers.finish`."""
        for sending in self._pending:
            sending.left.wait()
        self._free()

    def sum(self, ranks: Ranks, tensor: torch.Tensor) -> torch.Tensor:
        """See `Peers.sum`."""
        return self._groups[ranks].all_reduce(tensor)

    def _free(self) -> None:
        """Forgets buffers that have left. Raises ExecutionError where one could not."""
        left = [sending for sending in self._pending if sending.left.is_set()]
        for sending in left:
            if sending.error is not None:
                raise self._failure(sending.doing, sending.error) from sending.error
            sending.forget()
        self._pending = [sending for sending in self._pending if sending not in left]

    def _failure(self, doing: str, error: RuntimeError) -> ExecutionError:
        return ExecutionError(f"rank {self.rank} could not {doing}: {error}", rank=self.rank)


class Hub:
    """Where ranks that are threads leave buffers for each other."""

    def __init__(self, size: int, seconds: float = SECONDS) -> None:
        self.size = size
        self.seconds = seconds
        self._changed = threading.Condition()
        self._boxes: dict[tuple[int, int], deque[tuple[str, torch.Tensor]]] = {}
        self._meetings: dict[Ranks, Meeting] = {}
        self._aborted = False

    def put(self, source: int, target: int, what: str, buffer: torch.Tensor) -> None:
        """Leaves a buffer."""
        with self._changed:
            self._box(source, target).append((what, buffer))
            self._changed.notify_all()

    def take(self, source: int, target: int, what: str) -> tuple[str, torch.Tensor]:
        """The next buffer from a rank to another.

        Raises:
            threading.BrokenBarrierError: another rank has failed.
            ExecutionError: none came.
        """
        with self._changed:
            box = self._box(source, target)
            came = self._changed.wait_for(lambda: bool(box) or self._aborted, self.seconds)
            if self._aborted:
                raise threading.BrokenBarrierError
            if not came:
                raise ExecutionError(
                    f"rank {target} waited {self.seconds:.0f} s for {what} from rank {source}",
                    rank=target,
                )
            return box.popleft()

    def meeting(self, ranks: Ranks) -> Meeting:
        """Where some of the ranks sum."""
        with self._changed:
            if ranks not in self._meetings:
                self._meetings[ranks] = Meeting(len(ranks), self.seconds)
                if self._aborted:
                    self._meetings[ranks].abort()
            return self._meetings[ranks]

    def abort(self) -> None:
        """Releases every rank that waits, with an error."""
        with self._changed:
            self._aborted = True
            for meeting in self._meetings.values():
                meeting.abort()
            self._changed.notify_all()

    def _box(self, source: int, target: int) -> deque[tuple[str, torch.Tensor]]:
        return self._boxes.setdefault((source, target), deque())


class ThreadPeers:
    """Ranks that are threads.

    Attributes:
        rank: this thread's; size: number of ranks.
    """

    def __init__(self, rank: int, hub: Hub) -> None:
        self.rank = rank
        self.size = hub.size
        self._hub = hub

    def send(self, target: int, buffer: torch.Tensor, what: str) -> None:
        """See `Peers.send`."""
        self._hub.put(self.rank, target, what, buffer.detach())

    def receive(self, source: int, count: int, dtype: torch.dtype, what: str) -> torch.Tensor:
        """See `Peers.receive`."""
        sent, buffer = self._hub.take(source, self.rank, what)
        if (sent, buffer.numel(), buffer.dtype) != (what, count, dtype):
            raise ExecutionError(
                f"rank {self.rank} expects {what} ({count} elements of {dtype}) from rank {source}, which sent {sent} "
                f"({buffer.numel()} of {buffer.dtype})",
                rank=self.rank,
            )
        return buffer

    def finish(self) -> None:
        """Nothing is under way: buffers are handed over."""

    def sum(self, ranks: Ranks, tensor: torch.Tensor) -> torch.Tensor:
        """See `Peers.sum`."""
        place = ranks.index(self.rank)
        return ThreadCommunicator(place, self._hub.meeting(ranks)).all_reduce(tensor)


def run_peers(size: int, work: Callable[[Peers], T], seconds: float = SECONDS) -> list[T]:
    """Runs ``work(peers)`` on ``size`` threads; results in rank order. Raises as `threads.run_ranks` does."""
    hub = Hub(size, seconds)
    return run_threads(size, lambda rank: work(ThreadPeers(rank, hub)), hub.abort)
