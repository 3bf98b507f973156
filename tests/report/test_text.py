from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from autoplan.opnames import made_by
from autoplan.plan import Alternative, PlanData
from autoplan.report.text import WIDTH, against, explain, wrapped
from autoplan.search.refusals import refusals
from tests.report.plans import data_plan, single_plan


def section(text: str, title: str) -> list[str]:
    """The lines of one section, without their indentation."""
    lines = text.splitlines()
    start = lines.index(title) + 1
    body: list[str] = []
    for line in lines[start:]:
        if line and not line.startswith(" "):
            break
        body.append(line.strip())
    return [line for line in body if line]


def row(lines: list[str], first: str) -> list[str]:
    """The cells of the table row that begins with ``first``."""
    line = next(line for line in lines if line.startswith(first))
    return [cell for cell in line[len(first) :].split("  ") if cell.strip()]


def test_a_forced_plan_says_that_one_device_is_faster_and_by_how_much() -> None:
    lines = section(explain(data_plan()), "Plan")
    assert lines == [
        "data on 2 devices (2xcpu): exact, proven optimal for these prices",
        'chosen because strategy="data" was asked for',
        "one device is 2.1 times as fast: single would take 1.20 ms against 2.50 ms a step",
    ]


def test_a_plan_chosen_by_price_compares_itself_with_every_rival() -> None:
    lines = section(explain(single_plan()), "Plan")
    assert lines == [
        "single on 1 of 2 devices (2xcpu): exact, at most 2.0 % from the best",
        "chosen for the least predicted step time of 2 priced candidates",
        "one device is 2.1 times as fast: data on 2 would take 2.50 ms against 1.20 ms a step",
        "the search was stopped by the clock: another run may plan differently",
    ]


def test_a_cheaper_model_plan_that_was_passed_over_is_explained() -> None:
    plan = single_plan()
    model = Alternative("model of 2 stages", "model", 2, 1.1e-3, None, None, None)
    cheaper = replace(plan, alternatives=(*plan.alternatives, model))

    lines = " ".join(section(explain(cheaper), "Plan"))

    assert "model is taken only where nothing else fits" in lines
    assert "model is taken only" not in explain(plan)
    assert "model is taken only" not in explain(replace(cheaper, forced=True))


@pytest.mark.parametrize(
    ("mine", "theirs", "sentence"),
    [
        (1.0, 1.0, "single would take the same 1.00 s a step"),
        (1.0, 1.12, "single would take 12 % longer: 1.12 s against 1.00 s a step"),
        (1.0, 3.0, "single would take 3.0 times as long: 3.00 s against 1.00 s a step"),
        (1.05, 1.0, "one device is 5.0 % faster: single would take 1.00 s against 1.05 s a step"),
    ],
)
def test_two_devices_against_one(mine: float, theirs: float, sentence: str) -> None:
    chosen = Alternative("data", "data", 2, mine, None, None, None, True)
    rival = Alternative("single", "single", 1, theirs, None, None, None)
    assert against(chosen, rival) == sentence


def test_two_candidates_on_as_many_devices_are_not_one_device() -> None:
    chosen = Alternative("data", "data", 2, 2.0, None, None, None, True)
    rival = Alternative("pipeline", "pipeline", 2, 1.0, None, None, None)
    assert against(chosen, rival).startswith("pipeline would be 2.0 times as fast")


def test_every_candidate_is_listed_with_its_price_or_its_reason() -> None:
    lines = section(explain(data_plan()), "Candidates")
    assert row(lines, "single")[1].strip() == "1.20 ms"
    assert row(lines, "data on 2")[-1].strip() == "chosen"
    assert lines[-2:] == ["rejected:", "model:stages: not in this version"]


def test_equal_reasons_are_told_once_with_how_many_there_are() -> None:
    why = "one connected graph cannot be cut"
    named = [Alternative(f"pipeline {n}", "pipeline", n, None, None, None, why) for n in range(7)]
    hybrid = Alternative("hybrid", "hybrid", 4, None, None, None, why)
    plan = data_plan()
    plan = replace(plan, alternatives=(*plan.alternatives, *named, hybrid))

    lines = section(explain(plan), "Candidates")

    assert lines[-1] == f"8 candidates (7 pipeline, 1 hybrid): {why}"
    assert refusals(named[:2]) == [f"pipeline 0, pipeline 1: {why}"]


