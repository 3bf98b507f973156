"""Traces in new processes are identical, whatever Python's hash seed: program text, dataflow graph, samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.trace.digests import STEPS

ROOT = Path(__file__).resolve().parents[2]


def test_the_hash_seed_does_not_matter() -> None:
    """`make accept` asks ten processes."""
    printed = []
    for seed in ("0", "77"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.trace.digests"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert [line.split()[0] for line in printed[0]] == [*STEPS]
    assert len({line.split()[1] for line in printed[0]}) == len(STEPS)
    assert printed[0] == printed[1]
