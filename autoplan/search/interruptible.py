"""A solver that Ctrl-C can stop: C++ that runs for minutes would keep the signal waiting."""

from __future__ import annotations

import threading
from typing import Any

_CANCEL_SECONDS = 3.0
"""How long a cancelled solver is waited for; it looks up between nodes and rounds of cuts."""


def run_interruptible(highs: Any) -> None:
    """Runs a HiGHS model; the answer does not depend on how. Ctrl-C cancels the solver and is raised.

    Args:
        highs: a `highspy.Highs` with a mixed-integer programme.

    Raises:
        KeyboardInterrupt: in the main thread, the only one that signals reach.
    """
    if threading.current_thread() is not threading.main_thread():
        highs.run()
        return
    cancelled = threading.Event()

    def look_up(event: Any) -> None:
        if cancelled.is_set():
            event.interrupt()

    highs.cbMipInterrupt.subscribe(look_up)
    failures: list[BaseException] = []
    # not Thread.join: interrupted, it takes the thread for ended (CPython's bpo-45274)
    done = threading.Event()

    def solve() -> None:
        try:
            highs.run()
        except BaseException as failure:
            failures.append(failure)
        finally:
            done.set()

    threading.Thread(target=solve, name="autoplan-solver", daemon=True).start()
    try:
        done.wait()
    except KeyboardInterrupt:
        cancelled.set()
        done.wait(_CANCEL_SECONDS)
        raise
    highs.cbMipInterrupt.unsubscribe(look_up)
    if failures:
        raise failures[0]
