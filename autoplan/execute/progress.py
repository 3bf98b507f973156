"""Progress of a training run: rank 0 writes lines to a file, the parent reads them and draws a bar on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What is known after an epoch.

    Attributes:
        epoch: epochs done, from 1.
        loss: the loss of that epoch's step.
        metrics: the last evaluation's values by name; empty before the first.
    """

    epoch: int
    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class Reporter(Protocol):
    """Takes reports of the running training."""

    def wants(self, *, last: bool) -> bool:
        """Whether a report would be used now: reading a loss off a device costs a wait."""

    def report(self, report: EpochReport) -> None:
        """Takes one."""


class SilentReporter:
    """Takes nothing."""

    def wants(self, *, last: bool) -> bool:
        return False

    def report(self, report: EpochReport) -> None:
        return


class FileReporter:
    """Appends one JSON line per report, at most one in `POLL_SECONDS` besides the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0

    def wants(self, *, last: bool) -> bool:
        return last or time.monotonic() >= self._next

    def report(self, report: EpochReport) -> None:
        self._next = time.monotonic() + POLL_SECONDS
        line = {"epoch": report.epoch, "loss": report.loss, "metrics": dict(report.metrics)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class BarReporter:
    """Draws epochs, loss and metrics with rich."""

    def __init__(self, bar: Progress, epochs: int) -> None:
        self._bar = bar
        self._task = bar.add_task("training", total=epochs, numbers="")
        self._next = 0.0

    def wants(self, *, last: bool) -> bool:
        return last or time.monotonic() >= self._next

    def report(self, report: EpochReport) -> None:
        self._next = time.monotonic() + POLL_SECONDS
        numbers = [f"loss {report.loss:.4g}"]
        numbers += [f"{name} {value:.4g}" for name, value in report.metrics.items()]
        self._bar.update(self._task, completed=report.epoch, numbers="  ".join(numbers))


@contextlib.contextmanager
def progress_bar(epochs: int, *, shown: bool) -> Iterator[Reporter]:
    """A reporter that draws on stderr while the context lasts; silent unless ``shown`` and stderr is a terminal."""
    # here and not above: workers, which only write lines, need not import rich
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    if not (shown and console.is_terminal):
        yield SilentReporter()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    # leaves the user's own stdout and stderr objects alone
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        yield BarReporter(bar, epochs)


@contextlib.contextmanager
def follow(path: Path, reporter: Reporter) -> Iterator[None]:
    """Hands the lines that a `FileReporter` appends to ``path`` to a reporter, from a thread, until the context ends."""
    if isinstance(reporter, SilentReporter):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_tail, args=(path, reporter, ended), name="autoplan-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tail(path: Path, reporter: Reporter, ended: threading.Event) -> None:
    """Reads whole lines as they come, and what is left once the run has ended."""
    while not path.exists():
        if ended.wait(POLL_SECONDS):
            return
    with path.open(encoding="utf-8") as file:
        partial = ""
        last = False
        while True:
            partial += file.read()
            *lines, partial = partial.split("\n")
            for line in lines:
                reporter.report(EpochReport(**json.loads(line)))
            if last:
                return
            last = ended.wait(POLL_SECONDS)
