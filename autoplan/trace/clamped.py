"""Slices and splits that are longer than what they cut: PyTorch shortens them without a word (torch).

``out[:140]`` of a sample of 84 nodes is all of them, of the graph it is not. Recorded from samples that are all shorter, it
would count the graph's nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from autoplan.program.aten import bound_arguments
from autoplan.program.torch_internals import SLICE, SPLIT, TorchDispatchMode


def limit_of(function: Callable[..., Any], given: Mapping[str, Any]) -> int | None:
    """The number of rows from which on a call cuts its tensor; None where it is no slice or split, or has no constant limit.

    Args:
        function: the ATen op.
        given: its arguments by name; a number that follows from sizes is no int.
    """
    if function is SPLIT:
        size = given["split_size"]
        return size if type(size) is int else None
    if function is not SLICE:
        return None
    start, end = given.get("start"), given.get("end")
    if type(start) is int and start < 0:
        return -start
    if type(end) is int and 0 < end < sys.maxsize:
        return end
    return None


class CutShort(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices slices and splits that are longer than their tensor while a step runs.

    Attributes:
        found: whether there was one.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in (SLICE, SPLIT):
            given = bound_arguments(func, args, kwargs or {})
            limit = limit_of(func, given)
            if limit is not None and given["self"].size(given["dim"]) < limit:
                self.found = True
        return func(*args, **(kwargs or {}))
