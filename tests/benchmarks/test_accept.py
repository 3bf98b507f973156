from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.accept import runner
from benchmarks.accept.report import Check, Report, run
from benchmarks.accept.store import Result, Store


def result(check: str, passed: bool = True, issue: int = 99) -> Result:
    return Result(issue, check, "a title", passed, 1.5, ["3 of 3"], [] if passed else ["not 3"])


def test_results_are_stored_by_commit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert list(store.commits()) == []
    store.write("abc", result("one"))
    store.write("abc", result("one", passed=False))
    store.write("def", result("two"))
    assert store.read("abc", 99, "one") == result("one", passed=False)
    assert store.read("abc", 99, "two") is None
    assert dict(store.commits()) == {
        "abc": [result("one", passed=False)],
        "def": [result("two")],
    }


@pytest.fixture
def issue(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An issue 99 with two checks, run in this process; the names of those that ran."""
    ran: list[str] = []
    module = ModuleType("benchmarks.accept.issue_99")
    checks = tuple(Check(name, f"the line {name}", 1, lambda _: None) for name in ("good", "bad"))
    module.__dict__["CHECKS"] = checks

    def in_this_process(number: int, check: Check) -> Result:
        ran.append(check.name)
        return result(check.name, passed=check.name == "good")

    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(runner, "checks_of", lambda number: checks)
    monkeypatch.setattr(runner, "_in_own_process", in_this_process)
    monkeypatch.setattr(runner, "commit", lambda root: "abc")
    return ran


def test_a_check_that_passed_on_this_commit_is_not_run_again(issue, tmp_path, capsys) -> None:
    store = Store(tmp_path)
    assert not runner.accept(99, store)
    assert issue == ["good", "bad"]
    assert not runner.accept(99, store)
    assert issue == ["good", "bad", "bad"]
    assert "good: passed before" in capsys.readouterr().out
    assert not runner.accept(99, store, again=True)
    assert issue == ["good", "bad", "bad", "good", "bad"]
    assert runner.accept(99, store, only=["good"])


def test_a_changed_tree_always_runs(issue, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "commit", lambda root: "abc-changed")
    store = Store(tmp_path)
    assert runner.accept(99, store, only=["good"])
    assert runner.accept(99, store, only=["good"])
    assert issue == ["good", "good"]


def test_stored_results_are_listed_with_what_was_measured(issue, tmp_path, capsys) -> None:
    store = Store(tmp_path)
    runner.show_stored(store)
    assert "no results are stored" in capsys.readouterr().out
    runner.accept(99, store)
    capsys.readouterr()
    runner.show_stored(store)
    assert capsys.readouterr().out.splitlines() == [
        "abc",
        "  issue 99  bad: FAILED (2 s)",
        "    3 of 3",
        "    NOT: not 3",
        "  issue 99  good: passed (2 s)",
        "    3 of 3",
    ]


def test_a_check_that_raises_or_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(report: Report) -> None:
        raise AssertionError("never called: the process below is what runs")

    check = Check("no-such-check", "a title", 1, slow)
    failed = runner._in_own_process(2, check)
    assert not failed.passed
    assert "ended with 1 before it could report" in failed.failures[0]
    failed = runner._in_own_process(2, Check("imports", "a title", 1e-5, slow))
    assert failed.failures == ["it takes more than 1e-05 min"]


def test_an_issue_without_checks_is_said(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no checks for issue 12345"):
        runner.accept(12345, Store(tmp_path))


def test_a_command_that_fails_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    run(report, [sys.executable, "-c", "print('its last words'); raise SystemExit(3)"])
    assert "exits with 3\nits last words" in report.failures[0]


def test_issue_2_has_a_check_for_each_line() -> None:
    checks = runner.checks_of(2)
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    assert sum(check.minutes for check in checks) <= 60
