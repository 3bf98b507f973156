"""The devices that a plan was made for, as the plan keeps them: enough to say what differs from those that are here. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from autoplan.device import Cluster, Device, DeviceProfile, Link

FIGURES = (
    "memory_bytes",
    "bytes_per_s",
    "gather_bytes_per_s",
    "scatter_bytes_per_s",
    "launch_seconds",
    "on_chip_bytes",
    "on_chip_bytes_per_s",
    "link_bytes_per_s",
    "link_latency_seconds",
    "cores",
)
"""Of a profile, the numbers that prices and memory limits come from."""


@dataclass(frozen=True, slots=True)
class ProfileUse:
    """A profile's name, what can run it, and its figures: per dtype ``flop_per_s.float32``, the others by field name."""

    name: str
    kind: str
    torch_device: str | None
    figures: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """Devices that follow each other in the cluster and are alike.

    Attributes:
        profile: by name; host: its number; first_index: of the first in its host, the others follow; count: of devices.
        memory_bytes: of each; given: the user said so, else it is the profile's.
    """

    profile: str
    host: int
    first_index: int
    count: int
    memory_bytes: int | None
    given: bool


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link; given: the user said so, else it follows from the profiles."""

    latency_seconds: float
    bytes_per_s: float
    name: str
    given: bool


@dataclass(frozen=True, slots=True)
class ClusterUse:
    """All devices that were offered, used or not, and the links within and between hosts."""

    devices: tuple[DeviceRun, ...]
    profiles: tuple[ProfileUse, ...]
    intra_host: LinkUse
    inter_host: LinkUse | None


def cluster_use(cluster: Cluster, default: Cluster) -> ClusterUse:
    """What a plan keeps of a cluster.

    Args:
        cluster: that is planned for.
        default: the same devices where nothing is said of memory and links.
    """
    given = [
        device.memory_bytes != other.memory_bytes
        for device, other in zip(cluster.devices, default.devices, strict=True)
    ]
    profiles = {device.profile.name: device.profile for device in cluster.devices}
    inter = None
    if cluster.inter_host is not None:
        inter = _link(cluster.inter_host, default.inter_host)
    return ClusterUse(
        devices=tuple(_runs(cluster.devices, given)),
        profiles=tuple(_profile(profile) for profile in profiles.values()),
        intra_host=_link(cluster.intra_host, default.intra_host),
        inter_host=inter,
    )


def _runs(devices: Sequence[Device], given: Sequence[bool]) -> Iterator[DeviceRun]:
    def likeness(item: tuple[int, tuple[Device, bool]]) -> tuple[object, ...]:
        number, (device, said) = item
        return (device.profile.name, device.host, device.index - number, device.memory_bytes, said)

    for _, group in groupby(enumerate(zip(devices, given, strict=True)), key=likeness):
        alike = [pair for _, pair in group]
        first, said = alike[0]
        yield DeviceRun(
            first.profile.name, first.host, first.index, len(alike), first.memory_bytes, said
        )


def _profile(profile: DeviceProfile) -> ProfileUse:
    peaks = [(f"flop_per_s.{dtype}", peak) for dtype, peak in sorted(profile.flop_per_s.items())]
    others = [(name, getattr(profile, name)) for name in FIGURES]
    figures = tuple((name, float(value)) for name, value in (*peaks, *others) if value is not None)
    return ProfileUse(profile.name, profile.kind, profile.torch_device, figures)


def _link(link: Link, default: Link | None) -> LinkUse:
    return LinkUse(link.latency_seconds, link.bytes_per_s, link.name, link != default)


def device_differences(then: ClusterUse, now: ClusterUse) -> tuple[str, ...]:
    """What differs between the devices of a plan and others, each as a clause: ``cpu: cores were 2, here 4``.

    Empty where the plan's prices and limits hold for the others, too.
    """
    then, now = _said_by_no_one(then), _said_by_no_one(now)
    if then == now:
        return ()
    found = [*_counts(then, now), *_figures(then, now), *_memory(then, now), *_links(then, now)]
    return tuple(found) or ("their order, hosts or indices are others",)


def _said_by_no_one(use: ClusterUse) -> ClusterUse:
    """The same devices, whoever said what memory and links they have."""
    return replace(
        use,
        devices=tuple(replace(run, given=False) for run in use.devices),
        intra_host=replace(use.intra_host, given=False),
        inter_host=use.inter_host and replace(use.inter_host, given=False),
    )


def _counts(then: ClusterUse, now: ClusterUse) -> Iterator[str]:
    before, after = _by_profile(then), _by_profile(now)
    if before != after:
        yield f"{_listed(before)} were planned for, here are {_listed(after)}"
    hosts = [len({run.host for run in use.devices}) for use in (then, now)]
    if hosts[0] != hosts[1]:
        yield f"hosts were {hosts[0]}, here {hosts[1]}"


def _by_profile(use: ClusterUse) -> Counter[str]:
    counted: Counter[str] = Counter()
    for run in use.devices:
        counted[run.profile] += run.count
    return counted


def _listed(counted: Counter[str]) -> str:
    return " + ".join(f"{number} x {name}" for name, number in counted.items())


def _figures(then: ClusterUse, now: ClusterUse) -> Iterator[str]:
    """Figures of profiles that both have."""
    others = {profile.name: profile for profile in now.profiles}
    for profile in then.profiles:
        other = others.get(profile.name)
        if other is None:
            continue
        before, after = dict(profile.figures), dict(other.figures)
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                yield f"{profile.name}: {name} was {_shown(before.get(name))}, here {_shown(after.get(name))}"
        for field in ("kind", "torch_device"):
            if getattr(profile, field) != getattr(other, field):
                yield f"{profile.name}: {field} was {getattr(profile, field)}, here {getattr(other, field)}"


def _memory(then: ClusterUse, now: ClusterUse) -> Iterator[str]:
    """Memory of a device, where their profiles and hosts are the same."""
    before, after = list(_each(then)), list(_each(now))
    if [run.profile for run in before] != [run.profile for run in after]:
        return
    for position, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.memory_bytes != new.memory_bytes:
            yield (
                f"memory of device {position} ({old.profile}) was {_shown(old.memory_bytes)} bytes, "
                f"here {_shown(new.memory_bytes)}"
            )
            return


def _each(use: ClusterUse) -> Iterator[DeviceRun]:
    for run in use.devices:
        for _ in range(run.count):
            yield run


def _links(then: ClusterUse, now: ClusterUse) -> Iterator[str]:
    for where, old, new in (
        ("within a host", then.intra_host, now.intra_host),
        ("between hosts", then.inter_host, now.inter_host),
    ):
        if old is None or new is None:
            continue
        for field in ("latency_seconds", "bytes_per_s"):
            was, here = getattr(old, field), getattr(new, field)
            if was != here:
                yield f"the link {where}: {field} was {_shown(was)}, here {_shown(here)}"


def _shown(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value == int(value) and value < 1e15 else f"{value:.6g}"
