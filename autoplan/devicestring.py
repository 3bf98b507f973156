"""The devices that a user asks for, one by one, before they have a place in a cluster. See `autoplan.cluster` for the forms."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from autoplan.device import DeviceProfile, Figure
from autoplan.errors import DeviceError
from autoplan.plugins import Registry
from autoplan.presence import CudaDevice, cuda_devices, list_cuda

MAX_DEVICES = 65_536
FORMS = (
    'give a count and a name as in "2xcpu" or "2x8xh100_sxm5", joined by "+"; '
    'a list as in ["cuda:0", "cuda:1"]; or the path of a TOML file'
)

_PART = re.compile(r"(?:(\d+)x)?(?:(\d+)x)?([a-z][a-z0-9_]*)(?::(\d+))?")
_UNKNOWN_GPU: Mapping[str, float] = {
    "flop_per_s.float32": 1e13,
    "bytes_per_s": 3e11,
    "launch_seconds": 8.13e-6,
    "link_bytes_per_s": 1.2e10,
    "link_latency_seconds": 7.6e-6,
}
"""For a GPU that no profile describes: modest figures, all assumed."""


class Strict(BaseModel):
    """A table that takes no unknown key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceTable(Strict):
    """One entry of a file or a dictionary. Without ``profile``, a ``name`` that is no device's means a CPU worker."""

    name: str | None = None
    profile: str | None = None
    memory_bytes: PositiveInt | None = None
    host: Annotated[int, Field(ge=0)] = 0
    count: PositiveInt = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """One device asked for.

    Attributes:
        host: devices with equal numbers share a host; the numbers mean nothing else.
        index: among the CUDA devices of this machine; None elsewhere.
        name, memory_bytes: given by the user, or None: the profile's own.
    """

    profile: DeviceProfile
    host: int = 0
    index: int | None = None
    name: str | None = None
    memory_bytes: int | None = None


class Reader:
    """Turns entries into wishes; remembers the CUDA devices, so that torch is asked once."""

    def __init__(self, known: Registry) -> None:
        self._known = known
        self._cuda: tuple[CudaDevice, ...] | None = None
        self._last_host = 0

    def wishes(self, entry: object) -> Iterator[Wish]:
        """The devices that one entry of a list asks for. Raises DeviceError."""
        if isinstance(entry, str):
            for part in entry.split("+") if entry.strip() else ():
                yield from self.part(part)
        elif is_torch_device(entry):
            yield from self.part("cpu" if str(entry).startswith("cpu") else str(entry))
        elif isinstance(entry, DeviceProfile):
            yield Wish(entry)
        elif isinstance(entry, Mapping):
            yield from self.table(validated(DeviceTable, entry, f"device {dict(entry)!r}"))
        else:
            raise DeviceError(f"a device is {entry!r}; {FORMS}")

    def part(self, text: str) -> Iterator[Wish]:
        """The devices of one part of a device string: ``2x8xh100_sxm5``, ``cuda:1``."""
        match = _PART.fullmatch(re.sub(r"\s+", "", text.lower()))
        if match is None and not text.strip():
            raise DeviceError(f"a device is missing beside a '+'; {FORMS}")
        if match is None:
            raise DeviceError(f"'{text.strip()}' is not a device; {FORMS}")
        first, second, name, index = match.groups()
        hosts = int(first) if second else None
        count = int(second or first or 1)
        if count == 0 or hosts == 0:
            raise DeviceError(f"'{text.strip()}' asks for no devices; {FORMS}")
        if index is not None and (name != "cuda" or first):
            number = max(int(index), 1)
            raise DeviceError(
                f"'{text.strip()}': only CUDA devices have an index, and it takes no count; "
                f"for {number} of '{name}' write '{number}x{name}'"
            )
        if (hosts or 1) * count > MAX_DEVICES:
            raise DeviceError(f"'{text.strip()}' asks for more than {MAX_DEVICES:,} devices")
        indices = range(count) if index is None else (int(index),)
        for host in [0] if hosts is None else [self._new_host() for _ in range(hosts)]:
            for position in indices:
                yield self.device(name, position, host)

    def table(self, entry: DeviceTable) -> Iterator[Wish]:
        """The devices of one table or dictionary."""
        named = entry.profile or entry.name or "cpu"
        if entry.profile is None and entry.name and not self._exists(entry.name):
            named = "cpu"
        label, _, index = named.partition(":")
        if index and (label != "cuda" or not index.isdigit() or entry.count > 1):
            raise DeviceError(f"'{named}': an index is for one CUDA device, as in 'cuda:0'")
        for position in range(entry.count):
            wish = self.device(label, int(index or position), entry.host)
            name = entry.name
            if name is not None and entry.count > 1:
                name = f"{name}:{position}"
            yield replace(wish, name=name, memory_bytes=entry.memory_bytes or wish.memory_bytes)

    def device(self, name: str, index: int, host: int) -> Wish:
        """One device by its profile's name; ``cuda`` stands for what is in this machine."""
        if name != "cuda":
            return Wish(profile_named(name, self._known), host)
        if self._cuda is None:
            self._cuda = cuda_devices()
        profile = profile_of_cuda(index, self._cuda, self._known)
        return Wish(profile, host, index, None, self._cuda[index].memory_bytes)

    def _new_host(self) -> int:
        """A host that nothing else is in: below zero, where no one names one."""
        self._last_host -= 1
        return self._last_host

    def _exists(self, name: str) -> bool:
        return name.partition(":")[0] == "cuda" or self._known.find(name) is not None


