"""Device profiles as plain text and as documents: all of them, or one with the origin of every figure. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from autoplan.clusteruse import FIGURES
from autoplan.device import DeviceKind, DeviceProfile, Figure
from autoplan.report.tables import plain_table
from autoplan.report.text import render
from autoplan.report.units import decimal, seconds, size

FIELDS = (*FIGURES, "price_usd")
"""The numbers of a profile beside its peaks."""


LEGEND = (
    "runs: here, torch can run workers on it in this machine; elsewhere, in a machine that has it; plan only, autoplan "
    "plans for it and runs nothing on it. FLOP/s: in float32, and the most of any dtype. "
    "`autoplan devices NAME` tells how each figure was obtained and where it is from."
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A profile, and whether torch can run it in this machine."""

    profile: DeviceProfile
    here: bool

    @property
    def runs(self) -> str:
        """For people: where workers on it run."""
        if self.profile.torch_device is None:
            return "plan only"
        return "here" if self.here else "elsewhere"


def devices_text(devices: Sequence[Listed]) -> str:
    """Every profile, a table a kind, and the other names they answer to."""
    sections: list[tuple[str, RenderableType]] = []
    for kind in get_args(DeviceKind):
        of_kind = [each for each in devices if each.profile.kind == kind]
        if of_kind:
            sections.append((kind.upper(), _kind_table(of_kind)))
    aliases = "\n".join(
        f"{each.profile.name}: {', '.join(each.profile.aliases)}"
        for each in devices
        if each.profile.aliases
    )
    if aliases:
        sections.append(("Aliases", Text(aliases)))
    return render(*sections, ("Legend", Text(LEGEND)))


def _kind_table(devices: Sequence[Listed]) -> Table:
    numbers = ("memory", "bandwidth", "link", "float32")
    table = plain_table("name", *numbers, "most", "runs", "plugin", numbers=numbers)
    for each in devices:
        profile = each.profile
        table.add_row(
            profile.name,
            _figure("memory_bytes", profile.memory_bytes),
            _figure("bytes_per_s", profile.bytes_per_s),
            _figure("link_bytes_per_s", profile.link_bytes_per_s),
            _figure("", profile.flop_per_s.get("float32")),
            _most(profile.flop_per_s),
            each.runs,
            profile.plugin,
        )
    return table


def _most(peaks: Mapping[str, float]) -> str:
    """The greatest peak with its dtype."""
    if not peaks:
        return "-"
    dtype = max(peaks, key=lambda each: peaks[each])
    return f"{decimal(peaks[dtype])} {dtype}"


def _figure(name: str, value: float | None) -> str:
    """A number in the unit that its name tells; a bare number where it tells none."""
    if value is None:
        return "-"
    if name.endswith("bytes_per_s"):
        return decimal(value, "B/s")
    if name.startswith("flop_per_s"):
        return decimal(value, "FLOP/s")
    if name.endswith("bytes"):
        return size(value)
    if name.endswith("seconds"):
        return seconds(value)
    if name == "price_usd":
        return f"${value:,.0f}"
    return decimal(value) if abs(value) >= 1000 else f"{value:.3g}"


def device_text(device: Listed) -> str:
    """One profile: what it is, and every figure with how it was obtained and its source."""
    profile = device.profile
    lines = [
        f"{profile.title}{f', {profile.vendor}' if profile.vendor else ''} ({profile.kind})",
        f"runs: {device.runs}; from plugin {profile.plugin or 'none'}",
    ]
    if profile.aliases:
        lines.append(f"aliases: {', '.join(profile.aliases)}")
    if profile.note:
        lines.append(f"note: {profile.note}")
    fields = dict(_fields(profile))
    more = {name: each.value for name, each in profile.figures.items() if name not in fields}
    sources: dict[str, int] = {}
    table = plain_table("figure", "value", "how", "source", "note", numbers=("value", "source"))
    for values in (fields, more):
        for name, value in values.items():
            figure = profile.figures.get(name, Figure(value, "not told", ""))
            number = sources.setdefault(figure.source, len(sources) + 1) if figure.source else ""
            table.add_row(name, _figure(name, value), figure.how, str(number), figure.note)
        table.add_section()
    sections: list[tuple[str, RenderableType]] = [
        (profile.name, Text("\n".join(lines))),
        ("Figures", table),
    ]
    if sources:
        lines = [f"{number}: {source}" for source, number in sources.items()]
        sections.append(("Sources", Text("\n".join(lines))))
    return render(*sections)


def _fields(profile: DeviceProfile) -> Iterator[tuple[str, float]]:
    """Every number that prices use, by the name its figure has."""
    for dtype, peak in profile.flop_per_s.items():
        yield f"flop_per_s.{dtype}", peak
    for name in FIELDS:
        value = getattr(profile, name)
        if value is not None:
            yield name, value


def devices_document(devices: Sequence[Listed]) -> dict[str, Any]:
    """Every profile in JSON's types; null where a number is not known."""
    return {"devices": [_profile_document(each) for each in devices]}


def device_document(device: Listed) -> dict[str, Any]:
    """One profile in JSON's types, with the origin of every figure, also of those that have no field."""
    profile = device.profile
    figures: dict[str, dict[str, Any]] = {
        name: {"value": value, "how": "not told", "source": "", "note": ""}
        for name, value in _fields(profile)
    }
    for name, figure in profile.figures.items():
        value = figures[name]["value"] if name in figures else figure.value
        figures[name] = {**asdict(figure), "value": value}
    return {**_profile_document(device), "figures": figures}


def _profile_document(device: Listed) -> dict[str, Any]:
    profile = device.profile
    return {
        "name": profile.name,
        "kind": profile.kind,
        "title": profile.title,
        "vendor": profile.vendor,
        "aliases": list(profile.aliases),
        "plugin": profile.plugin,
        "note": profile.note,
        "torch_device": profile.torch_device,
        "here": device.here,
        "flop_per_s": dict(profile.flop_per_s),
        **{name: getattr(profile, name) for name in FIELDS},
    }
