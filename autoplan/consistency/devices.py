"""Numbers, words and devices of a plan's document. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from autoplan.consistency.contradiction import Contradiction, Document, joined, shown, twice
from autoplan.optimizermemory import OPTIMIZER_STATES

_LARGEST = 2**63 - 1
_MOST_DEVICES = 1 << 20
"""Of a run that is longer, only so many are looked at."""


def numbers(value: Any, path: str = "") -> Iterator[Contradiction]:
    """Nothing that a plan counts or measures is negative."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from numbers(part, joined(path, key))
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            yield from numbers(part, f"{path}[{position}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            yield Contradiction(path, value, "nothing in a plan is below 0")
        elif isinstance(value, int) and value > _LARGEST:
            yield Contradiction(path, value, "no number in a plan is beyond 64 bits")


def words(document: Document) -> Iterator[Contradiction]:
    """Fields that hold one of a few words, and what depends on no other section."""
    for path, known in (
        ("objective", ("time", "memory")),
        ("generality", ("general", "concrete")),
        ("optimizer", tuple(OPTIMIZER_STATES)),
    ):
        if document[path] not in known:
            yield Contradiction(path, document[path], f"there are {', '.join(known)}")
    concrete, reason = document["generality"] == "concrete", document["generality_reason"]
    if concrete != (reason is not None):
        yield Contradiction(
            "generality_reason", reason, f"generality is {shown(document['generality'])}"
        )
    if concrete and document["strategy"] != "single":
        yield Contradiction(
            "strategy", document["strategy"], "a concrete program runs on one device"
        )
    for path in ("graph_rows", "graph_attributes", "model_tensors"):
        yield from twice(path, [pair[0] for pair in document[path]])


def _offered(document: Document) -> list[tuple[str, int, int, int | None]]:
    """Profile, host, index and memory of every device that was offered; of a run that is huge, only the first few."""
    return [
        (run["profile"], run["host"], run["first_index"] + index, run["memory_bytes"])
        for run in document["cluster"]["devices"]
        for index in range(min(run["count"], _MOST_DEVICES))
    ]


def cluster(document: Document) -> Iterator[Contradiction]:
    """Profiles, runs of devices and links of all that was offered."""
    cluster = document["cluster"]
    names = [profile["name"] for profile in cluster["profiles"]]
    yield from twice("cluster.profiles", names)
    for number, profile in enumerate(cluster["profiles"]):
        path = f"cluster.profiles[{number}]"
        if profile["name"] not in {run["profile"] for run in cluster["devices"]}:
            yield Contradiction(f"{path}.name", profile["name"], "no device is one")
        yield from twice(f"{path}.figures", [name for name, _ in profile["figures"]])
    for number, run in enumerate(cluster["devices"]):
        path = f"cluster.devices[{number}]"
        if run["count"] < 1:
            yield Contradiction(f"{path}.count", run["count"], "a run has a device at least")
        if run["profile"] not in names:
            yield Contradiction(f"{path}.profile", run["profile"], "cluster.profiles has no such")
    offered = _offered(document)
    places = Counter((name, host, index) for name, host, index, _ in offered)
    for place, times in places.items():
        if times > 1:
            yield Contradiction("cluster.devices", list(place), f"it is offered {times} times")
    several = len({host for _, host, _, _ in offered}) > 1
    if several != (cluster["inter_host"] is not None):
        hosts = "several hosts" if several else "one host"
        yield Contradiction("cluster.inter_host", cluster["inter_host"], f"there is {hosts}")


def devices(document: Document) -> Iterator[Contradiction]:
    """Ranks count from 0, and each is a device that was offered, another one."""
    uses, offered = document["devices"], _offered(document)
    profiles = {profile["name"]: profile for profile in document["cluster"]["profiles"]}
    if not uses:
        yield Contradiction("devices", [], "a plan runs on a device at least")
    for rank, use in enumerate(uses):
        path = f"devices[{rank}]"
        if use["rank"] != rank:
            yield Contradiction(
                f"{path}.rank", use["rank"], f"its devices are ranks 0 to {len(uses) - 1} in order"
            )
        if use["position"] >= len(offered):
            yield Contradiction(
                f"{path}.position", use["position"], f"{len(offered)} devices were offered"
            )
            continue
        name, host, _, memory = offered[use["position"]]
        profile = profiles.get(name, {"kind": None, "torch_device": None})
        for field, there in (
            ("profile", name),
            ("host", host),
            ("memory_bytes", memory),
            ("kind", profile["kind"]),
            ("torch_device", profile["torch_device"]),
        ):
            if use[field] != there:
                yield Contradiction(
                    f"{path}.{field}",
                    use[field],
                    f"device {use['position']} of the cluster has {shown(there)}",
                )
    yield from twice("devices.position", [use["position"] for use in uses])
