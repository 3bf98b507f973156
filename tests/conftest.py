"""Shared by all tests: one thread per process, fixed seeds, and where data lies."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

# Before torch is imported anywhere: the suite runs on two processes, and tests start workers of their own.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests first, so that no process is left with them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Seeds Python, NumPy and, where a test's module has imported it, torch."""
    random.seed(0)
    np.random.seed(0)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(0)
        torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or writes the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Where the shared data lies: AUTOPLAN_DATA, or ../shared/data beside the checkout. Skips where it is absent."""
    path = Path(os.environ.get("AUTOPLAN_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no data in {path}; set AUTOPLAN_DATA")
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the rows that tests recorded under ``table``, under the name of their file."""
    rows: dict[str, list[str]] = {}
    for report in terminalreporter.getreports(""):
        for key, row in getattr(report, "user_properties", ()):
            if key == "table" and report.when == "call":
                rows.setdefault(report.nodeid.split("::")[0], []).append(str(row))
    for path, lines in rows.items():
        terminalreporter.section(path)
        for line in sorted(lines):
            terminalreporter.write_line(line)
