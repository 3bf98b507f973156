"""Steps on command: the clock that a timed process runs under."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Holds a process between its steps.

    Code that runs steps calls `another` before each of them; it waits for a command there, and the time between two calls,
    without the wait, is a step's.
    """

    def __init__(self, wait: Callable[[], bool], report: Callable[[float], None]) -> None:
        """Args: wait: returns True when a step is wanted, False when there will be none any more; report: takes seconds."""
        self._wait = wait
        self._report = report
        self._started: float | None = None

    def another(self) -> bool:
        """Ends the step that runs, waits, and starts the next one; False: stop."""
        now = time.perf_counter()
        if self._started is not None:
            self._report(now - self._started)
        wanted = self._wait()
        self._started = time.perf_counter()
        return wanted


def probe() -> float:
    """Seconds of a fixed piece of work (products of matrices and a sum over a big array): how fast the machine is now."""
    import torch

    matrix = torch.full((1024, 1024), 1e-3)
    big = torch.ones(1 << 23)
    started = time.perf_counter()
    for _ in range(4):
        matrix = (matrix @ matrix).clamp(max=1)
        big.mul_(1.0).sum()
    return time.perf_counter() - started
