"""Numbers that Python reads from tensors: the whole tensor is needed, and every rank reads the same.

One number is known without reading: the highest graph number in ``batch``. ``int(batch.max()) + 1`` counts graphs as a size
does, so as a shape it is the rank's own number of graphs, and as a value that of all.
"""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.registry import rule

_LAST, _NUMBER = "last of ", "number of "


def last_position(axis: str) -> str:
    """The identity (`trace.rules.call.Output`) of a tensor that holds the highest position along an axis."""
    return _LAST + axis


def counted_axis(identity: str | None) -> str | None:
    """The axis whose highest position a tensor of this identity holds."""
    known = identity is not None and identity.startswith(_LAST)
    return identity.removeprefix(_LAST) if known and identity is not None else None


def number_of(axis: str) -> str:
    """The identity of a tensor that holds the number of rows of an axis."""
    return _NUMBER + axis


def numbered_axis(identity: str | None) -> str | None:
    """The axis whose rows a tensor of this identity counts."""
    known = identity is not None and identity.startswith(_NUMBER)
    return identity.removeprefix(_NUMBER) if known and identity is not None else None


@rule("read", "_local_scalar_dense", "equal", "is_nonzero", "is_coalesced")
def read(call: Call) -> Ruling:
    """``item()`` and the like."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    return Ruling(outputs, work.NOTHING, work.NOTHING)


@rule("read", "_assert_async", "_assert_scalar")
def checked(call: Call) -> Ruling:
    """Checks of content."""
    return Ruling((), work.NOTHING, work.NOTHING)
