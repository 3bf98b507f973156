"""Results of checks, by commit, as JSON files under .accept/."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CHANGED = "-changed"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one check at one commit."""

    issue: int
    check: str
    title: str
    passed: bool
    seconds: float
    measured: list[str]
    failures: list[str]


def commit(root: Path) -> str:
    """The checked-out commit; with ``-changed`` behind it when tracked or new files differ from it."""
    head = _git(root, "rev-parse", "--short=12", "HEAD").strip()
    return head + CHANGED if _git(root, "status", "--porcelain").strip() else head


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


class Store:
    """Reads and writes results under one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _path(self, at: str, issue: int, check: str) -> Path:
        return self.directory / at / f"issue-{issue}" / f"{check}.json"

    def write(self, at: str, result: Result) -> None:
        """Stores a result of commit ``at``, replacing an earlier one of the same check."""
        path = self._path(at, result.issue, result.check)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n"
        # Whole or not at all: a run may be interrupted and resumed.
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)

    def read(self, at: str, issue: int, check: str) -> Result | None:
        """The stored result, or None."""
        path = self._path(at, issue, check)
        return _load(path) if path.is_file() else None

    def commits(self) -> Iterator[tuple[str, list[Result]]]:
        """Every commit with results, the one with the latest result last."""
        if not self.directory.is_dir():
            return
        found = {
            directory.name: sorted(directory.glob("issue-*/*.json"))
            for directory in self.directory.iterdir()
            if directory.is_dir()
        }
        latest = sorted(
            (name for name, paths in found.items() if paths),
            key=lambda name: max(path.stat().st_mtime_ns for path in found[name]),
        )
        for name in latest:
            yield name, [_load(path) for path in found[name]]


def _load(path: Path) -> Result:
    return Result(**json.loads(path.read_text(encoding="utf-8")))
