"""One process for each side of a case, and the machine's lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from benchmarks.steps.child import THREADS

ROOT = Path(__file__).resolve().parents[2]


class SideError(Exception):
    """A side cannot run its model; what it said."""


class SideMissingError(SideError):
    """A side has nothing for this model, and says why."""


class Side:
    """A process that runs one side's steps of a case, one on each call."""

    def __init__(self, name: str, model: str, graph: str) -> None:
        """Starts the process; `wait_ready` before the first step."""
        self.name = name
        threads = str(THREADS)
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.steps.child", name, model, graph],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """Returns when it is set up.

        Raises:
            SideMissingError: there is no such version of the model.
            SideError: it failed.
        """
        self._answer()

    def step(self) -> float:
        """Seconds of the next step. Raises SideError."""
        return self._command("step")

    def probe(self) -> float:
        """Seconds of the fixed piece of work. Raises SideError."""
        return self._command("probe")

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self._say("stop")
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def _command(self, command: str) -> float:
        self._say(command)
        return float(self._answer()["seconds"])

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise SideError(f"{self.name}: its process ended with {code}; out of memory?")
        content: dict[str, float] = json.loads(line)
        if "missing" in content:
            raise SideMissingError(str(content["missing"]))
        if "failed" in content:
            raise SideError(f"{self.name}: {content['failed']}")
        return content


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """Only one benchmark at a time on this machine; waits, and tells whom for on stderr."""
    path = Path(tempfile.gettempdir()) / "autoplan-benchmark.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            print(f"waiting for {file.read().strip()} ({path})", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}: {' '.join(sys.argv)}")
        file.flush()
        yield
        file.seek(0)
        file.truncate()


def others_computing() -> float:
    """The load average of the last minute, before this benchmark adds to it."""
    return os.getloadavg()[0]
