"""Launches from other processes: what they print, how they end. Starting processes is slow, so each test shows several things."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from autoplan.execute import launch
from autoplan.execute.worker import FailureRecord

ROOT = Path(__file__).parents[2]

# no guard around the launch, as in a notebook; two at once, from threads; the caller's own state is unchanged
TWO_AT_ONCE = """
import os, signal, threading
from autoplan.execute.train import run_training
from tests.execute.jobs import make

environment, handler = dict(os.environ), signal.getsignal(signal.SIGINT)
results = []
def run(seed):
    made = make(2, seed=seed)
    results.append(run_training(made.job, made.parts, workers=2, progress=True))
threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results[0].losses == results[1].losses and len(results[0].losses) == 6
assert results[0].ranks[0].threads == max(1, len(os.sched_getaffinity(0)) // 2)
changed = {name for name in environment.keys() | os.environ.keys() if environment.get(name) != os.environ.get(name)}
assert changed <= {"TORCHELASTIC_SIGNALS_TO_HANDLE", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK"}, changed
assert signal.getsignal(signal.SIGINT) is handler
"""

ENDLESS = """
from autoplan.execute.train import run_training
from tests.execute.jobs import make
made = make(2, epochs=10**9, extra="context.step == 5 and open({mark!r} + str(context.communicator.rank), 'w').write(str(__import__('os').getpid()))")
try:
    run_training(made.job, made.parts, workers=2)
except KeyboardInterrupt:
    raise SystemExit(77)
"""


def start(code: str, temporary: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(what: str, done: object, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < limit, f"still not: {what}"
        time.sleep(0.1)


def alive(process: int) -> bool:
    """Whether it runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_two_launches_at_once_from_threads_print_nothing(tmp_path: Path) -> None:
    process = start(TWO_AT_ONCE, tmp_path)
    printed, complained = process.communicate(timeout=120)
    assert process.returncode == 0, complained
    assert (printed, complained) == ("", "")
    assert not list(tmp_path.glob("autoplan-*"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 77), (signal.SIGKILL, -9)])
def test_workers_end_with_the_process_that_started_them(
    tmp_path: Path, number: int, code: int
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = start(ENDLESS.format(mark=str(tmp_path / "worker")), temporary)
    marks = [tmp_path / "worker0", tmp_path / "worker1"]
    wait_until("two workers train", lambda: all(m.exists() and m.read_text() for m in marks))
    workers = [int(mark.read_text()) for mark in marks]
    assert all(alive(worker) for worker in workers)

    process.send_signal(number)
    printed, complained = process.communicate(timeout=30)
    assert process.returncode == code, complained
    assert (printed, complained) == ("", "")
    wait_until("workers ended", lambda: not any(alive(worker) for worker in workers), seconds=15)
    assert not list(temporary.glob("autoplan-*"))


def raised(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> ProcessFailure:
    """A worker's failure with an exception of its own, recorded now."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        FailureRecord().record_exception(error)
    return ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(path))


def ended(code: int) -> ProcessFailure:
    return ProcessFailure(local_rank=0, pid=1, exitcode=code, error_file="none")


def test_the_exception_that_came_first_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = raised(tmp_path / "1", "the cause", monkeypatch)
    follows = raised(tmp_path / "2", "connection closed by peer", monkeypatch)
    failures = {0: follows, 1: ended(-signal.SIGTERM), 2: cause}
    error = launch._explain(ChildFailedError("worker", failures), tmp_path, 3)
    assert error.rank == 2
    assert "RuntimeError: the cause" in str(error)
    assert json.loads((tmp_path / "1").read_text())["message"]["extraInfo"]["py_callstack"]


def test_a_death_without_exception_comes_before_the_exceptions_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "output-1").write_text("Fatal Python error: Segmentation fault")
    follows = raised(tmp_path / "0", "connection closed by peer", monkeypatch)
    failures = {0: follows, 1: ended(-signal.SIGSEGV)}
    error = launch._explain(ChildFailedError("worker", failures), tmp_path, 2)
    assert error.rank == 1
    assert str(error).startswith("worker 1 of 2 (rank 1) was ended by SIGSEGV")
    assert "Fatal Python error: Segmentation fault" in error.worker_traceback


def test_cores_are_shared_out() -> None:
    assert launch.threads_per_worker(1) >= launch.threads_per_worker(2) >= 1
    assert launch.threads_per_worker(10_000) == 1


def test_a_signal_that_would_end_the_process_still_does() -> None:
    with pytest.raises(SystemExit) as ended_by:
        launch._deliver(signal.SIGTERM)
    assert ended_by.value.code == 143
    with pytest.raises(KeyboardInterrupt):
        launch._deliver(signal.SIGINT)
