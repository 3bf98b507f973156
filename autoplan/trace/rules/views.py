"""Views: the same elements under other dimensions. What matters is which dimension carries the axis, and provenance."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from autoplan.opgraph import IndexInto
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dim, Dims
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.placement import ROW_STATES, by_rows, linear
from autoplan.trace.rules.registry import rule
from autoplan.trace.rules.reshape import carried
from autoplan.trace.rules.shifts import parts_between


def seen_through(call: Call, dims: Dims, index: IndexInto | None, identity: str = "") -> Ruling:
    """A view whose rows stay rows."""
    source = call.inputs[0]
    if source.index is not None and index is None:
        return whole_only(call, dims)
    strategies = (*by_rows(call, dims), *linear(call, [source]))
    output = Output(dims, index, identity)
    return Ruling((output,), work.NOTHING, work.NOTHING, strategies, reads_positions=True)


def whole_only(call: Call, dims: Dims) -> Ruling:
    """A view that a shard cannot take. Positions in it are plain numbers from there on."""
    return Ruling((Output(dims),), work.NOTHING, work.NOTHING)


@rule("view", "detach", "alias", "view_as_real", "view_as_complex", "expand_as")
def same(call: Call) -> Ruling | None:
    """The same tensor."""
    source = call.inputs[0]
    if len(call.seen(0)) != len(source.dims):
        return None
    return seen_through(call, source.dims, source.index, call.identity(source))


@rule("view", "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten")
def reshaped(call: Call) -> Ruling | None:
    """A dimension is carried over where as many elements lie before it as before, in every sample."""
    source = call.inputs[0]
    if call.name == "aten.view.dtype":
        return None
    dims, kept = carried(call, source.dims)
    if call.base == "squeeze" and _squeezes_rows(call, source.dims):
        return whole_only(call, dims)
    same = not _loses(call, source.dims, dims)
    if same and (kept or not call.axes.cut(source.dims)):
        return seen_through(call, dims, _kept(source.index, dims))
    if same or not kept or source.index is not None:
        return whole_only(call, dims)
    cut = [str(d[p]) for d in (source.dims, dims) for p in call.axes.cut(d)]
    states = ROW_STATES if all(map(call.axes.has_halo, cut)) else ROW_STATES[:1]
    strategies = tuple(call.strategy(state, {source.name: state}, state) for state in states)
    return Ruling((Output(dims),), work.NOTHING, work.NOTHING, strategies)


@rule("view", "t", "transpose", "permute", "numpy_T", "mT")
def permuted(call: Call) -> Ruling | None:
    """Dimensions in another order."""
    source = call.inputs[0]
    count = len(source.dims)
    order = list(range(count))
    if call.base == "permute":
        order = [normal(dim, count) for dim in call.arguments["dims"]]
    elif call.base == "transpose":
        a, b = normal(call.arguments["dim0"], count), normal(call.arguments["dim1"], count)
        order[a], order[b] = order[b], order[a]
    elif count == 2:
        order = [1, 0]
    elif call.base != "t":
        return None
    dims = tuple(source.dims[position] for position in order)
    return seen_through(call, dims, source.index if _one_end(source.index) else None)


@rule("view", "expand")
def expanded(call: Call) -> Ruling:
    """New dimensions in front, and dimensions of size 1 repeated."""
    source = call.inputs[0]
    sizes = call.arguments["size"]
    offset = len(sizes) - len(source.dims)
    dims: list[Dim] = []
    for position, (number, seen) in enumerate(zip(sizes, call.seen(0), strict=True)):
        before = source.dims[position - offset] if position >= offset else 1
        asked = call.numbers.dim(number)
        if before != 1 or seen == (1,) * len(seen):
            dims.append(before)
        elif asked is not None and asked != -1:
            dims.append(asked)
        else:
            dims.append(call.axes.match(seen))
    # an axis that appears by expansion has its rows from the shape argument
    new = [d for d in call.axes.cut(dims) if d < offset or source.dims[d - offset] != dims[d]]
    if new and any(call.numbers.dim(sizes[position]) != dims[position] for position in new):
        return whole_only(call, tuple(dims))
    return seen_through(call, tuple(dims), source.index if _one_end(source.index) else None)


@rule("view", "select")
def selected(call: Call) -> Ruling:
    """One entry along a dimension that no partition cuts; of ``edge_index`` it is an end."""
    source = call.inputs[0]
    dim = normal(call.arguments["dim"], len(source.dims))
    dims = source.dims[:dim] + source.dims[dim + 1 :]
    entry = call.arguments["index"]
    if dim in call.axes.cut(source.dims) or not isinstance(entry, int):
        return whole_only(call, dims)
    index = source.index
    if index is not None and len(index.ends) > 1:
        if dim != 0:
            return whole_only(call, dims)
        index = index.entries(slice(entry, entry + 1 or None))
    identity = f"{call.identity(source)}[{dim},{entry}]"
    return seen_through(call, dims, index, identity)


@rule("view", "slice")
def sliced(call: Call) -> Ruling | None:
    """All of a cut dimension, or a part of a fixed one."""
    source = call.inputs[0]
    dim = normal(call.arguments["dim"], len(source.dims))
    seen = call.seen(0)
    old = source.dims[dim]
    if call.axes.agrees(old, seen[dim]) and _takes_all(call, old):
        return seen_through(call, source.dims, source.index, call.identity(source))
    part = _part(call, old)
    if part is not None and call.axes.agrees(part, seen[dim]) and source.index is None:
        dims = (*source.dims[:dim], part, *source.dims[dim + 1 :])
        whole = call.axes.cut(source.dims) == (dim,)
        halo = call.axes.has_halo(str(old)) and call.axes.has_halo(part)
        states = ROW_STATES if halo else ROW_STATES[:1]
        taken = tuple(call.strategy(s, {source.name: s}, s) for s in states if whole)
        return Ruling((Output(dims),), work.NOTHING, work.NOTHING, taken)
    new = call.axes.match(seen[dim])
    dims = (*source.dims[:dim], new, *source.dims[dim + 1 :])
    if dim in call.axes.cut(source.dims) or not isinstance(new, int):
        return whole_only(call, dims)
    index = source.index
    if index is not None and len(index.ends) > 1 and dim == 0:
        start, step = call.get("start") or 0, call.get("step", 1)
        if not isinstance(start, int) or not isinstance(step, int):
            return whole_only(call, dims)
        index = index.entries(slice(start, None, step)).entries(slice(new))
    return seen_through(call, dims, index)


@rule("view", "flip")
def flipped(call: Call) -> Ruling:
    """Another order along fixed dimensions; flipping ``edge_index`` along its first swaps the ends."""
    source = call.inputs[0]
    turned = [normal(dim, len(source.dims)) for dim in call.arguments["dims"]]
    forward, backward = work.moved(call, source.dims)
    output = Output(source.dims)
    if set(turned) & set(call.axes.cut(source.dims)):
        return Ruling((output,), forward, backward)
    index = source.index
    if index is not None and 0 in turned:
        index = index.entries(slice(None, None, -1))
    strategies = (*by_rows(call, source.dims), *linear(call, [source]))
    return Ruling(
        (Output(source.dims, index),), forward, backward, strategies, reads_positions=True
    )


@rule("view", "repeat")
def repeated(call: Call) -> Ruling:
    """Copies along dimensions that no partition cuts."""
    source = call.inputs[0]
    repeats = call.arguments["repeats"]
    offset = len(repeats) - len(source.dims)
    forward, backward = work.moved(call, call.matched())
    dims: list[Dim] = []
    for position, (times, seen) in enumerate(zip(repeats, call.seen(0), strict=True)):
        before = source.dims[position - offset] if position >= offset else 1
        dims.append(before if times == 1 else call.axes.match(seen))
    cut = call.axes.cut(source.dims)
    moves_rows = any(repeats[offset + position] != 1 for position in cut)
    computed = any(not isinstance(times, int) for times in repeats)
    mixed = source.index is not None and not _one_end(source.index)
    if moves_rows or computed or mixed:
        return Ruling((Output(tuple(dims)),), forward, backward)
    output = Output(tuple(dims), source.index)
    strategies = (*by_rows(call, tuple(dims)), *linear(call, [source]))
    return Ruling((output,), forward, backward, strategies, reads_positions=True)


def _loses(call: Call, before: Dims, after: Dims) -> bool:
    """Whether the cut dimension is not carried over as it was."""
    cut = [before[position] for position in call.axes.cut(before)]
    return cut != [after[position] for position in call.axes.cut(after)]


def _squeezes_rows(call: Call, before: Dims) -> bool:
    """Whether a ``squeeze`` could drop the dimension of the rows in a shard that has one row."""
    given = call.get("dim", range(len(before)))
    squeezed = {normal(dim, len(before)) for dim in ([given] if isinstance(given, int) else given)}
    return bool(squeezed & set(call.axes.cut(before)))


def _part(call: Call, old: Dim) -> str | None:
    """The axis of the rows that a slice takes of a joined axis: one of its parts."""
    end = call.get("end")
    start = call.numbers.counted(call.get("start") or 0)
    last = isinstance(end, int) and end >= sys.maxsize
    if not isinstance(old, str) or call.axes.flat(old) is None or call.get("step", 1) != 1:
        return None
    stop = Counter(call.axes.flat(old)) if end is None or last else call.numbers.counted(end)
    if start is None or stop is None:
        return None
    parts = parts_between(call.axes, old, start, stop)
    return parts[0] if parts is not None and len(parts) == 1 else None


def _takes_all(call: Call, dim: Dim) -> bool:
    start, end, step = call.get("start"), call.get("end"), call.get("step", 1)
    if start not in (None, 0) or step != 1:
        return False
    if end is None or (isinstance(end, int) and end >= sys.maxsize):
        return True
    return call.numbers.dim(end) == dim


def _one_end(index: IndexInto | None) -> bool:
    return index is not None and len(index.ends) == 1


def _kept(index: IndexInto | None, dims: Sequence[Dim]) -> IndexInto | None:
    """Provenance through a reshape: one end for all, or one per entry of a first dimension that is still there."""
    if index is None or len(index.ends) == 1:
        return index
    return index if dims and dims[0] == len(index.ends) else None
