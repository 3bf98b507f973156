from __future__ import annotations

import dataclasses
import json
import math

import pytest

from autoplan.errors import PlanError
from autoplan.plan import PlanData
from tests.report.plans import data_plan, pipeline_plan, single_plan


@pytest.mark.parametrize("plan", [data_plan(), single_plan()])
def test_a_plan_survives_its_json(plan: PlanData) -> None:
    text = plan.to_json()
    again = PlanData.from_json(text)
    assert again == plan
    assert again.to_json() == text


def test_the_fields_are_in_order() -> None:
    document = json.loads(data_plan().to_json())
    assert list(document) == [*(field.name for field in dataclasses.fields(PlanData)), "seals"]


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


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_plan_that_is_cut_off_says_so(share: float) -> None:
    text = data_plan().to_json()
    for length in range(int(share * len(text)), int(share * len(text)) + 60):
        with pytest.raises(PlanError, match="the file ends in the middle"):
            PlanData.from_json(text[:length])


def test_lists_by_rank_must_have_an_entry_a_rank() -> None:
    plan = data_plan()
    (stage,) = plan.stages
    (transition,) = stage.transitions
    short = dataclasses.replace(transition, forward_bytes=(1,))
    spoiled = {
        r"devices\[0\]\.rank is 1, but its devices are ranks 0 to 1": {
            "devices": plan.devices[::-1]
        },
        r"stages\[0\]\.memory is 1, but stage 0 has 2 devices": {
            "stages": (dataclasses.replace(stage, memory=stage.memory[:1]),)
        },
        r"stages\[0\]\.transitions\[0\]\.forward_bytes is \[1\], but stage 0 has 2": {
            "stages": (dataclasses.replace(stage, transitions=(short,)),)
        },
        r"stages\[0\]\.devices is \[0, 2\]": {
            "stages": (dataclasses.replace(stage, devices=(0, 2)),)
        },
    }
    for message, change in spoiled.items():
        with pytest.raises(PlanError, match=message):
            PlanData.from_json(dataclasses.replace(plan, **change).to_json())


def test_sends_have_an_entry_a_rank_and_a_later_stage() -> None:
    plan = pipeline_plan(2, 2)
    assert PlanData.from_json(plan.to_json()) == plan
    first = plan.stages[0]
    short = dataclasses.replace(first.sends[0], forward_bytes=(1,))
    backwards = dataclasses.replace(first.sends[0], target=0)
    for send, said in (
        (short, r"sends\[0\]\.forward_bytes is \[1\], but stage 0 has 2"),
        (backwards, r"sends\[0\]\.target is 0, but stage 0 sends to later"),
    ):
        stage = dataclasses.replace(first, sends=(send,))
        broken = dataclasses.replace(plan, stages=(stage, plan.stages[1]))
        with pytest.raises(PlanError, match=said):
            PlanData.from_json(broken.to_json())
    alone = dataclasses.replace(plan.pipeline, replicas=1)
    with pytest.raises(PlanError, match=r"pipeline\.replicas is 1, but 2 stages share 4 devices"):
        PlanData.from_json(dataclasses.replace(plan, pipeline=alone).to_json())
