"""Places in the user's code: which frame asked for something, and the error that names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from autoplan.errors import TraceError
from autoplan.program.torch_internals import TORCH_DIRECTORY

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MACHINERY = frozenset(
    _HERE + name
    for name in (
        "places.py",
        "numbers.py",
        "shadows.py",
        "values.py",
        "tape.py",
        "recorder.py",
        "recording.py",
    )
)


class RefusalError(TraceError):
    """The step cannot be generalised; the message is the reason and names the place."""


def caller(skip: Callable[[str], bool]) -> FrameType:
    """The nearest frame that is neither the recorder's own nor of a file that ``skip`` holds for."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in _MACHINERY or skip(frame.f_code.co_filename):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame


def where() -> str:
    """The place in the user's code that is running: ``model.py:12 in forward``."""
    frame = caller(lambda file: file.startswith(TORCH_DIRECTORY))
    return f"{_file(frame)}:{frame.f_lineno} in {frame.f_code.co_name}"


def _file(frame: FrameType) -> str:
    """The frame's file; of a module that PyG has written, without the random letters that set it apart from other processes'."""
    file, module = os.path.basename(frame.f_code.co_filename), frame.f_globals.get("__name__", "")
    written = "." in module and file.startswith(f"{module}_")
    return f"{module}.py" if written else file


def refuse(what: str) -> NoReturn:
    """Raises `RefusalError` with the place that is running."""
    raise RefusalError(f"{where()}: {what}")
