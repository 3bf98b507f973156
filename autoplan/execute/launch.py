"""Starts the workers of a job on this machine with torch's elastic launcher, and tells why they failed if they did.

Nothing of the caller's process is changed for longer than the launch: no environment variables (two launches at once
may need different ones), signal handlers are put back, the launcher's logs are kept off the terminal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from autoplan.errors import ExecutionError
from autoplan.execute import signs
from autoplan.trace.copies import python_generators_kept

_START_FILE = "start.py"
_OUTPUT_FILE = "output-"
_START = """\
# Starts one worker. Written by autoplan.execute.launch.
import os, sys
# not the launcher's redirection: it leaves the files open in the parent
output = os.open({output!r} + os.environ["RANK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(output, 1)
os.dup2(output, 2)
sys.path[:] = {path!r}
os.environ.setdefault("GLOO_SOCKET_IFNAME", {interface!r})
os.environ["OMP_NUM_THREADS"] = "{threads}"
# torch's notes on how it measures would stand in the report of a worker that fails
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
from autoplan.execute.signs import announce
announce({directory!r}, int(os.environ["RANK"]))
from autoplan.execute.worker import main
main({directory!r}, parent={parent})
"""
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_LINES = 30


def launch(directory: Path, workers: int) -> None:
    """Runs ``workers`` processes of `autoplan.execute.worker` on a job directory, until all are done.

    When one fails, all are ended. Works from any thread; Ctrl-C in the main thread ends the workers.

    Args:
        directory: of the job, written by `autoplan.execute.job`; start file and logs are added to it.
        workers: number of processes.

    Raises:
        ExecutionError: a worker failed, with the rank and traceback of the first one; or they could not be started.
    """
    start = directory / _START_FILE
    start.write_text(_start_text(directory, threads_per_worker(workers)), encoding="utf-8")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        # port 0: the store takes a free one, so launches cannot meet
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        rdzv_configs={"is_host": True},
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(directory / "errors")),
    )
    try:
        with (
            _signals_put_back(),
            _launcher_logs_hidden(),
            # the launcher waits for random times
            python_generators_kept(),
            signs.ending_the_stopped(directory, signs.STOPPED_SECONDS) as stopped,
        ):
            elastic_launch(config, sys.executable)(str(start))
    except ChildFailedError as error:
        raise _explain(error, directory, workers, stopped) from None
    except SignalException as error:
        _deliver(signal.Signals(error.sigval))
    # torch's launcher has no error class of its own for a meeting that fails: RuntimeError, ValueError, OSError and others
    except Exception as error:
        if signs.processes(directory):
            # not the launcher's: raised by a handler of the caller's, such as an alarm's
            raise
        raise ExecutionError(
            f"{workers} workers could not be started on this machine: {type(error).__name__}: {error}; "
            "they meet on 127.0.0.1, so check that loopback connections are allowed"
        ) from error


def threads_per_worker(workers: int) -> int:
    """Cores that this process may use, shared out; at least one."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, cores // workers)


def _start_text(directory: Path, threads: int) -> str:
    """The start file: workers find modules exactly where this process finds them."""
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return _START.format(
        output=str(directory.absolute() / _OUTPUT_FILE),
        path=path,
        interface=loopback,
        threads=threads,
        directory=str(directory.absolute()),
        parent=os.getpid(),
    )


@contextlib.contextmanager
def _signals_put_back() -> Iterator[None]:
    """The launcher installs signal handlers (in the main thread) and leaves them behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _deliver(number: signal.Signals) -> None:
    """Does what the signal would have done to this process, after the workers have ended.

    Raises:
        KeyboardInterrupt: for Ctrl-C.
        SystemExit: for a signal whose default would end the process without cleaning up.
    """
    if callable(signal.getsignal(number)):
        signal.raise_signal(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


_hidden_lock = threading.Lock()
_hidden_launches = 0


@contextlib.contextmanager
def _launcher_logs_hidden() -> Iterator[None]:
    """Keeps the launcher's log records from the terminal; launches of several threads may overlap."""
    global _hidden_launches
    logger = logging.getLogger("torch.distributed.elastic")
    with _hidden_lock:
        _hidden_launches += 1
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    try:
        yield
    finally:
        with _hidden_lock:
            _hidden_launches -= 1
            if _hidden_launches == 0:
                logger.propagate = True


def _explain(
    error: ChildFailedError, directory: Path, workers: int, stopped: Collection[int] = ()
) -> ExecutionError:
    """Says which rank failed first and why; the others only lost their connection to it or were ended.

    Args:
        error: the launcher's.
        directory: of the job.
        workers: number of processes.
        stopped: ranks that were ended because a signal held them.
    """
    ended = {rank: signs.how_ended(directory, rank) for rank in error.failures}
    rank, failure = min(error.failures.items(), key=lambda item: _order_of(item[1], ended[item[0]]))
    by = ended[rank]
    who = f"worker {rank} of {workers} (rank {rank})"
    recorded = _recorded(failure)
    if recorded:
        traceback = recorded["extraInfo"]["py_callstack"]
        return ExecutionError(
            f"{who} failed: {recorded['message']}\n\nIts traceback:\n{traceback}",
            rank=rank,
            worker_traceback=traceback,
        )
    printed = _last_lines(directory / f"{_OUTPUT_FILE}{rank}")
    if rank in stopped:
        what = (
            f"{who} was held by a signal (SIGSTOP) for {signs.STOPPED_SECONDS:.0f} s while the others waited for it, "
            "and was ended; to pause a run, stop the process that started it, too"
        )
    elif by is not None:
        what = f"{who} was ended by {signal.Signals(by.number).name}"
    elif failure.exitcode == -signal.SIGKILL:
        what = (
            f"{who} was killed (SIGKILL). The system does this when memory runs out: compare the plan's "
            "predicted.peak_bytes with the memory that is free, use more workers, or plan with objective='memory'"
        )
    elif failure.exitcode < 0:
        what = f"{who} was ended by {failure.signal_name()}"
    else:
        what = f"{who} ended with exit code {failure.exitcode} and no Python exception"
    if printed:
        what += f"\n\nThe last that it printed:\n{printed}"
    return ExecutionError(what, rank=rank, worker_traceback=printed)


def _recorded(failure: ProcessFailure) -> Mapping[str, Any]:
    """What `worker.FailureRecord` wrote; empty where the worker had no chance to."""
    message = failure.error_file_data.get("message")
    return message if isinstance(message, dict) else {}


def _order_of(failure: ProcessFailure, ended: signs.Ended | None) -> tuple[int, int]:
    """Sorts failures by when they happened.

    A worker that died without a trace comes first: the others' exceptions ("connection closed by peer") follow from it. Those
    that were ended before they could leave a trace of it (SIGTERM, the launcher's as a rule) come last.
    """
    recorded = _recorded(failure)
    if recorded:
        return 1, int(recorded["extraInfo"]["time_ns"])
    if ended is not None:
        return 1, ended.time_ns
    return (2 if failure.exitcode == -signal.SIGTERM else 0), 0


def _last_lines(path: Path) -> str:
    """The end of what a worker wrote to stdout and stderr."""
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_OUTPUT_LINES:])
