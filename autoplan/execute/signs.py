"""Signs of life of workers: who was stopped, and who was ended by a signal before anything else failed.

A worker imports this before torch, so it needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

STOPPED_SECONDS = 10.0
_POLL_SECONDS = 0.5
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PROCESS_FILE = "process-"
_ENDED_FILE = "ended-"


def announce(directory: str, rank: int) -> None:
    """In a worker: says which process is this rank, and from now on which signal ends it and when.

    The signal still ends the process at once, whatever its threads are doing; must be called by the main thread.
    """
    write_whole(Path(directory, f"{_PROCESS_FILE}{rank}"), str(os.getpid()))
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Python writes the number there before any thread gets to run Python
    signal.set_wakeup_fd(writing)
    for number in _ENDING:
        signal.signal(number, _ignore)
    threading.Thread(
        target=_end_on_signal,
        args=(reading, Path(directory, f"{_ENDED_FILE}{rank}")),
        name="autoplan-signals",
        daemon=True,
    ).start()


@dataclass(frozen=True, slots=True)
class Ended:
    """That a signal ended a worker.

    Attributes:
        number: of the signal.
        time_ns: when it came, ns since the epoch: before any connection of the worker closed.
    """

    number: int
    time_ns: int


def how_ended(directory: Path, rank: int) -> Ended | None:
    """The signal that ended this rank; None where none did since `announce`, or one that a process cannot notice."""
    path = directory / f"{_ENDED_FILE}{rank}"
    return Ended(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write_whole(path: Path, text: str) -> None:
    """Writes a file that others may read at any time: it is there with all of its text, or not yet."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def processes(directory: Path) -> dict[int, int]:
    """The process ids by rank, of workers that have begun."""
    found = {}
    for path in directory.glob(f"{_PROCESS_FILE}*"):
        found[int(path.name.removeprefix(_PROCESS_FILE))] = int(path.read_text(encoding="utf-8"))
    return found


@contextlib.contextmanager
def ending_the_stopped(directory: Path, seconds: float) -> Iterator[set[int]]:
    """While the context lasts, kills workers that have been stopped for so long; yields the ranks for which that was done.

    The others would wait for them in a collective for half an hour. Seconds in which this process is stopped, too, do not
    count. Where there is no /proc nothing is done.
    """
    killed: set[int] = set()
    over = threading.Event()

    def watch() -> None:
        polls: dict[int, int] = {}
        while not over.wait(_POLL_SECONDS):
            for rank, process in processes(directory).items():
                polls[rank] = polls.get(rank, 0) + 1 if _is_stopped(process) else 0
                if polls[rank] * _POLL_SECONDS >= seconds:
                    killed.add(rank)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)

    thread = threading.Thread(target=watch, name="autoplan-stopped", daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _is_stopped(process: int) -> bool:
    """Whether a signal (not a debugger) holds it."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    # the name in parentheses may hold spaces
    return status.rpartition(")")[2].split()[0] == "T"


def _ignore(number: int, frame: object) -> None:
    """The thread below ends the process; the main thread may be waiting for others."""


def _end_on_signal(reading: int, record: Path) -> None:
    """Waits for a signal that ends this process, writes down when it came, and lets it end the process."""
    while True:
        for number in os.read(reading, 64):
            if number in _ENDING:
                ended = Ended(number, time.time_ns())
                # the directory may be gone
                with contextlib.suppress(OSError):
                    write_whole(record, json.dumps(asdict(ended)))
                os._exit(128 + number)
