"""Ctrl-C: one line and exit code 130, whichever command it meets."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

from autoplan.cli.output import say

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the signal's number, as of shells."""

_Arguments = ParamSpec("_Arguments")


def leave_at_once(code: int) -> NoReturn:
    """Ends this process without taking torch down first, which takes seconds on a busy machine."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def interruptible(command: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """The command, ended by Ctrl-C without a traceback; workers have ended by then (see `autoplan.execute.launch`)."""

    @functools.wraps(command)
    def run(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("autoplan: interrupted")
            raise SystemExit(INTERRUPTED) from None

    return run
