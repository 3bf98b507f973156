from __future__ import annotations

import dataclasses

import pytest

from autoplan.report.measured import Forced, forced_candidates, predicted_and_measured
from autoplan.report.text import render
from tests.report.plans import KIB, data_plan, single_plan


def rows(**changes: object) -> dict[str, str]:
    plan = data_plan(ranks=int(changes.pop("ranks", 2)))  # type: ignore[call-overload]
    ranks = len(plan.devices)
    measured = {
        "step_seconds": 3e-3,
        "peak_bytes": (200 * KIB,) * ranks,
        "communication_bytes": (9 * KIB,) * ranks,
    }
    table = predicted_and_measured(plan.predicted, **{**measured, **changes})  # type: ignore[arg-type]
    lines = render(("title", table)).splitlines()[3:]
    return {line[2:24].strip(): line[24:] for line in lines}


def test_each_number_stands_beside_its_prediction() -> None:
    table = rows()
    assert set(table) == {
        "time",
        "peak memory, rank 0",
        "peak memory, rank 1",
        "bytes sent, all ranks",
    }
    assert "2.50 ms (2.00 ms to 4.00 ms)" in table["time"]
    assert "3.00 ms" in table["time"]
    assert "200 KiB" in table["peak memory, rank 1"]
    assert table["bytes sent, all ranks"].split()[:2] == ["18,432", "18,432"]
    assert table["bytes sent, all ranks"].endswith("equal on every rank")


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (2e-3, "within the range"),
        (8e-3, "2.0 times above the range"),
        (1e-3, "2.0 times below the range"),
        (4.04e-3, "1.0 % above the range"),
    ],
)
def test_a_measurement_is_set_against_its_range(seconds: float, verdict: str) -> None:
    assert rows(step_seconds=seconds)["time"].endswith(verdict)


@pytest.mark.parametrize(
    ("as_planned", "verdict"),
    [
        (False, "not as planned"),
        (True, "as planned for that step"),
        (None, "the data decide how much"),
    ],
)
def test_traffic_that_is_not_the_priced_step_s_is_explained(
    as_planned: bool | None, verdict: str
) -> None:
    table = rows(communication_bytes=(9 * KIB, 10 * KIB), as_planned=as_planned)
    assert table["bytes sent, all ranks"].endswith(verdict)


def test_of_many_ranks_the_fullest_is_shown() -> None:
    peaks = tuple((200 + (rank == 5)) * KIB for rank in range(16))
    table = rows(ranks=16, peak_bytes=peaks)
    assert "201 KiB" in table["peak memory, rank 5"]
    assert len(table) == 3


def test_a_range_of_one_value_is_shown_as_that_value() -> None:
    plan = data_plan()
    peak = plan.predicted.peak_bytes[0]
    exact = dataclasses.replace(peak, low=peak.value, high=peak.value)
    predicted = dataclasses.replace(plan.predicted, peak_bytes=(exact, exact))
    table = predicted_and_measured(
        predicted, step_seconds=1, peak_bytes=(1, 1), communication_bytes=(0, 0)
    )
    assert "196 KiB to" not in render(("title", table))


def test_strategies_stand_beside_each_other_and_the_refused_have_their_reason() -> None:
    rows = [
        Forced("single", single_plan(), None, 1e-3, (300 * KIB,), (0,)),
        Forced("data", data_plan(), None, 3e-3, (190 * KIB, 200 * KIB), (9 * KIB, 9 * KIB)),
        Forced("pipeline", reason="one connected graph cannot be cut; use model"),
    ]
    lines = render(("title", forced_candidates(rows))).splitlines()
    shown = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert shown["single"][1:4] == ["1", "1.20", "ms"]
    assert shown["data"] == [
        *("data", "2", "2.50", "ms", "3.00", "ms"),
        *("196", "KiB", "200", "KiB", "18.0", "KiB", "18.0", "KiB"),
    ]
    assert shown["pipeline"][1:4] == ["refused:", "one", "connected"]
