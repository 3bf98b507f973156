"""Costs and the protocol of cost models. Frozen data; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from autoplan.device import DeviceProfile


@dataclass(frozen=True, slots=True)
class WorkSizes:
    """An op's `Work` with numbers: what a cost model is asked about.

    Units: FLOP, bytes, rows. ``concurrency`` is how many processes share the device's host at the same time.
    """

    op: str
    kind: str
    dtype: str
    flops: float
    bytes_read: float
    bytes_written: float
    nnz: float
    row_width_bytes: float
    threads: int = 1
    concurrency: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds with a range, and bytes moved. ``low <= seconds <= high``, all finite and not negative."""

    seconds: float
    bytes: float
    low: float
    high: float


@runtime_checkable
class CostModel(Protocol):
    """What a plugin's cost model offers. Failures fall through to the next model and are recorded."""

    name: str

    def accuracy(self, work: WorkSizes, profile: DeviceProfile) -> float | None:
        """Self-declared accuracy in (0, 1], or None when this model does not cover the op on the device."""

    def estimate(self, work: WorkSizes, profile: DeviceProfile) -> Cost | None:
        """The price, or None when it cannot tell. Never zero for want of knowledge."""
