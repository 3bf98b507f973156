"""Device profiles as files, and what makes a profile sensible. No torch.

A profile file is TOML. ``figures`` fill the fields of `DeviceProfile`, each number with its origin; ``more`` keeps what has
no field:

    schema_version = 1

    [devices.acme_npu2]
    title = "Acme NPU 2"
    kind = "npu"
    figures.memory_bytes = { value = 3.4e10, how = "datasheet", source = "https://acme.example/npu2.pdf" }
    figures.flop_per_s.float32 = { value = 5e13, how = "assumed", source = "", note = "a quarter of bfloat16" }
    more.clock_hz = { value = 1.5e9, how = "datasheet", source = "https://acme.example/npu2.pdf" }
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoplan.device import DeviceKind, DeviceProfile, Figure
from autoplan.errors import PluginError
from autoplan.opgraph import DTYPE_BYTES

FLOP_DTYPES = frozenset(DTYPE_BYTES) | {"tf32"}
"""Keys of ``flop_per_s``: torch's dtype names, and ``tf32`` for float32 products on units of lower precision."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_POSITIVE = (
    "memory_bytes",
    "bytes_per_s",
    "gather_bytes_per_s",
    "scatter_bytes_per_s",
    "on_chip_bytes",
    "on_chip_bytes_per_s",
    "link_bytes_per_s",
    "cores",
)
_NOT_NEGATIVE = ("launch_seconds", "link_latency_seconds", "price_usd")
_WHOLE = ("memory_bytes", "on_chip_bytes", "cores")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _FigureEntry(_Strict):
    value: Annotated[float, Field(allow_inf_nan=False)]
    how: Literal["datasheet", "derived", "measured", "estimate", "list price", "assumed"]
    source: str
    note: str = ""


class _FieldFigures(_Strict):
    flop_per_s: dict[str, _FigureEntry] = {}
    memory_bytes: _FigureEntry | None = None
    bytes_per_s: _FigureEntry | None = None
    gather_bytes_per_s: _FigureEntry | None = None
    scatter_bytes_per_s: _FigureEntry | None = None
    launch_seconds: _FigureEntry | None = None
    on_chip_bytes: _FigureEntry | None = None
    on_chip_bytes_per_s: _FigureEntry | None = None
    link_bytes_per_s: _FigureEntry | None = None
    link_latency_seconds: _FigureEntry | None = None
    cores: _FigureEntry | None = None
    price_usd: _FigureEntry | None = None


class _DeviceEntry(_Strict):
    title: str
    kind: DeviceKind
    vendor: str = ""
    note: str = ""
    torch_device: Literal["cpu", "cuda"] | None = None
    aliases: tuple[str, ...] = ()
    figures: _FieldFigures = _FieldFigures()
    more: dict[str, _FigureEntry] = {}


class _ProfileFile(_Strict):
    schema_version: Literal[1]
    devices: dict[str, _DeviceEntry]


