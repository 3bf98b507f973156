"""Devices, the links between them, and clusters. Frozen data; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DeviceKind = Literal["cpu", "gpu", "tpu", "ipu", "npu"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its origin: ``how`` is datasheet, derived, measured, estimate, list price or assumed."""

    value: float
    how: str
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One kind of device, as a plugin yields it.

    Attributes:
        name: unique, lower case, as in a device string: ``a100_sxm4_80gb``.
        kind: family; title: for people; vendor: maker.
        flop_per_s: peak per dtype (``float32``); memory_bytes: None when it is the host's; bytes_per_s: main memory.
        gather_bytes_per_s, scatter_bytes_per_s: what irregular rows see; None: not known (a share is assumed).
        launch_seconds: host overhead of one op.
        on_chip_bytes, on_chip_bytes_per_s: local memory, where a device has it.
        link_bytes_per_s, link_latency_seconds: to a peer of the same kind in one host.
        cores: of a CPU.
        torch_device: ``cpu`` or ``cuda`` when torch can run it; None: planning only.
        figures: every number's origin, by field name.
        plugin: the plugin that yielded it (set by the registry).
        aliases: other names it answers to: short ones, and what torch or the system calls it (``NVIDIA H200``).
    """

    name: str
    kind: DeviceKind
    title: str
    vendor: str = ""
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    bytes_per_s: float | None = None
    gather_bytes_per_s: float | None = None
    scatter_bytes_per_s: float | None = None
    launch_seconds: float | None = None
    on_chip_bytes: int | None = None
    on_chip_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    link_latency_seconds: float | None = None
    cores: int | None = None
    torch_device: str | None = None
    price_usd: float | None = None
    note: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    plugin: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a cluster: a profile, the host it is in, its index there, and its own memory limit."""

    name: str
    profile: DeviceProfile
    host: int
    index: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Link:
    """What a message between two devices of these hosts costs: latency per message and peer, bytes per second."""

    latency_seconds: float
    bytes_per_s: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices and the links between them.

    Attributes:
        devices: in rank order.
        intra_host: link between devices of one host; inter_host: between hosts (None with one host).
        text: the device string it was read from.
    """

    devices: tuple[Device, ...]
    intra_host: Link
    inter_host: Link | None = None
    text: str = ""

    def link(self, first: int, second: int) -> Link:
        """The link between two ranks."""
        same = self.devices[first].host == self.devices[second].host
        return self.intra_host if same or self.inter_host is None else self.inter_host
