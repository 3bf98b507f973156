"""Numbers for people: seconds, bytes and ratios with three significant digits and the unit that suits them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoplan.plan import Range

_SECONDS = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def digits(value: float) -> str:
    """Three significant digits, never in exponent form; whole numbers above 100."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def seconds(value: float) -> str:
    """``0.00123`` as ``1.23 ms``."""
    if value == 0:
        return "0 s"
    for unit, name in _SECONDS:
        if abs(value) >= unit:
            return f"{digits(value / unit)} {name}"
    return f"{digits(value / 1e-9)} ns"


def size(value: float) -> str:
    """``1536`` bytes as ``1.50 KiB``; below one KiB the bytes themselves."""
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return f"{digits(value / unit)} {name}"
    return f"{value:,.0f} B"


def decimal(value: float, unit: str = "") -> str:
    """``1.95e13`` FLOP/s as ``19.5 TFLOP/s``: powers of 1000, as data sheets count."""
    for power, prefix in _DECIMAL:
        if abs(value) >= power:
            return f"{digits(value / power)} {prefix}{unit}".rstrip()
    return f"{digits(value)} {unit}".rstrip()


def percent(share: float) -> str:
    """``0.1234`` as ``12 %``; below 10 % with one decimal."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def seconds_range(value: Range) -> str:
    """A predicted time and between what it is expected."""
    return f"{seconds(value.value)} ({seconds(value.low)} to {seconds(value.high)})"


def size_range(value: Range) -> str:
    """A predicted size and between what it is expected; the size alone when it is exact."""
    if value.low == value.high:
        return size(value.value)
    return f"{size(value.value)} ({size(value.low)} to {size(value.high)})"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 device``, ``2 devices``; a plural that is not formed by an s is given."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """``a, b, c``; of more than ``most`` the first ones and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"
