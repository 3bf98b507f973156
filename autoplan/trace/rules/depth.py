"""How deep calls are: reductions as trees, rows that go to one position one tree each (see `symbolic.Depth`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from autoplan.opgraph import Axis, Depth, IndexInto, Polynomial, TensorMeta
from autoplan.symbolic import Log, most
from autoplan.trace.rules.axes import Dim, Dims
from autoplan.trace.rules.call import Call, product

ONE = Depth(1.0)
"""An operation for each element, all at once."""


def ratio(large: Polynomial, small: Polynomial) -> Depth:
    """A reduction of ``large`` entries to ``small``: a tree over as many as go into one."""
    if large == small or not small.terms:
        return ONE
    if len(large.terms) == len(small.terms) == 1:
        (many, symbols), (few, kept) = large.terms[0], small.terms[0]
        left = Counter(symbols)
        left.subtract(kept)
        if min(left.values(), default=0) >= 0:
            return Depth.over(Polynomial.of(many / few, *left.elements()))
    return Depth(1.0, (Log(1.0, large), Log(-1.0, small)))


def deepest(call: Call, found: Sequence[Polynomial]) -> Depth:
    """A tree over the longest of these, which is the longest on the first sample."""
    first = {name: float(rows[0]) for name, rows in call.axes.rows.items()}
    return Depth.over(max(found, key=lambda rows: rows.evaluate(first))) if found else ONE


def broadcast_back(dims: Dims, wanted: Sequence[TensorMeta]) -> dict[str, Polynomial]:
    """By input, over how many entries of an elementwise result its gradient is added up: those along which it was repeated."""
    repeated: dict[str, Polynomial] = {}
    for tensor in wanted:
        own = ((1,) * len(dims) + tensor.dims)[len(tensor.dims) :]
        spread = [dim for dim, mine in zip(dims, own, strict=True) if dim != mine]
        repeated[tensor.name] = product(spread)
    return repeated


def towards(added: Mapping[str, Polynomial]) -> tuple[tuple[str, Depth], ...]:
    """`Work.towards` where each gradient is added up over so many entries; empty where all are alike."""
    if len(set(added.values())) < 2:
        return ()
    return tuple((name, Depth.over(entries)) for name, entries in added.items())


def colliding(call: Call, index: TensorMeta, at: int = 0) -> Depth:
    """Rows that go to one position, added as a tree: of edges the largest in-degree, of unknown positions all of them.

    Args:
        call: the call.
        index: the positions.
        at: the dimension of ``index`` that counts rows.
    """
    dim = index.dims[at] if index.dims else 1
    if isinstance(dim, int):
        return Depth.over(Polynomial.of(dim))
    return Depth.over(_most(call.axes.axes, dim, index.index))


def _most(axes: Mapping[str, Axis], name: str, index: IndexInto | None) -> Polynomial:
    """The most rows of an axis that have one position."""
    rows = Polynomial.of(1, name)
    if index is None or index.axis is None or len(set(index.ends)) > 1:
        return rows
    end, into, axis = index.ends[0], index.axis, axes[name]
    if axis.kind == "select":
        return _most(axes, axis.parts[0], index)
    if axis.kind == "concat":
        total = Polynomial()
        for part in axis.parts:
            total = total + _most(axes, part, index)
        return total
    if axis.kind not in ("base", "index"):
        return rows
    if axis.role == "edge":
        return Polynomial.of(1, most(name, end, into)) if end in ("src", "dst") else rows
    # a list of nodes has each of them once; of nodes that name their graph many may name one
    return (
        Polynomial.of(1)
        if axes[into].role == axis.role
        else Polynomial.of(1, most(name, end, into))
    )


def over(dims: Sequence[Dim], *, power: int = 1) -> Depth:
    """A tree over all entries of these dimensions (or a sort of them: ``power`` 2)."""
    return Depth.over(product(dims), power=power)
