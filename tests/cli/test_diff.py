from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.fresh import without_torch
from tests.report.plans import data_plan, single_plan


@pytest.fixture
def saved(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, plan in {"data": data_plan(), "same": data_plan(), "single": single_plan()}.items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(plan.to_json(), encoding="utf-8")
    return paths


def test_equal_plans_exit_with_0(command, saved) -> None:
    done = command("diff", saved["data"], saved["same"])
    assert (done.code, done.err) == (0, "")
    assert "are the same plan" in done.out
    document = json.loads(command("diff", saved["data"], saved["same"], "--json").out)
    assert (document["equal"], document["changes"]) == (True, [])


def test_plans_that_differ_exit_with_1(command, saved) -> None:
    done = command("diff", saved["data"], saved["single"])
    assert (done.code, done.err) == (1, "")
    assert f"second: {saved['single']}" in done.out
    done = command("diff", saved["data"], saved["single"], "--json")
    document = json.loads(done.out)
    assert (done.code, document["equal"]) == (1, False)
    assert document["changes"][0] == {
        "part": "answer",
        "name": "strategy",
        "first": "data",
        "second": "single",
        "unit": "",
    }


def test_a_file_that_cannot_be_compared_exits_with_2_and_is_named(command, saved) -> None:
    bad = saved["data"].with_name("bad.json")
    bad.write_text(data_plan().to_json()[:900], encoding="utf-8")
    for other in (bad, bad.with_name("absent.json")):
        done = command("diff", saved["data"], other, "--json")
        assert (done.code, done.out) == (2, "")
        assert str(other) in done.err
        assert "Traceback" not in done.err


def test_comparing_needs_no_torch(saved) -> None:
    done = without_torch("diff", str(saved["data"]), str(saved["single"]), code=1)
    assert done.returncode == 0, done.stderr