def is_torch_device(entry: object) -> bool:
    """Whether it is a `torch.device`; without importing torch, which no one who has one needs."""
    return (type(entry).__module__, type(entry).__name__) == ("torch", "device")


def profile_named(name: str, known: Registry) -> DeviceProfile:
    """The profile with a name or an alias. Raises DeviceError that lists what exists, the closest names first."""
    profile = known.find(name)
    if profile is not None:
        return profile
    names = [*known.devices, "cuda"]
    also = [alias for each in known.devices.values() for alias in each.aliases]
    by_lower = {each.lower(): each for each in (*names, *also)}
    close = [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=3)]
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    failed = ", ".join(plugin.name for plugin in known.failed)
    lost = f" Plugins that failed: {failed} (see `autoplan plugins`)." if failed else ""
    raise DeviceError(f"there is no device '{name}'; {hint}known are {', '.join(names)}.{lost}")


def profile_of_cuda(index: int, here: Sequence[CudaDevice], known: Registry) -> DeviceProfile:
    """The profile of a CUDA device of this machine, with assumed figures where none describes it.

    Raises:
        DeviceError: this machine has no device of that index.
    """
    if index >= len(here):
        raise DeviceError(
            f"cuda:{index} is not in this machine, which has {list_cuda(here)}; to plan for GPUs that are "
            f"elsewhere name them, as in 4xa100_sxm4_80gb"
        )
    return known.find(here[index].title) or _unknown_gpu(here[index].title)


_Table = TypeVar("_Table", bound=BaseModel)


def validated(model: type[_Table], content: object, what: str) -> _Table:
    """Content checked by a pydantic model. Raises DeviceError that names the entry and the first thing wrong with it."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        keys = ", ".join(DeviceTable.model_fields)
        raise DeviceError(
            f"{what}: {place}: {first['msg']}; a device takes the keys {keys}, "
            f"a link latency_seconds, bytes_per_s and name"
        ) from error


def _unknown_gpu(title: str) -> DeviceProfile:
    """A profile for a GPU in this machine that no plugin describes."""
    note = f"no plugin describes {title}"
    figures = {field: Figure(value, "assumed", "", note) for field, value in _UNKNOWN_GPU.items()}
    return DeviceProfile(
        name="cuda",
        kind="gpu",
        title=title,
        flop_per_s={"float32": _UNKNOWN_GPU["flop_per_s.float32"]},
        bytes_per_s=_UNKNOWN_GPU["bytes_per_s"],
        launch_seconds=_UNKNOWN_GPU["launch_seconds"],
        link_bytes_per_s=_UNKNOWN_GPU["link_bytes_per_s"],
        link_latency_seconds=_UNKNOWN_GPU["link_latency_seconds"],
        torch_device="cuda",
        note=note,
        figures=figures,
    )
