from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from autoplan.plan import PLAN_VERSION, PlanData
from autoplan.report.parts import Part
from autoplan.report.text import explain
from tests.cli.fresh import without_torch
from tests.report.plans import data_plan, pipeline_plan


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(data_plan().to_json(), encoding="utf-8")
    return path


def test_a_saved_plan_is_shown_as_it_is_explained(command, saved: Path) -> None:
    assert command("show", saved).out == explain(data_plan())
    assert PlanData.from_json(command("show", saved, "--json").out) == data_plan()


@pytest.mark.parametrize("part", get_args(Part))
def test_a_part_is_a_section_of_the_explanation(command, saved: Path, part: str) -> None:
    for plan in (data_plan(), pipeline_plan()):
        saved.write_text(plan.to_json(), encoding="utf-8")
        shown = command("show", saved, "--part", part)
        assert shown.code == 0
        # explaining one stage alone would say nothing new
        assert shown.out.strip() in explain(plan) or (part == "stages" and plan.pipeline is None)
        assert part in json.loads(command("show", saved, "--part", part, "--json").out)


def test_an_unknown_part_is_bad_input(command, saved: Path) -> None:
    done = command("show", saved, "--part", "colour")
    assert (done.code, done.out) == (2, "")
    assert "communication" in done.err


def test_showing_needs_no_torch(saved: Path) -> None:
    done = without_torch("show", str(saved), "--part", "memory", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["memory"]) == 2


def _half(text: str) -> bytes:
    return text[: len(text) // 2].encode()


def _newer(text: str) -> bytes:
    return text.replace(f'"version": {PLAN_VERSION}', '"version": 7', 1).encode()


def _one_rank_less(text: str) -> bytes:
    document = json.loads(text)
    document["predicted"]["communication_bytes"].pop()
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_half, "the file ends in the middle"),
        (_newer, "version 7, made by a newer autoplan (0.1.0)"),
        (_one_rank_less, "predicted.communication_bytes is 1, but there are 2 devices"),
        (lambda text: b"", "it is not JSON"),
        (lambda text: b"\xff\xfe\x00", "it is not text"),
        (lambda text: text.replace("0.0025", "NaN").encode(), "Out of range float"),
        (lambda text: text.replace("0.0025", "1e999").encode(), "Out of range float"),
        (lambda text: b"[" * 100_000, "this is no plan"),
    ],
)
def test_a_file_that_is_no_whole_plan_is_one_message(command, saved: Path, spoil, message) -> None:
    saved.write_bytes(spoil(saved.read_text(encoding="utf-8")))
    done = command("show", saved)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"autoplan: {saved}: this ")
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_missing_file_or_a_folder_is_bad_input(command, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path):
        done = command("show", path)
        assert (done.code, done.out) == (2, "")
        assert f"there is no plan {path}" in done.err
