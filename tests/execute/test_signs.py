"""Workers that a signal ends or holds: the run fails soon and names that worker, not those that noticed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from autoplan.errors import ExecutionError
from autoplan.execute import signs
from autoplan.execute.train import run_training
from tests.execute.jobs import make

# in step 3 rank 1 of three gets a signal; until then and afterwards all exchange rows in every step
SIGNALLED = (
    "context.step == 3 and context.communicator.rank == 1 and "
    "__import__('os').kill(__import__('os').getpid(), {number})"
)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, "was ended by SIGTERM"),
        (signal.SIGSTOP, r"was held by a signal \(SIGSTOP\)"),
    ],
)
def test_the_worker_that_got_the_signal_is_named(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signs, "STOPPED_SECONDS", 2.0)
    made = make(3, epochs=10**6, extra=SIGNALLED.format(number=int(number)))
    with pytest.raises(ExecutionError, match=rf"worker 1 of 3 \(rank 1\) {said}") as failed:
        run_training(made.job, made.parts, workers=3)
    assert failed.value.rank == 1
    assert "printed" not in str(failed.value)


def test_an_exception_of_the_callers_own_signal_handler_passes(tmp_path: Path) -> None:
    """Such as a test's time limit, while workers run: it does not become an error of theirs."""

    class TooLong(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise TooLong

    began = tmp_path / "began"
    made = make(2, epochs=10**9, extra=f"open({str(began)!r}, 'w').close()")
    before = signal.signal(signal.SIGALRM, ring)

    def ring_once_begun() -> None:
        while not began.exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGALRM)

    thread = threading.Thread(target=ring_once_begun, daemon=True)
    thread.start()
    try:
        with pytest.raises(TooLong):
            run_training(made.job, made.parts, workers=2)
    finally:
        signal.signal(signal.SIGALRM, before)
    thread.join()
