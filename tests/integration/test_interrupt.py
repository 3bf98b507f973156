"""Ctrl-C, and two runs at once: real processes, which take seconds each."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from .processes import command, descendants, runs, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
]

FILE = """
import torch
from torch_geometric.nn.models import GCN
from tests.integration.graphs import awkward_graph

def shallow():
    torch.manual_seed(0)
    return GCN(8, 12, 2, 4), awkward_graph()

def deep():
    return GCN(8, 12, 80, 4), awkward_graph()
"""
SECONDS = 5
"""Everything has ended this long after Ctrl-C."""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "some_model.py"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_ends_training_and_its_workers(file: str, tmp_path: Path, whole_group: bool) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = command(
        *("run", f"{file}:shallow", "--strategy", "data", "--epochs", "1000000000", "--json"),
        TMPDIR=str(temporary),
    )

    def training() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        return any(temporary.glob("autoplan-*/progress*"))

    wait_until("two workers train", training, 120)
    workers = descendants(process.pid)
    assert len(workers) >= 2
    # a terminal signals the whole group; `kill` the parent alone
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    started = time.monotonic()
    printed, told = process.communicate(timeout=60)
    seconds = time.monotonic() - started

    assert (process.returncode, printed) == (130, "")
    assert told.splitlines()[-1] == "autoplan: interrupted"
    assert "Traceback" not in told
    assert seconds < SECONDS
    assert not [worker for worker in workers if runs(worker)]
    assert not list(temporary.glob("autoplan-*"))


def test_ctrl_c_ends_planning(file: str) -> None:
    process = command("plan", f"{file}:deep", "--strategy", "data", "--json")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("planning for")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    printed, told = process.communicate(timeout=60)
    assert (process.returncode, printed, told) == (130, "", "autoplan: interrupted\n")
    assert time.monotonic() - started < SECONDS


def test_two_planned_runs_at_once_finish(file: str) -> None:
    run = ("run", f"{file}:shallow", "--strategy", "data", "--epochs", "20", "--json")
    processes = [command(*run) for _ in range(2)]
    documents = []
    for process in processes:
        printed, told = process.communicate(timeout=180)
        assert process.returncode == 0, told
        documents.append(json.loads(printed))
    assert documents[0]["losses"] == documents[1]["losses"]
    assert len(documents[0]["losses"]) == 20
    assert documents[0]["strategy"] == "data"
