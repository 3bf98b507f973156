from __future__ import annotations

import dataclasses

import pytest

from autoplan.plan import OpChoice, PlanData
from autoplan.report.comparison import compare
from autoplan.report.comparison_text import differences
from autoplan.report.parts import part_document
from autoplan.report.stages import layers
from autoplan.report.text import WIDTH, explain, explain_part
from tests.report.plans import KIB, data_plan, pipeline_plan
from tests.report.test_text import row, section


def test_stages_stand_side_by_side_with_what_they_have_and_send() -> None:
    lines = section(explain(pipeline_plan()), "Stages")
    first, second = row(lines, "0 (cpu)"), row(lines, "1 (cpu)")
    assert [cell.strip() for cell in first] == [
        "0",
        "convs.0, convs.1, convs.2 (in part)",
        "3",
        "1.00 ms",
        "196 KiB",
        "2.00 KiB to 1",
    ]
    assert [cell.strip() for cell in second][1:] == [
        "convs.2 (in part), head",
        "2",
        "2.00 ms",
        "346 KiB",
    ]
    assert "4 micro-batches of whole graphs, one forward, one backward in turn (1F1B)" in lines
    assert "a device waits 25 % of the step (bubble)" in lines


def test_computing_and_communicating_are_each_of_the_device_that_does_most() -> None:
    said = section(explain(pipeline_plan()), "Predicted step")
    assert said[1:3] == [
        "computing 1.00 ms on the device that computes longest,",
        "communicating 1.50 ms on the one that communicates longest: communication dominates",
    ]


def test_a_model_buys_memory_and_no_speed() -> None:
    text = explain(pipeline_plan(1, 1))
    assert "buy memory and no speed" in text
    assert "Partition" not in text
    assert section(text, "States by module") == ["nothing is cut: all 5 ops in R"]


def test_replicas_are_told() -> None:
    lines = section(explain(pipeline_plan(2, 3)), "Stages")
    assert any("3 micro-batches of whole graphs in each of 2 replicas" in line for line in lines)
    assert row(lines, "1 (2 cpu)")[0].strip() == "1, 3"


def test_memory_is_by_rank_and_not_by_stage() -> None:
    lines = section(explain(pipeline_plan(2, 2)), "Memory per device, at its peak")
    assert [cell.strip() for cell in row(lines, "peak")] == ["196 KiB", "346 KiB"] * 2


def test_what_stages_send_adds_up_to_the_total() -> None:
    lines = section(explain(pipeline_plan(2, 2)), "Communication per step, payload sent")
    sends = [line for line in lines if "stage 0 to 1" in line]
    back = [line for line in lines if "gradient, stage 1 to 0" in line]
    assert [line.split()[-8:] for line in sends] == [["2.00", "KiB", "0", "B"] * 2]
    assert [line.split()[-8:] for line in back] == [["0", "B", "1.00", "KiB"] * 2]
    # nothing else is sent
    assert not any(line.startswith("parameters") for line in lines)


def test_parts_of_whole_graphs_are_no_ranks() -> None:
    lines = section(explain(pipeline_plan(1, 3)), "Partition")
    assert lines[0] == "3 parts of whole graphs: none of 1,350 edges crosses"
    assert lines[1].split() == ["part", "0", "part", "1", "part", "2"]
    assert not any(line.startswith("halo") for line in lines)


def test_layers_in_words() -> None:
    base = pipeline_plan().stages[0]

    def stage(*modules: str) -> object:
        choices = tuple(OpChoice(i, "aten.mm.default", m, "O") for i, m in enumerate(modules))
        return dataclasses.replace(base, choices=choices)

    numbered = [f"convs.{i}.lin" for i in range(9)]
    assert layers([stage(*numbered), stage("head", "")]) == ["convs.0 to convs.8", "head"]
    assert layers([stage("a", "b", "c", "d", "e", "f")]) == ["a, b, ..., f"]
    assert layers([stage("", "")]) == ["ops of no layer"]
    assert layers([stage("a.lin"), stage("a.act")]) == ["a (in part)", "a (in part)"]


def test_a_plan_of_one_group_of_devices_has_no_section_of_stages() -> None:
    assert "Stages" not in explain(data_plan()).splitlines()
    assert "data" not in explain_part(data_plan(), "stages")


def test_optimal_says_nothing_of_stages_that_have_no_bound() -> None:
    plan = data_plan()
    rival = dataclasses.replace(
        plan.alternatives[0], name="model of 2 stages", strategy="model", lower_bound_seconds=None
    )
    with_stages = dataclasses.replace(plan, alternatives=(*plan.alternatives, rival))
    assert "proven optimal for these prices among plans without stages" in explain(with_stages)
    assert "without stages" not in explain(plan)


def test_the_document_has_all_that_is_sent() -> None:
    found = part_document(pipeline_plan(2, 2), "stages")
    assert found["pipeline"]["replicas"] == 2
    assert found["stages"][0]["sends"][0]["forward_bytes"] == (2 * KIB, 2 * KIB)
    (send,) = part_document(pipeline_plan(2, 2), "communication")["communication"]["sends"]
    assert (send["ranks"], send["target_ranks"]) == ([0, 2], [1, 3])


def test_differences_of_pipelines_are_named() -> None:
    changes = compare(pipeline_plan(1, 4), pipeline_plan(2, 2))
    named = {(change.part, change.name) for change in changes}
    assert ("stages", "replicas") in named
    assert ("stages", "micro-batches of a replica") in named
    assert ("communication", "relu in the model itself: stage 0 to 1") in named
    text = differences(changes, "a.json", "b.json")
    assert "Stages" in text.splitlines()
    assert compare(pipeline_plan(), pipeline_plan()) == ()


@pytest.mark.parametrize("plan", [pipeline_plan(), pipeline_plan(2, 3), pipeline_plan(8, 4)])
def test_the_text_fits(plan: PlanData) -> None:
    text = explain(plan)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert PlanData.from_json(plan.to_json()) == plan
