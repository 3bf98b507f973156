"""The verdict on a plan that was kept for another graph: whether it is still the best, by what it was chosen for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoplan.plan import Alternative, PlanData
from autoplan.report.rebound import Rebound
from tests.report.plans import KIB, data_plan

FITS = "it fits: 196 KiB of 1.00 GiB at the peak of the fullest device"


def kept(**changes: object) -> PlanData:
    return replace(data_plan(), rebound=True, **changes)  # type: ignore[arg-type]


def verdict(plan: PlanData) -> str:
    return Rebound.of(data_plan(), plan).verdict


def test_a_better_candidate_is_named_with_both_prices() -> None:
    assert verdict(kept(forced=False)) == (
        f"{FITS}; single would now save 52 % of a step (1.20 ms against 2.50 ms): "
        "plan again to take it"
    )


def test_a_strategy_that_was_asked_for_is_kept_for_that_reason() -> None:
    assert verdict(kept(forced=True)) == (
        f'{FITS}; kept as strategy="data" was asked for, though single would now save '
        "52 % of a step (1.20 ms against 2.50 ms)"
    )


def test_a_plan_for_memory_is_judged_by_memory() -> None:
    smaller = Alternative("model of 2 stages", "model", 2, 9e-3, 98 * KIB, None, None)
    plan = kept(forced=False, objective="memory")
    assert verdict(plan) == f"{FITS}; no other candidate needs less"
    assert "model of 2 stages would now save 50 % of the peak (98.0 KiB against 196 KiB)" in (
        verdict(replace(plan, alternatives=(*plan.alternatives, smaller)))
    )


@pytest.mark.parametrize("strategy", ["model", "data"])
def test_model_is_no_rival_for_time(strategy: str) -> None:
    # it comes after all that fits, see autoplan.search
    (mine,) = [each for each in data_plan().alternatives if each.chosen]
    rival = Alternative("a rival", strategy, 2, 1e-3, KIB, None, None)  # type: ignore[arg-type]
    said = verdict(kept(alternatives=(rival, mine), forced=False))
    assert ("no other candidate is faster" in said) == (strategy == "model")
