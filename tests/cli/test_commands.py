from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from autoplan.plan import PlanData
from autoplan.report.text import explain
from autoplan.search import SearchOptions
from tests.cli.fresh import without_torch
from tests.report.plans import data_plan, pipeline_plan, single_plan


def test_help_is_quick_and_needs_no_torch() -> None:
    started = time.perf_counter()
    done = without_torch("--help")
    seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    assert "verify" in done.stdout
    # `make accept` asks for one second on a quiet machine; here other tests run beside it.
    assert seconds < 5


def test_plan_prints_the_explanation_and_nothing_else_on_stdout(api, command, file) -> None:
    done = command("plan", file, "--devices", "2xcpu", "--strategy", "data")
    assert done.code == 0
    assert done.out == explain(data_plan())
    assert "hello from build" in done.err
    assert "a library that prints to stdout" in done.err
    assert api.calls == [
        {
            "model": "model",
            "graph": "graph",
            "devices": "2xcpu",
            "batch_size": None,
            "loss": None,
            "strategy": "data",
            "objective": "time",
            "exact": True,
            "optimizer": "adam",
            "options": SearchOptions(),
        }
    ]


def test_options_of_pipelines_reach_the_search(api, command, file) -> None:
    options = ("--micro-batches", "3", "--schedule", "gpipe")
    for name in ("plan", "explain", "run", "verify"):
        exact = () if name == "verify" else ("--lossy",)
        done = command(name, file, "--strategy", "pipeline", *options, *exact)
        assert done.code == 0, done.err
    asked = SearchOptions(micro_batches=(3,), schedules=("gpipe",))
    assert [call["options"] for call in api.calls] == [asked] * 4
    assert [call["exact"] for call in api.calls] == [False, False, False, True]


def test_plan_as_json_is_one_document(api, command, file) -> None:
    done = command("plan", file, "--json")
    assert PlanData.from_json(done.out) == single_plan()