def read_profiles(file: Path | Traversable) -> tuple[DeviceProfile, ...]:
    """Reads a profile file, in its order.

    Raises:
        PluginError: it is not TOML, has an unknown key, lacks one, or holds a profile that makes no sense.
    """
    try:
        content = _ProfileFile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PluginError(f"{file.name} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise PluginError(f"{file.name}: {place}: {first['msg']}") from error
    profiles = tuple(_profile(name, entry) for name, entry in content.devices.items())
    for profile in profiles:
        check_profile(profile)
    return profiles


def check_profile(profile: object) -> None:
    """Checks that a profile can be priced with: right types, finite numbers, known kind and dtypes.

    Raises:
        PluginError: otherwise, naming the profile, the field and its value.
    """
    if not isinstance(profile, DeviceProfile):
        raise PluginError(
            f"a device profile must be an autoplan.DeviceProfile, not {type(profile).__name__} ({profile!r:.80})"
        )
    if not isinstance(profile.name, str) or not _NAME.fullmatch(profile.name):
        raise PluginError(
            f"a profile's name must be lower-case letters, digits and underscores, and start with a letter; "
            f"not {profile.name!r}"
        )
    problem = _problem(profile)
    if problem:
        raise PluginError(f"profile '{profile.name}': {problem}")


def _problem(profile: DeviceProfile) -> str | None:
    """What is wrong with a profile whose name is right, or None."""
    if profile.kind not in get_args(DeviceKind):
        return f"kind is {profile.kind!r}; it must be one of {', '.join(get_args(DeviceKind))}"
    if profile.torch_device not in (None, "cpu", "cuda"):
        return f"torch_device is {profile.torch_device!r}; it must be 'cpu', 'cuda' or None"
    for field in ("title", "vendor", "note"):
        if not isinstance(getattr(profile, field), str):
            return f"{field} is {getattr(profile, field)!r}; it must be text"
    if not isinstance(profile.aliases, tuple) or not all(
        isinstance(alias, str) and alias for alias in profile.aliases
    ):
        return f"aliases is {profile.aliases!r}; it must be a tuple of names"
    for field in (*_POSITIVE, *_NOT_NEGATIVE):
        value = getattr(profile, field)
        if value is not None and not _sensible(value, field):
            wanted = "at least 0" if field in _NOT_NEGATIVE else "above 0"
            whole = "a whole number" if field in _WHOLE else "a finite number"
            return f"{field} is {value!r}; it must be {whole} {wanted}"
    if not isinstance(profile.flop_per_s, Mapping):
        return f"flop_per_s is {profile.flop_per_s!r}; it must map dtypes to FLOP per second"
    for dtype, value in profile.flop_per_s.items():
        if dtype not in FLOP_DTYPES:
            return f"flop_per_s names {dtype!r}; known are {', '.join(sorted(FLOP_DTYPES))}"
        if not _sensible(value, "flop_per_s"):
            return f"flop_per_s of {dtype} is {value!r}; it must be a finite number above 0"
    if not isinstance(profile.figures, Mapping) or not all(
        isinstance(name, str) and isinstance(figure, Figure)
        for name, figure in profile.figures.items()
    ):
        return "figures must map names to autoplan.device.Figure"
    for name, figure in profile.figures.items():
        value = figure.value
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return f"the figure {name} is {value!r}; it must be a finite number"
        if not all(isinstance(text, str) for text in (figure.how, figure.source, figure.note)):
            return f"the figure {name} tells how, source and note by {figure!r}; each must be text"
    return None


def _sensible(value: object, field: str) -> bool:
    """Whether a value has the field's type and range."""
    if isinstance(value, bool) or not isinstance(value, int if field in _WHOLE else (int, float)):
        return False
    return math.isfinite(value) and (value >= 0 if field in _NOT_NEGATIVE else value > 0)


def _profile(name: str, entry: _DeviceEntry) -> DeviceProfile:
    """The frozen profile of a checked entry."""
    named = {field: figure for field, figure in entry.figures if isinstance(figure, _FigureEntry)}
    peaks = {f"flop_per_s.{dtype}": figure for dtype, figure in entry.figures.flop_per_s.items()}

    def number(field: str) -> float | None:
        return named[field].value if field in named else None

    def whole(field: str) -> int | None:
        return round(named[field].value) if field in named else None

    return DeviceProfile(
        name=name,
        kind=entry.kind,
        title=entry.title,
        vendor=entry.vendor,
        flop_per_s={dtype: figure.value for dtype, figure in entry.figures.flop_per_s.items()},
        memory_bytes=whole("memory_bytes"),
        bytes_per_s=number("bytes_per_s"),
        gather_bytes_per_s=number("gather_bytes_per_s"),
        scatter_bytes_per_s=number("scatter_bytes_per_s"),
        launch_seconds=number("launch_seconds"),
        on_chip_bytes=whole("on_chip_bytes"),
        on_chip_bytes_per_s=number("on_chip_bytes_per_s"),
        link_bytes_per_s=number("link_bytes_per_s"),
        link_latency_seconds=number("link_latency_seconds"),
        cores=whole("cores"),
        torch_device=entry.torch_device,
        price_usd=number("price_usd"),
        note=entry.note,
        figures={
            key: Figure(figure.value, figure.how, figure.source, figure.note)
            for key, figure in {**peaks, **named, **entry.more}.items()
        },
        aliases=entry.aliases,
    )
