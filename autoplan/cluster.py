"""From what a user writes to a `Cluster`: device strings, lists, dictionaries and TOML files. No torch unless CUDA is named.

"2xcpu"                          two worker processes
"8xa100_sxm4_80gb"               one host of eight
"2x8xh100_sxm5"                  two hosts of eight
"2xcpu+1xcuda"                   joined; parts without a number of hosts share one host
["cuda:0", "cuda:1"]             indices as torch means them
["cpu", "cpu"]                   two workers; `torch.device` objects are taken, too
[{"name": "small", "memory_bytes": 8388608}]
"cluster.toml"                   [[devices]] tables with the same keys (`DeviceTable`), [intra_host] and [inter_host] links
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

from pydantic import Field

from autoplan.clusteruse import ClusterUse, LinkUse, cluster_use
from autoplan.device import Cluster, Device, DeviceProfile, Link
from autoplan.devicestring import (
    FORMS,
    MAX_DEVICES,
    DeviceTable,
    Reader,
    Strict,
    Wish,
    is_torch_device,
    validated,
)
from autoplan.errors import DeviceError
from autoplan.plugins import Registry, registry

UNKNOWN_LINK = Link(1e-5, 1.2e10, "unknown link, taken as PCIe 3 x16")
"""For devices without a link figure. Copies from host to a V100 measured 12.35 GB/s (RRZE-HPC/gpu-benches)."""
ETHERNET = Link(6.7e-5, 1.25e9, "10 Gb/s Ethernet (assumed)")
"""Between hosts with CPU workers; the latency is that of gloo on a loopback, the least that TCP can do."""
NETWORK = Link(9.3e-6, 1.25e10, "100 Gb/s network (assumed)")
"""Between hosts of accelerators; latency: NCCL's tuner, ring of protocol LL, base 6.6 us and network hop 2.7 us."""


class _LinkTable(Strict):
    latency_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    bytes_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    name: str = ""


class _ClusterFile(Strict):
    devices: list[DeviceTable]
    intra_host: _LinkTable | None = None
    inter_host: _LinkTable | None = None


def parse_cluster(devices: object, *, known: Registry | None = None) -> Cluster:
    """Reads a cluster from any of the forms above, a `DeviceProfile`, or a `Cluster`.

    Args:
        devices: what the user wrote.
        known: where profiles come from; by default the installed plugins.

    Raises:
        DeviceError: nothing asked for, a name that does not exist, a CUDA device that is not here or named twice, or a
            file that cannot be read.
        PluginError: a name that two plugins claim.
    """
    if isinstance(devices, Cluster):
        if not devices.devices:
            raise DeviceError(f"the cluster has no devices; {FORMS}")
        return devices
    reader = Reader(registry() if known is None else known)
    if isinstance(devices, Path) or (isinstance(devices, str) and devices.endswith(".toml")):
        return _read_file(Path(devices), reader)
    one = isinstance(devices, (str, Mapping, DeviceProfile)) or is_torch_device(devices)
    entries = [devices] if one else devices
    if not isinstance(entries, Sequence):
        raise DeviceError(f"devices is {devices!r}; {FORMS}")
    return _assemble([wish for entry in entries for wish in reader.wishes(entry)])


def used_cluster(cluster: Cluster) -> ClusterUse:
    """What a plan keeps of a cluster."""
    return cluster_use(cluster, _placed([_wish(device) for device in cluster.devices]))


def _wish(device: Device) -> Wish:
    """The device, had its user said nothing of its memory."""
    index = None if device.profile.kind == "cpu" else device.index
    return Wish(device.profile, device.host, index, device.name)


def restored_cluster(use: ClusterUse, *, known: Registry | None = None) -> Cluster:
    """The devices that a plan was made for, with the profiles of this environment.

    What their user said of memory and links holds; the rest is as the profiles say now.

    Raises:
        DeviceError: a profile that no plugin yields here, or a CUDA device that is not in this machine.
    """
    reader = Reader(registry() if known is None else known)
    wishes = []
    for run in use.devices:
        for index in range(run.first_index, run.first_index + run.count):
            wish = reader.device(run.profile, index, run.host)
            prefix = f"host{run.host}/" if use.inter_host is not None else ""
            wishes.append(
                replace(
                    wish,
                    index=None if wish.profile.kind == "cpu" else index,
                    name=f"{prefix}{run.profile}:{index}",
                    memory_bytes=run.memory_bytes if run.given else wish.memory_bytes,
                )
            )
    cluster = _assemble(wishes)
    if use.intra_host.given:
        cluster = replace(cluster, intra_host=_given_link(use.intra_host))
    if use.inter_host is not None and use.inter_host.given:
        cluster = replace(cluster, inter_host=_given_link(use.inter_host))
    return cluster


