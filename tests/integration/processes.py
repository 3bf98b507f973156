"""Commands in processes of their own, and what those processes start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts ``python -m autoplan`` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "autoplan", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        start_new_session=True,
    )


def descendants(process: int) -> list[int]:
    """Processes that a process started, directly or not, and that run."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [process]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def runs(process: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(what: str, done: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit, f"still not: {what}"
        time.sleep(0.05)
