from __future__ import annotations

import pytest

from autoplan.plan import Range
from autoplan.report import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.00123, "1.23 ms"),
        (12.34, "12.3 s"),
        (90, "1.50 min"),
        (2.5e-7, "250 ns"),
        (0.5e-9, "0.500 ns"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1000, "1,000 B"), (1536, "1.50 KiB"), (3 * 2**40, "3.00 TiB")],
)
def test_size(value: float, text: str) -> None:
    assert units.size(value) == text


def test_percent_and_count() -> None:
    assert units.percent(0.0) == "0 %"
    assert units.percent(0.031) == "3.1 %"
    assert units.percent(0.31) == "31 %"
    assert units.count(1, "device") == "1 device"
    assert units.count(1200, "edge") == "1,200 edges"


def test_ranges() -> None:
    assert units.seconds_range(Range(1, 0.5, 2)) == "1.00 s (500 ms to 2.00 s)"
    assert units.size_range(Range(1024, 1024, 1024)) == "1.00 KiB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.95e13, "19.5 TB/s"),
        (690e6, "690 MB/s"),
        (999, "999 B/s"),
        (0, "0 B/s"),
        (2e18, "2,000 PB/s"),
    ],
)
def test_rates_count_in_thousands(value: float, text: str) -> None:
    assert units.decimal(value, "B/s") == text
