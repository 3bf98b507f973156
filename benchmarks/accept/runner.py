"""Runs an issue's checks one by one, each in a process of its own, and stores what they gave."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accept.report import ROOT, Check, Report
from benchmarks.accept.store import CHANGED, Result, Store, commit


def checks_of(issue: int) -> Sequence[Check]:
    """The checks in ``benchmarks/accept/issue_N.py``. Raises LookupError for an issue without any."""
    module = f"benchmarks.accept.issue_{issue}"
    if importlib.util.find_spec(module) is None:
        raise LookupError(f"there are no checks for issue {issue} in benchmarks/accept")
    checks: Sequence[Check] = importlib.import_module(module).CHECKS
    return checks


def accept(issue: int, store: Store, *, only: Sequence[str] = (), again: bool = False) -> bool:
    """Runs the checks that have not passed on this commit. Returns whether all have passed by the end."""
    at = commit(ROOT)
    checks = [check for check in checks_of(issue) if not only or check.name in only]
    print(f"issue {issue} at {at}: {len(checks)} checks, at most {_minutes(checks):.0f} min")
    results: list[Result] = []
    for check in checks:
        stored = store.read(at, issue, check.name)
        if stored is not None and stored.passed and not again and not at.endswith(CHANGED):
            print(f"{check.name}: passed before ({stored.seconds:.0f} s)")
            results.append(stored)
            continue
        print(f"{check.name}: {check.title}", flush=True)
        result = _in_own_process(issue, check)
        store.write(at, result)
        results.append(result)
        print(f"  {'passed' if result.passed else 'FAILED'} ({result.seconds:.0f} s)", flush=True)
    failed = [result.check for result in results if not result.passed]
    print(
        f"{len(results) - len(failed)} of {len(results)} passed"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return not failed


def _minutes(checks: Sequence[Check]) -> float:
    return sum(check.minutes for check in checks)


def _in_own_process(issue: int, check: Check) -> Result:
    """Starts `run_check` in a fresh interpreter; ends its whole process group when its time is up."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="autoplan-accept-") as directory:
        outcome = Path(directory) / "outcome.json"
        arguments = ["--issue", str(issue), "--run", check.name, "--outcome", str(outcome)]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.accept", *arguments],
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=60 * check.minutes)
            ended = f"the check's process ended with {process.returncode} before it could report"
        except subprocess.TimeoutExpired:
            ended = f"it takes more than {check.minutes:g} min"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if outcome.is_file():
            report = Report(**json.loads(outcome.read_text(encoding="utf-8")))
        else:
            report = Report(failures=[ended])
    return Result(
        issue=issue,
        check=check.name,
        title=check.title,
        passed=not report.failures,
        seconds=round(time.perf_counter() - started, 1),
        measured=report.measured,
        failures=report.failures,
    )


def run_check(issue: int, name: str, outcome: Path) -> None:
    """Runs one check in this process and writes its report."""
    (check,) = [check for check in checks_of(issue) if check.name == name]
    report = Report()
    try:
        check.function(report)
    except Exception:
        report.require(False, traceback.format_exc().strip())
    content = {"measured": report.measured, "failures": report.failures}
    outcome.write_text(json.dumps(content), encoding="utf-8")


def show_stored(store: Store) -> None:
    """Every commit's results, the latest last."""
    empty = True
    for at, results in store.commits():
        empty = False
        print(at)
        for result in results:
            verdict = "passed" if result.passed else "FAILED"
            print(f"  issue {result.issue}  {result.check}: {verdict} ({result.seconds:.0f} s)")
            for line in [*result.measured, *(f"NOT: {failure}" for failure in result.failures)]:
                print(f"    {line.splitlines()[0]}")
    if empty:
        print("no results are stored; `make accept ISSUE=3` makes some")