def _given_link(use: LinkUse) -> Link:
    return Link(use.latency_seconds, use.bytes_per_s, use.name)


def _read_file(path: Path, reader: Reader) -> Cluster:
    """A cluster from a TOML file. Raises DeviceError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeviceError(f"cannot read the devices from {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"{path} is not TOML: {error}") from error
    file = validated(_ClusterFile, content, str(path))
    cluster = _assemble([wish for entry in file.devices for wish in reader.table(entry)])
    if file.intra_host:
        cluster = replace(cluster, intra_host=Link(**file.intra_host.model_dump()))
    if file.inter_host and cluster.inter_host:
        cluster = replace(cluster, inter_host=Link(**file.inter_host.model_dump()))
    return cluster


def _assemble(wishes: Sequence[Wish]) -> Cluster:
    """Gives each wish its host number, index, name and memory. Raises DeviceError."""
    if not wishes:
        raise DeviceError(f"no devices given; {FORMS}")
    if len(wishes) > MAX_DEVICES:
        raise DeviceError(f"{len(wishes):,} devices are more than {MAX_DEVICES:,}")
    cluster = _placed(wishes)
    _refuse_twins(cluster.devices)
    return cluster


def _placed(wishes: Sequence[Wish]) -> Cluster:
    hosts = {host: number for number, host in enumerate(dict.fromkeys(w.host for w in wishes))}
    workers = Counter(wish.host for wish in wishes if wish.profile.kind == "cpu")
    taken: Counter[tuple[int, str]] = Counter()
    devices = []
    for wish in wishes:
        profile, host = wish.profile, hosts[wish.host]
        index = taken[host, profile.kind] if wish.index is None else wish.index
        taken[host, profile.kind] += 1
        label = profile.name if wish.index is None else "cuda"
        prefix = f"host{host}/" if len(hosts) > 1 else ""
        memory = wish.memory_bytes or profile.memory_bytes
        if memory and profile.kind == "cpu" and not wish.memory_bytes:
            memory //= workers[wish.host]  # workers of one host share its memory equally
        name = wish.name or f"{prefix}{label}:{index}"
        devices.append(Device(name, profile, host, index, memory))
    return Cluster(
        devices=tuple(devices),
        intra_host=_slowest_link(devices),
        inter_host=_between_hosts(devices) if len(hosts) > 1 else None,
        text=_text(devices),
    )


def _refuse_twins(devices: Sequence[Device]) -> None:
    """Raises DeviceError where two devices have one name, or are one accelerator."""
    for name, times in Counter(device.name for device in devices).items():
        if times > 1:
            raise DeviceError(f"{name} is named {times} times; each device can be used once")
    places = Counter((d.host, d.profile.kind, d.index) for d in devices)
    for device in devices:
        if places[device.host, device.profile.kind, device.index] > 1:
            raise DeviceError(
                f"{device.name} is also used under another name; each device can be used once"
            )


def _slowest_link(devices: Sequence[Device]) -> Link:
    """The link within hosts: of the kinds present, the greatest latency and the least bandwidth."""
    links = []
    for profile in {device.profile.name: device.profile for device in devices}.values():
        if profile.link_bytes_per_s is None or profile.link_latency_seconds is None:
            links.append(UNKNOWN_LINK)
        else:
            links.append(
                Link(
                    profile.link_latency_seconds, profile.link_bytes_per_s, f"{profile.name} peers"
                )
            )
    slowest = min(links, key=lambda link: link.bytes_per_s)
    return replace(slowest, latency_seconds=max(link.latency_seconds for link in links))


def _between_hosts(devices: Sequence[Device]) -> Link:
    """The link between hosts, which no profile tells: assumed; a TOML file can give the real one."""
    return ETHERNET if any(device.profile.kind == "cpu" for device in devices) else NETWORK


def _text(devices: Sequence[Device]) -> str:
    """The shortest device string: runs of equal hosts, and in a host runs of equal profiles."""
    hosts = [
        "+".join(f"{len(list(run))}x{name}" for name, run in groupby(d.profile.name for d in group))
        for _, group in groupby(devices, key=lambda device: device.host)
    ]
    if len(hosts) == 1:
        return hosts[0]
    runs = [(text, len(list(run))) for text, run in groupby(hosts)]
    return "+".join(f"{times}x{part}" for text, times in runs for part in text.split("+"))