def test_of_each_strategy_the_best_rival_is_compared() -> None:
    plan = single_plan()
    others = [Alternative(f"data {n}", "data", n, n * 1e-2, 0.0, None, None) for n in (2, 3, 4)]
    lines = section(explain(replace(plan, alternatives=(*plan.alternatives, *others))), "Plan")
    assert sum("would take" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten.mm in convs.1.lin", "mm in convs.1.lin"),
        ("aten.relu_ in forward", "relu_ in the model itself"),
        ("v7", "v7"),
        ("", ""),
    ],
)
def test_operators_go_by_readable_names(name: str, shown: str) -> None:
    assert made_by(name) == shown


def test_what_dominates_a_step_is_named() -> None:
    lines = section(explain(data_plan()), "Predicted step")
    assert "communicating 1.50 ms (60 %): communication dominates" in lines[1]


def test_one_device_has_nothing_to_share_its_time_with() -> None:
    lines = section(explain(single_plan()), "Predicted step")
    assert [line.split()[0] for line in lines] == ["time", "memory"]


def test_a_long_sentence_is_wrapped_between_words() -> None:
    sentence = "relative errors: gradients 5.6e-16 (worst: first.lin.weight), " * 4
    lines = wrapped(sentence).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(lines) == sentence.strip()


def test_communication_adds_up_to_the_predicted_total() -> None:
    lines = section(explain(data_plan()), "Communication per step, payload sent")
    assert row(lines, "v7")[-1].strip() == "2.00 KiB"
    # 9 KiB in all, less 2 forward and 3 backward.
    assert row(lines, "parameters")[-1].strip() == "4.00 KiB"
    assert row(lines, "all")[-1].strip() == "9.00 KiB"


def test_memory_has_a_column_for_every_rank_and_the_peak_is_their_sum() -> None:
    lines = section(explain(data_plan()), "Memory per device, at its peak")
    assert lines[0].split() == ["rank", "0", "rank", "1"]
    assert row(lines, "peak") == [c for c in row(lines, "peak") if c.strip() == "196 KiB"]
    assert any(line.startswith("capacity") for line in lines)
    assert any(line.startswith("reserved") for line in lines)
    # what is zero everywhere is no row
    assert not any(line.startswith("buffers") for line in lines)


def test_many_ranks_are_summed_up() -> None:
    text = explain(data_plan(ranks=64))
    assert section(text, "Memory per device, at its peak")[0].split() == ["least", "mean", "most"]
    assert row(section(text, "Partition"), "halo nodes")[0].strip() == "60"


def test_states_are_counted_by_module() -> None:
    lines = section(explain(data_plan()), "States by module")
    assert row(lines, "conv1.lin")[-1].strip() == "O 1"
    assert row(lines, "(model)")[-1].strip() == "R 1"
    assert section(explain(single_plan()), "States by module") == [
        "one device holds everything: all 1 op in R"
    ]


def test_unknown_ops_loss_trace_and_notes_are_told() -> None:
    text = explain(data_plan())
    assert any("no rule covers aten.foo.default" in line for line in section(text, "Basis"))
    assert any("cross-entropy over train_mask" in line for line in section(text, "Basis"))
    assert section(text, "Notes") == ["peak memory counts tensors, not the interpreter"]
    concrete = section(explain(single_plan()), "Basis")
    assert "the trace is concrete: forward branches on a value at model.py:7" in concrete


@pytest.mark.parametrize("plan", [data_plan(), single_plan(), data_plan(ranks=64)])
def test_the_text_is_plain_and_fits(plan: PlanData) -> None:
    long_reason = Alternative("x", "pipeline", 2, None, None, None, "no room for a stage " * 12)
    plan = dataclasses.replace(plan, alternatives=(*plan.alternatives, long_reason))
    text = explain(plan)
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert text == explain(plan)


def test_a_model_of_many_modules_is_shown_by_first_parts() -> None:
    plan = data_plan()
    stage = plan.stages[0]
    choices = tuple(
        dataclasses.replace(stage.choices[0], op=i, module=f"convs.{i}.lin") for i in range(30)
    )
    plan = dataclasses.replace(plan, stages=(dataclasses.replace(stage, choices=choices),))
    assert row(section(explain(plan), "States by module"), "convs")[-1].strip() == "O 30"


def test_brackets_and_colons_of_a_reason_stay() -> None:
    rejected = Alternative("odd", "model", 2, None, None, None, "layers[0] :fire: [/red] is whole")
    text = explain(dataclasses.replace(data_plan(), alternatives=(rejected,)))
    assert section(text, "Candidates")[-1] == "odd: layers[0] :fire: [/red] is whole"
