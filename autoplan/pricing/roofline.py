"""The built-in cost model: what arithmetic and memory traffic need at least, plus the launch of the op.

``seconds = launch + max(FLOP / peak(dtype), bytes / bandwidth)``, with the bandwidth that irregular rows see for gathers,
scatters and sparse products. A figure that neither the profile nor a stated assumption gives makes the answer None
(`Roofline.missing` says which one), never zero.

Sources of the assumptions (constants below):
    ``IRREGULAR_SHARE``: a GPU's index_select moves 369 GB/s of read and written bytes where main memory gives 1,555 to
    2,039 GB/s (18 to 24 %), its scatter_add 123 to 200 GB/s (8 to 10 %): ryienh/gnn-ops-benchmark, arXiv:2207.09955,
    measured on an A100. A CPU thread moved 7.4 GB/s in index_select and 4.1 in scatter_add where it copied 8.1: measured for
    this project on a Xeon at 2.8 GHz (rows of 512 bytes, a table beyond the cache, warm output). Others: the GPU's shares.
    ``LINE_BYTES``: a row narrower than what memory delivers at once costs a whole line (CPU cache line 64 B, GPU sector 32 B).
    ``DRAWS_PER_SECOND``: `program.noise` drew 54 M booleans a second on one thread of that Xeon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autoplan.cost import Cost, WorkSizes
from autoplan.device import DeviceProfile
from autoplan.opgraph import DTYPE_BYTES

IRREGULAR_SHARE: Mapping[str, tuple[float, float]] = {"cpu": (0.9, 0.5), "gpu": (0.20, 0.09)}
"""Share of main bandwidth in (gather, scatter), by device kind."""
LINE_BYTES: Mapping[str, int] = {"cpu": 64, "gpu": 32}
DRAWS_PER_SECOND = 50e6
"""Random elements per second and CPU thread."""
RANGE: Mapping[str, tuple[float, float]] = {
    "dense": (0.7, 2.5),
    "elementwise": (0.6, 2.5),
    "reduce": (0.6, 3.0),
    "view": (0.5, 3.0),
    "gather": (0.5, 3.0),
    "scatter": (0.4, 4.0),
    "spmm": (0.4, 3.0),
    "random": (0.4, 3.0),
}
"""How far a measured time may lie from the roofline, as factors (assumed until a device is calibrated)."""
WIDE_RANGE = (0.3, 5.0)


class Roofline:
    """Prices any op from a device's datasheet figures."""

    name = "roofline"

    def accuracy(self, work: WorkSizes, profile: DeviceProfile) -> float | None:
        """0.1, the last resort; None where a figure is missing."""
        return None if self.missing(work, profile) else 0.1

    def missing(self, work: WorkSizes, profile: DeviceProfile) -> str | None:
        """Which figure of the profile is missing to price this work, or None."""
        if profile.launch_seconds is None:
            return f"{profile.name} has no launch_seconds"
        if work.kind == "view":
            return None
        if work.bytes_read + work.bytes_written > 0 and not profile.bytes_per_s:
            return f"{profile.name} has no bytes_per_s"
        if work.flops > 0 and peak_flop_per_s(work, profile) is None:
            return f"{profile.name} has no flop_per_s for {work.dtype}"
        return None

    def estimate(self, work: WorkSizes, profile: DeviceProfile) -> Cost | None:
        """The price of one call, in seconds and bytes, or None (see `missing`)."""
        if self.missing(work, profile):
            return None
        launch = profile.launch_seconds or 0.0
        moved = work.bytes_read + work.bytes_written
        if work.kind == "view":
            low, high = RANGE["view"]
            return Cost(launch, 0.0, launch * low, launch * high)
        peak = peak_flop_per_s(work, profile)
        arithmetic = work.flops / (peak * core_share(work, profile)) if work.flops and peak else 0.0
        seconds = launch + max(arithmetic, traffic_seconds(work, profile))
        low, high = RANGE.get(work.kind, WIDE_RANGE)
        return Cost(seconds, moved, seconds * low, seconds * high)


def peak_flop_per_s(work: WorkSizes, profile: DeviceProfile) -> float | None:
    """The device's peak for the work's dtype, or None.

    Assumed where the profile is silent: half of float32 for float64 on a CPU (half as many SIMD lanes); float32's for 16-bit
    floats (computed after widening), and for integers and booleans outside matrix products.
    """
    peaks = profile.flop_per_s
    if work.dtype in peaks:
        return peaks[work.dtype]
    single = peaks.get("float32")
    if single is None:
        return None
    if work.dtype == "float64":
        return single / 2 if profile.kind == "cpu" else None
    if work.dtype in ("float16", "bfloat16"):
        return single
    return None if work.kind == "dense" else single


def core_share(work: WorkSizes, profile: DeviceProfile) -> float:
    """The share of a CPU's cores that one worker has; 1 on other devices."""
    if profile.kind != "cpu":
        return 1.0
    if profile.cores:
        return min(1.0, work.threads / profile.cores)
    return 1.0 / work.concurrency


def traffic_seconds(work: WorkSizes, profile: DeviceProfile) -> float:
    """Seconds of memory traffic; workers of one host share its bandwidth equally."""
    moved = work.bytes_read + work.bytes_written
    if not moved or not profile.bytes_per_s:
        return 0.0
    bandwidth = profile.bytes_per_s / work.concurrency
    gather_share, scatter_share = IRREGULAR_SHARE.get(profile.kind, IRREGULAR_SHARE["gpu"])
    gather = (profile.gather_bytes_per_s or profile.bytes_per_s * gather_share) / work.concurrency
    scatter = (
        profile.scatter_bytes_per_s or profile.bytes_per_s * scatter_share
    ) / work.concurrency
    line = LINE_BYTES.get(profile.kind, LINE_BYTES["gpu"])
    padding = work.nnz * max(0.0, line - work.row_width_bytes)
    if work.kind == "gather":
        return (moved + padding) / gather
    if work.kind == "scatter":
        return (moved + padding) / scatter
    if work.kind == "spmm":
        irregular = work.nnz * work.row_width_bytes
        return (irregular + padding) / gather + max(0.0, moved - irregular) / bandwidth
    if work.kind == "random" and profile.kind == "cpu":
        draws = work.bytes_written / DTYPE_BYTES.get(work.dtype, 4)
        return max(moved / bandwidth, draws / (DRAWS_PER_SECOND * work.threads))
    if work.kind == "sort":
        elements = max(2.0, work.bytes_written / DTYPE_BYTES.get(work.dtype, 8))
        return math.log2(elements) * moved / bandwidth
    return moved / bandwidth
