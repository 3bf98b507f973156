"""What a check measures and requires."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class Report:
    """Collects a check's measurements, printing each as it comes. Requirements that fail do not end the check."""

    measured: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def measure(self, line: str) -> None:
        """Records and prints something that was measured."""
        self.measured.append(line)
        print(f"    {line}", flush=True)

    def require(self, holds: bool, what: str) -> None:
        """Records ``what`` as a measurement when it holds and as a failure when it does not."""
        if holds:
            self.measure(what)
        else:
            self.failures.append(what)
            print(f"    NOT: {what}", flush=True)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of an issue's must-show list: an identifier, that line, how long it may take, and what measures it."""

    name: str
    title: str
    minutes: float
    function: Callable[[Report], None]


def run(
    report: Report,
    command: Sequence[str],
    *,
    directory: Path = ROOT,
    environment: dict[str, str] | None = None,
) -> tuple[str, str, float]:
    """Runs a command. Returns its stdout, its stderr and seconds; a failure is required away, with its last lines."""
    # Without what `make accept` tells a make below it.
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    started = time.perf_counter()
    done = subprocess.run(
        list(command),
        cwd=directory,
        env={**inherited, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        tail = "\n".join([*done.stdout.splitlines()[-15:], *done.stderr.splitlines()[-15:]])
        report.require(False, f"`{' '.join(command)}` exits with {done.returncode}\n{tail}")
    return done.stdout, done.stderr, seconds


def run_tests(report: Report, *selection: str) -> None:
    """Runs the project's own tests that back a line, and records pytest's closing line. Skipped tests are a failure."""
    # with what the suite leaves out
    command = (sys.executable, "-m", "pytest", "-rs", "-m", "", *selection)
    out, _, _ = run(report, command)
    lines = out.strip().splitlines()
    closing = lines[-1] if lines else "pytest printed nothing"
    report.measure(f"pytest {' '.join(selection)}: {closing}")
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    report.require(not skipped, f"none of them is skipped {' '.join(skipped)}".strip())
