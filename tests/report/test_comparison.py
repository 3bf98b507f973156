from __future__ import annotations

import dataclasses

from autoplan.plan import Fingerprints, OpChoice, PlanData, Range
from autoplan.report.comparison import Change, compare
from autoplan.report.comparison_text import differences, differences_document
from tests.report.plans import KIB, alternatives, data_plan, single_plan


def changed(plan: PlanData, other: PlanData) -> dict[tuple[str, str], tuple[object, object]]:
    return {(each.part, each.name): (each.first, each.second) for each in compare(plan, other)}


def with_choices(plan: PlanData, *choices: OpChoice) -> PlanData:
    (stage,) = plan.stages
    return dataclasses.replace(plan, stages=(dataclasses.replace(stage, choices=choices),))


def test_equal_plans_have_no_changes() -> None:
    assert compare(data_plan(), data_plan()) == ()
    assert differences((), "a", "b") == "a and b are the same plan\n"


def test_another_strategy_differs_in_answer_devices_prices_and_states() -> None:
    changes = changed(data_plan(), single_plan())
    assert changes["answer", "strategy"] == ("data", "single")
    assert changes["devices", "ranks"] == (2, 1)
    assert changes["predicted", "step"] == (2.5e-3, 1.2e-3)
    assert changes["predicted", "sent by all devices"] == (18 * KIB, 0)
    assert changes["partition", "method"] == ("metis", None)
    assert changes["candidates", "single"] == ("priced", "chosen")
    assert changes["memory", "graph"] == (50 * KIB, 100 * KIB)
    assert changes["communication", "v7: halo exchange O→H"] == (10 * KIB, None)
    assert changes["states", "conv1.lin"] == ("O 1", "R 1")
    assert changes["states", "conv1"] == ("H 1, O 1", None)
    assert not [part for part, _ in changes if part in ("fingerprints", "document")]


def test_only_what_differs_is_told() -> None:
    plan = data_plan()
    slower = dataclasses.replace(plan.predicted, step_seconds=Range(5e-3, 2e-3, 4e-3))
    other = dataclasses.replace(
        plan,
        predicted=slower,
        fingerprints=Fingerprints("a1", "other", "s2", "c3"),
        alternatives=(*alternatives("data", 1.2e-3, 2.5e-3)[1:],),
    )
    assert compare(plan, other) == (
        Change("fingerprints", "graph", "b2", "other"),
        Change("predicted", "step", 2.5e-3, 5e-3, "seconds"),
        Change("candidates", "single", "priced", None),
        Change("candidates", "single: step", 1.2e-3, None, "seconds"),
        Change("candidates", "single: peak", 346 * KIB, None, "bytes"),
    )


def test_plans_that_differ_in_no_fact_differ_by_path() -> None:
    plan = data_plan()
    choices = list(plan.stages[0].choices)
    choices[1], choices[2] = (
        dataclasses.replace(choices[1], strategy="O"),
        dataclasses.replace(choices[2], strategy="H"),
    )
    assert compare(plan, with_choices(plan, *choices)) == (
        Change("document", "stages[0].choices[1].strategy", "H", "O"),
        Change("document", "stages[0].choices[2].strategy", "O", "H"),
    )


def test_the_text_has_units_ratios_and_what_was_made_for_what() -> None:
    plan = data_plan()
    other = dataclasses.replace(
        plan,
        predicted=dataclasses.replace(plan.predicted, step_seconds=Range(5e-3, 2e-3, 4e-3)),
        fingerprints=Fingerprints("a1", "other", "s2", "c3"),
    )
    text = differences(compare(plan, other), "old.json", "new.json")
    assert "first: old.json\n" in text
    assert "2 differences" in text
    assert "another schema, other sizes or other edges: the graph fingerprints differ" in text
    (step,) = [line.split() for line in text.splitlines() if line.startswith("  step")]
    assert step == ["step", "2.50", "ms", "5.00", "ms", "2.00", "x"]


def test_long_parts_are_cut_in_the_text_but_not_in_the_document() -> None:
    plan = data_plan()
    many = [OpChoice(op, "aten.mm.default", f"lins.{op}", "O") for op in range(100)]
    changes = compare(plan, with_choices(plan, *many))
    text = differences(changes, "a", "b")
    assert "and 63 more (--json has all)" in text
    assert "lins.99" not in text
    document = differences_document(changes, "a", "b")
    assert not document["equal"]
    assert document["changes"][-1] == {
        "part": "states",
        "name": "lins.99",
        "first": None,
        "second": "O 1",
        "unit": "",
    }
