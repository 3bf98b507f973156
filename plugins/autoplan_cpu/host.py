"""The generic profile ``cpu``: this machine's cores and memory, and assumed speeds until it is calibrated."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from autoplan.device import DeviceProfile, Figure

FLOP_PER_S_PER_CORE: Mapping[str, float] = {"float32": 40e9, "float64": 20e9}
"""Matrix products of one core: 140 GFLOP/s at 1024 x 1024 and 36 at 100,000 x 64 x 64 on a Xeon at 2.8 GHz."""
BYTES_PER_S_PER_CORE = 8e9
"""A copy by one thread moved 8.1 to 9.8 GB/s on the same machine."""
BYTES_PER_S_LIMIT = 100e9
"""Where more cores stop adding bandwidth: half of an eight-channel socket."""
LAUNCH_SECONDS = 5e-6
"""One small eager op of torch took 4.5 us on the same machine."""
LINK_BYTES_PER_S = 6.9e8
"""Derived from an all-reduce of 4 MiB over two processes in 6.2 ms: a rank sends 4 MiB, less two latencies."""
LINK_LATENCY_SECONDS = 6.7e-5
"""One message between two processes with gloo on the loopback, measured one way."""

_ASSUMED = "typical of one core of a server processor, not measured here"
_LINK = "gloo on the loopback of a two-core Xeon at 2.8 GHz, not measured here"


def host_profile() -> DeviceProfile:
    """This machine. Its figures are those of all the cores and all the memory that this process may use."""
    cores = available_cores()
    memory = available_memory_bytes()
    bytes_per_s = min(cores * BYTES_PER_S_PER_CORE, BYTES_PER_S_LIMIT)
    peaks = {dtype: cores * peak for dtype, peak in FLOP_PER_S_PER_CORE.items()}
    figures = {
        "cores": Figure(cores, "measured", "affinity and cgroup quota of this process"),
        "memory_bytes": Figure(memory, "measured", "physical memory and cgroup limit"),
        "bytes_per_s": Figure(bytes_per_s, "assumed", _ASSUMED),
        "launch_seconds": Figure(LAUNCH_SECONDS, "assumed", _ASSUMED),
        "link_bytes_per_s": Figure(LINK_BYTES_PER_S, "assumed", _LINK),
        "link_latency_seconds": Figure(LINK_LATENCY_SECONDS, "assumed", _LINK),
    }
    for dtype, peak in peaks.items():
        figures[f"flop_per_s.{dtype}"] = Figure(peak, "assumed", _ASSUMED)
    return DeviceProfile(
        name="cpu",
        kind="cpu",
        title=f"this machine's CPU ({cores} {'core' if cores == 1 else 'cores'})",
        flop_per_s=peaks,
        memory_bytes=memory,
        bytes_per_s=bytes_per_s,
        launch_seconds=LAUNCH_SECONDS,
        link_bytes_per_s=LINK_BYTES_PER_S,
        link_latency_seconds=LINK_LATENCY_SECONDS,
        cores=cores,
        torch_device="cpu",
        note="Speeds are assumed per core, not measured on this machine.",
        figures=figures,
    )


def available_cores(root: Path = Path("/")) -> int:
    """Cores that this process may use: its affinity, less what a cgroup's quota takes away; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quotas = []
    for directory in _cgroup_directories(root, "cpu"):
        quota, period = _two_numbers(directory)
        if quota and period:
            quotas.append(math.ceil(quota / period))
    return max(1, min([cores, *quotas]))


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that this process may use: the machine's, or the least limit of its cgroups."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = []
    for directory in _cgroup_directories(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(directory / name)
            if limit:
                limits.append(limit)
    return min([physical, *limits])


def _cgroup_directories(root: Path, controller: str) -> Iterator[Path]:
    """This process's cgroup directories that may hold a controller's limits, each with its parents (versions 1 and 2)."""
    mount = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # no Linux, or no cgroups
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = mount
        elif controller in controllers.split(","):
            base = mount / controller
        else:
            continue
        inner = base / path.lstrip("/")
        yield inner
        for parent in inner.parents:
            if not parent.is_relative_to(base):
                break
            yield parent


def _two_numbers(directory: Path) -> tuple[int | None, int | None]:
    """A CPU quota and its period in microseconds; None where there is no limit."""
    try:
        quota, period = (directory / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us")
    return (int(quota) if quota.isdigit() else None), int(period)


def _number(file: Path) -> int | None:
    """The number in a file; None where it is absent, ``max`` or negative (no limit)."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
