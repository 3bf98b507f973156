"""What a training step really does: the collectives it issues and the tensor memory it needs. Knows nothing of a plan."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.profiler import profile

from autoplan.program.torch_internals import TorchDispatchMode, operator_name

_SILENT = frozenset({"barrier", "recv_", "recv_any_source_"})
"""Calls that hand nothing in."""


@dataclass(frozen=True, slots=True)
class IssuedCollective:
    """One call that reached a process group: its name (``alltoall_base_``) and this rank's payload in bytes."""

    name: str
    payload_bytes: int


class CollectiveCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the collectives that reach the process group while it is active, backward and DDP's buckets included.

    Every call of torch.distributed is an operator of the namespace ``c10d``; a dispatch mode sees each one on its way,
    whoever issued it (torch's own `CommDebugMode` works this way).

    Payload: of an exchange of rows, the rows for other ranks; of a barrier or a receive, nothing; of anything else, the
    tensors handed in.

    Attributes:
        issued: the calls, in order.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rank = rank
        self.issued: list[IssuedCollective] = []

    @property
    def payload_bytes(self) -> int:
        """The sum over all calls."""
        return sum(call.payload_bytes for call in self.issued)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        overload = operator_name(func) or ""
        if overload.startswith("c10d."):
            name = overload.split(".")[1]
            self.issued.append(IssuedCollective(name, self._payload(name, args)))
        return result

    def _payload(self, name: str, args: tuple[Any, ...]) -> int:
        if name == "alltoall_base_":
            return self._rows_to_others(sent=args[1], send_counts=args[4])
        if name in _SILENT:
            return 0
        return sum(_bytes_of(tensor) for tensor in _tensors_in(args))

    def _rows_to_others(self, sent: torch.Tensor, send_counts: list[int]) -> int:
        """Bytes of the rows that leave this rank."""
        if not send_counts:
            raise RuntimeError(
                "an exchange of rows without row counts: autoplan always gives them, so it cannot be counted"
            )
        row_bytes = sent.element_size() * math.prod(sent.shape[1:])
        return row_bytes * (sum(send_counts) - send_counts[self._rank])


@dataclass(slots=True)
class PeakMemory:
    """Tensor memory of one step at its highest, in bytes.

    Attributes:
        resident: held when the step began.
        step: the most that the step held in addition to it, at any one time.
    """

    resident: int
    step: int = field(default=0)

    @property
    def peak(self) -> int:
        """Both."""
        return self.resident + self.step


@contextlib.contextmanager
def peak_memory(resident: int) -> Iterator[PeakMemory]:
    """Measures the tensor memory of the code in the context; ``step`` is filled in when it ends.

    Memory of a CPU is taken from the allocator's own events through torch's profiler: temporaries inside an op count
    too, which a look at the ops' outputs would miss. What the code frees of the resident tensors is not seen.

    Args:
        resident: bytes of the tensors alive when the context starts (see `storage_bytes`).
    """
    # silences the notes that the profiler writes to stderr when it starts and stops
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    measured = PeakMemory(resident)
    recorder = profile(profile_memory=True)
    with recorder:
        yield measured
    held = 0
    for change in _allocations(recorder):
        held += change
        measured.step = max(measured.step, held)


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the tensors' memory; storages that they share count once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _allocations(recorder: profile) -> list[int]:
    """Bytes allocated (positive) and freed (negative), in the order in which it happened."""
    results = recorder.kineto_results
    assert results is not None
    # torch's own stub of an event lacks nbytes
    events: list[Any] = [event for event in results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return [event.nbytes() for event in events]


def _tensors_in(args: Iterable[Any]) -> Iterator[torch.Tensor]:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from _tensors_in(arg)


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
