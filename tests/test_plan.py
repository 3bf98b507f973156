from __future__ import annotations

import dataclasses
import json
import math

import pytest

from autoplan.errors import PlanError
from autoplan.plan import PlanData
from tests.report.plans import data_plan, single_plan


@pytest.mark.parametrize("plan", [data_plan(), single_plan()])
def test_a_plan_survives_its_json(plan: PlanData) -> None:
    text = plan.to_json()
    again = PlanData.from_json(text)
    assert again == plan
    assert again.to_json() == text


def test_the_fields_are_in_order() -> None:
    document = json.loads(data_plan().to_json())
    assert list(document) == [field.name for field in dataclasses.fields(PlanData)]


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"version": 99}', "not json"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="this is"):
        PlanData.from_json(text)


def test_a_field_that_does_not_fit_is_named() -> None:
    document = data_plan().to_dict()
    document["predicted"]["step_seconds"]["low"] = "fast"
    with pytest.raises(PlanError, match=r"predicted\.step_seconds\.low"):
        PlanData.from_json(json.dumps(document))


def test_a_price_that_is_not_finite_is_not_written() -> None:
    plan = dataclasses.replace(data_plan(), gap=math.inf)
    with pytest.raises(ValueError, match="not JSON compliant"):
        plan.to_json()
