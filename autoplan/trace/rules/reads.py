"""Numbers that Python reads from tensors: the whole tensor is needed, and every rank reads the same."""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.registry import rule


@rule("read", "_local_scalar_dense", "equal", "is_nonzero")
def read(call: Call) -> Ruling:
    """``item()`` and the like."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    return Ruling(outputs, work.NOTHING, work.NOTHING)


@rule("read", "_assert_async", "_assert_scalar")
def checked(call: Call) -> Ruling:
    """Checks of content."""
    return Ruling((), work.NOTHING, work.NOTHING)