def test_a_saved_plan_is_explained_without_torch(api, command, file, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert command("plan", file, "--strategy", "data", "--save", path).code == 0
    assert path.read_text(encoding="utf-8") == data_plan().to_json()
    done = without_torch("explain", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == explain(data_plan())


def test_options_say_nothing_of_a_saved_plan(api, command, file, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(data_plan().to_json(), encoding="utf-8")
    for option in (("--devices", "2xcpu"), ("--micro-batches", "2"), ("--lossy",)):
        done = command("explain", path, *option)
        assert (done.code, done.out) == (2, "")
        assert f"plan.json and {option[0]} exclude each other" in done.err


def test_paragraphs_of_help_are_wrapped_as_one(command) -> None:
    words = " ".join(command("demo", "--help").out.split())
    assert "The many graphs are made from a seed." in words
    assert all(len(line) <= 100 for line in command("verify", "--help").out.splitlines())


def test_explain_plans_for_a_function(api, command, file) -> None:
    assert command("explain", file, "--strategy", "data").out == explain(data_plan())


def test_run_prints_predicted_beside_measured(api, command, file) -> None:
    done = command("run", file, "--strategy", "data", "--epochs", "4", "--lr", "0.1")
    assert done.code == 0
    assert "Trained 4 epochs with data on 2 devices" in done.out
    assert "loss 1 at first, 0.25 at last" in done.out
    (time_row,) = [line for line in done.out.splitlines() if line.strip().startswith("time")]
    assert "2.50 ms (2.00 ms to 4.00 ms)" in time_row
    assert "3.00 ms" in time_row
    assert "within the range" in time_row
    assert "equal on every rank" in done.out


def test_run_as_json(api, command, file) -> None:
    document = json.loads(command("run", file, "--strategy", "data", "--json").out)
    assert document["step_seconds"] == {
        "predicted": 2.5e-3,
        "low": 2e-3,
        "high": 4e-3,
        "measured": 3e-3,
    }
    assert len(document["losses"]) == 100


def test_run_takes_a_saved_plan(api, command, file, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(data_plan().to_json(), encoding="utf-8")
    done = command("run", file, "--plan", path, "--epochs", "1", "--json")
    assert json.loads(done.out)["strategy"] == "data"
    assert api.calls == []


def test_verify_says_which_plan_it_checked_and_why(api, command, file) -> None:
    done = command("verify", file, "--strategy", "data")
    assert done.code == 0
    assert [line.strip() for line in done.out.splitlines()] == [
        "Verified",
        "data on 2 devices (2xcpu)",
        'chosen because strategy="data" was asked for',
        "",
        "equal",
    ]
    (check,) = json.loads(command("verify", file, "--strategy", "data", "--json").out)["checks"]
    assert (check["strategy"], check["ranks"], check["micro_batches"]) == ("data", 2, None)
    assert check["why"] == 'chosen because strategy="data" was asked for'


def test_verify_of_one_device_also_checks_what_spreads_the_work(api, command, file) -> None:
    done = command("verify", file)
    assert [call["strategy"] for call in api.calls] == ["auto", "data"]
    lines = [line.strip() for line in done.out.splitlines()]
    assert "single on 1 of 2 devices (2xcpu)" in lines
    assert "data on 2 devices (2xcpu)" in lines[lines.index("Verified as well") :]
    document = json.loads(command("verify", file, "--json").out)
    assert document["ok"]
    assert [check["strategy"] for check in document["checks"]] == ["single", "data"]

    api.calls.clear()
    done = command("verify", file, "--strategy", "single")
    assert [call["strategy"] for call in api.calls] == ["single"]
    assert "Verified as well" not in done.out
    assert "the comparison with plain PyTorch" in done.out


def test_verify_of_a_saved_plan_names_its_file(api, command, file, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(pipeline_plan().to_json(), encoding="utf-8")
    lines = [line.strip() for line in command("verify", file, "--plan", path).out.splitlines()]
    assert lines[1] == "pipeline on 2 devices (2xcpu), 2 stages, 4 micro-batches (1f1b)"
    assert lines[2].startswith("read from ")


def test_a_failed_verification_exits_with_1(api, command, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("def build():\n    return 'wrong model', None\n", encoding="utf-8")
    done = command("verify", f"{path}:build")
    assert done.code == 1
    assert "different in conv1.weight" in done.out
    done = command("verify", f"{path}:build", "--json")
    document = json.loads(done.out)
    assert (done.code, document["ok"]) == (1, False)
    # JSON has no infinity
    assert document["checks"][0]["gradient_error"] is None


@pytest.mark.parametrize(("devices", "code"), [("2xtiny", 1), ("2xabacus", 2)])
def test_errors_are_messages_without_a_traceback(api, command, file, devices, code) -> None:
    done = command("plan", file, "--devices", devices)
    assert done.code == code
    assert done.out == ""
    assert done.err.splitlines()[-1].startswith("autoplan: ")
    assert "Traceback" not in done.err


def test_a_failed_worker_shows_its_own_traceback(api, command, tmp_path: Path) -> None:
    path = tmp_path / "failing.py"
    path.write_text("def build():\n    return 'failing worker', None\n", encoding="utf-8")
    done = command("run", f"{path}:build")
    assert done.code == 1
    assert "rank 1 failed" in done.err
    assert "Traceback: in forward" in done.err


def test_an_unknown_option_is_bad_input(command) -> None:
    assert command("plan", "x.py:build", "--colour").code == 2
    assert command("run", "x.py:build", "--epochs", "0").code == 2
    assert command("plan", "x.py:build", "--objective", "beauty").code == 2
    assert command("plan", "x.py:build", "--strategy", "pipelines").code == 2


def test_a_plan_that_is_not_there_is_bad_input(api, command, file) -> None:
    done = command("explain", "nowhere.json")
    assert (done.code, done.out) == (2, "")
    assert "there is no plan nowhere.json" in done.err
    assert command("run", file, "--plan", "nowhere.json").code == 2


def test_a_file_that_is_no_plan_is_bad_input(command, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    done = command("explain", path)
    assert done.code == 2
    assert "this is no plan, it is an empty JSON object" in done.err


@pytest.mark.parametrize(("name", "option"), [("plan", "--save"), ("run", "--save-weights")])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    api, command, file, tmp_path: Path, name, option
) -> None:
    for path, why in ((tmp_path / "nowhere" / "x", "there is no folder"), (tmp_path, "a folder")):
        done = command(name, file, option, path)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"autoplan: {option} {path}: ")
        assert why in done.err
    assert api.calls == []


@pytest.mark.parametrize("name", ["run", "verify"])
def test_a_saved_plan_and_what_it_decides_exclude_each_other(
    api, command, file, tmp_path: Path, name
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(data_plan().to_json(), encoding="utf-8")
    done = command(name, file, "--plan", path, "--strategy", "data")
    assert done.code == 2
    assert "--plan and --strategy exclude each other" in done.err
    assert command(name, file, "--plan", path, "--devices", "2xcpu").code == 0
    done = command(name, file, "--plan", path, "--devices", "3xcpu")
    assert (done.code, done.out) == (2, "")
    assert "the plan was made for other devices" in done.err


def test_a_plan_is_bound_to_another_graph(api, command, file, tmp_path: Path) -> None:
    old, new = tmp_path / "plan.json", tmp_path / "new.json"
    old.write_text(data_plan().to_json(), encoding="utf-8")
    done = command("rebind", old, file, "--save", new)
    assert done.code == 0
    (row,) = [line for line in done.out.splitlines() if "rows of edge" in line]
    assert row.split() == ["rows", "of", "edge", "9,000", "18,000", "2.00", "x"]
    assert "it fits: 196 KiB of 1.00 GiB" in done.out
    document = json.loads(command("rebind", old, file, "--json").out)
    assert document["plan"]["rebound"] is True
    assert {"name": "rows of edge", "first": 9000, "second": 18000}.items() <= document["changes"][
        0
    ].items()
    assert PlanData.from_json(new.read_text(encoding="utf-8")).rebound

    done = command("run", file, "--plan", old, "--rebind", "--epochs", "1")
    assert done.code == 0
    assert "rows of edge" in done.err
    done = command("run", file, "--rebind")
    assert (done.code, done.out) == (2, "")
    assert "--rebind is for a saved plan" in done.err


def test_run_says_on_stderr_what_it_chose(api, command, file) -> None:
    done = command("run", file, "--epochs", "1")
    assert "single on 1 of 2 devices (2xcpu)" in done.err
    assert "chosen for the least predicted step time" in done.err


def test_a_name_without_data_is_bad_input(api, command) -> None:
    done = command("demo", "--name", "CiteSeer")
    assert (done.code, done.out) == (2, "")
    assert "--name CiteSeer names a graph of --data" in done.err


def test_version(command) -> None:
    done = command("--version")
    assert (done.code, done.err) == (0, "")
    assert done.out.split()[0] == "autoplan"
    assert without_torch("--version").returncode == 0


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("2xgaudi2", "gaudi2:0"),
        ("2xabacus", "there is no device 'abacus'"),
        ("cpu:2", "write '2xcpu'"),
        ("", "no devices given"),
    ],
)
@pytest.mark.parametrize("name", ["run", "demo"])
def test_what_cannot_run_here_is_refused_before_planning(
    api, command, file, name: str, devices: str, message: str
) -> None:
    done = command(name, *([file] if name == "run" else []), "--devices", devices)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "planning" not in done.err.replace("planning only", "")
    assert api.calls == []


def test_ctrl_c_is_one_line_and_exit_code_130(api, command, tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text("def build():\n    raise KeyboardInterrupt\n", encoding="utf-8")
    done = command("plan", f"{path}:build")
    assert (done.code, done.out, done.err) == (130, "", "autoplan: interrupted\n")


def test_a_batch_size_reaches_the_plan(api, command, file) -> None:
    assert command("plan", file, "--batch-size", "32").code == 0
    assert command("run", file, "--batch-size", "8", "--epochs", "1").code == 0
    assert [call["batch_size"] for call in api.calls if "batch_size" in call] == [32, 8]


def test_a_saved_plan_has_its_batch_size(api, command, file, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    command("plan", file, "--save", path)
    done = command("run", file, "--plan", path, "--batch-size", "8")
    assert done.code == 2
    assert "--plan and --batch-size exclude each other" in done.err


def test_sizes_of_a_public_graph_take_the_place_of_the_functions_own(command, api, file) -> None:
    from autoplan.graphspec import GraphSpec

    assert command("plan", file, "--graph-spec", "reddit").code == 0
    assert api.calls[-1]["graph"] == GraphSpec.named("Reddit")
    done = command("plan", file, "--graph-spec", "rabbit")
    assert (done.code, done.out) == (2, "")
    assert "ogbn-arxiv" in done.err
