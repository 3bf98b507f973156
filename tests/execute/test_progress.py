from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from autoplan.execute.progress import (
    EpochReport,
    FileReporter,
    SilentReporter,
    follow,
    progress_bar,
)


class Collected:
    def __init__(self) -> None:
        self.reports: list[EpochReport] = []

    def wants(self, *, last: bool) -> bool:
        return True

    def report(self, report: EpochReport) -> None:
        self.reports.append(report)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_reach_the_parent_in_order_and_to_the_last(tmp_path: Path) -> None:
    path, collected = tmp_path / "progress.jsonl", Collected()
    writer = FileReporter(path)
    with follow(path, collected):
        writer.report(EpochReport(1, 0.5))
        time.sleep(0.3)
        assert [report.epoch for report in collected.reports] == [1]
        writer.report(EpochReport(2, 0.25, {"accuracy": 0.9}))
    assert collected.reports == [EpochReport(1, 0.5), EpochReport(2, 0.25, {"accuracy": 0.9})]


def test_a_run_that_never_reports_is_followed_too(tmp_path: Path) -> None:
    with follow(tmp_path / "progress.jsonl", Collected()):
        pass


def test_reports_are_few(tmp_path: Path) -> None:
    writer = FileReporter(tmp_path / "progress.jsonl")
    assert writer.wants(last=False)
    writer.report(EpochReport(1, 0.5))
    assert not writer.wants(last=False)
    assert writer.wants(last=True)


@pytest.mark.parametrize("shown", [True, False])
def test_nothing_is_drawn_where_nobody_looks(
    shown: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shown:
        monkeypatch.setattr("sys.stderr", Terminal())
    with progress_bar(3, shown=shown) as reporter:
        assert isinstance(reporter, SilentReporter)
        assert not reporter.wants(last=True)
    assert capsys.readouterr() == ("", "")


def test_the_bar_shows_epoch_loss_and_metrics(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar(30, shown=True) as reporter:
        reporter.report(EpochReport(12, 0.1234567, {"accuracy": 0.91}))
    drawn = terminal.getvalue()
    assert "12/30" in drawn
    assert "loss 0.1235" in drawn
    assert "accuracy 0.91" in drawn
    assert capsys.readouterr().out == ""
