"""Joining and splitting tensors. Joined along rows they make a new axis: the rows of each part in turn."""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.opgraph import End, IndexInto, State, TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dims
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.placement import by_rows, linear
from autoplan.trace.rules.registry import rule
from autoplan.trace.rules.shifts import joined_axis


@rule("concat", "cat", "concatenate")
def joined(call: Call) -> Ruling:
    """``cat`` along a fixed dimension or along rows."""
    parts = [part for part in call.tensors("tensors") if part.dims != (0,)]
    if not parts or any(len(part.dims) != len(parts[0].dims) for part in parts):
        return _whole(call)
    dim = normal(call.get("dim", 0), len(parts[0].dims))
    rest = {part.dims[:dim] + part.dims[dim + 1 :] for part in parts}
    if len(rest) > 1:
        return _whole(call)
    along = [part.dims[dim] for part in parts]
    if all(isinstance(d, int) for d in along):
        new: str | int = sum(d for d in along if isinstance(d, int))
        return _stacked(call, parts, _with(parts[0].dims, dim, new), dim)
    if any(isinstance(d, int) for d in along):
        return _whole(call)
    dims = _with(parts[0].dims, dim, call.axes.concat([str(d) for d in along]))
    forward, backward = work.moved(call, dims)
    cut = call.axes.cut(dims)
    index, mixed = _ends_along_rows(call, parts)
    if cut != (dim,) or mixed:
        return Ruling((Output(dims),), forward, backward)
    states: list[State] = ["O"]
    if index is None and call.axes.has_halo(str(dims[dim])):
        states.append("H")
    strategies = tuple(call.strategy(s, {part.name: s for part in parts}, s) for s in states)
    return Ruling((Output(dims, index),), forward, backward, strategies, reads_positions=True)


@rule("concat", "stack")
def stacked(call: Call) -> Ruling:
    """A new dimension of as many entries as there are tensors."""
    parts = call.tensors("tensors")
    if any(part.dims != parts[0].dims for part in parts):
        return _whole(call)
    dim = normal(call.get("dim", 0), len(parts[0].dims) + 1)
    dims = (*parts[0].dims[:dim], len(parts), *parts[0].dims[dim:])
    return _stacked(call, parts, dims, dim)


@rule("concat", "split", "split_with_sizes", "chunk", "unbind", "tensor_split", "unsafe_split")
def split(call: Call) -> Ruling:
    """Pieces along a fixed dimension; of ``edge_index`` they are its ends."""
    source = call.inputs[0]
    dim = normal(call.get("dim", 0), len(source.dims))
    if dim in call.axes.cut(source.dims):
        return _pieces_of_rows(call)
    dims: list[Dims] = []
    for k in range(len(call.shapes)):
        if call.base == "unbind":
            dims.append(source.dims[:dim] + source.dims[dim + 1 :])
        else:
            dims.append(_with(source.dims, dim, call.axes.match(call.seen(k)[dim])))
    if any(not isinstance(piece[dim], int) for piece in dims if call.base != "unbind"):
        return _pieces_of_rows(call)
    outputs = []
    at = 0
    for piece in dims:
        index = source.index
        width = 1 if call.base == "unbind" else piece[dim]
        assert isinstance(width, int)
        if index is not None and len(index.ends) > 1 and dim == 0:
            index = index.entries(slice(at, at + width))
        identity = f"{call.identity(source)}[{dim},{at}]" if call.base == "unbind" else ""
        outputs.append(Output(piece, index, identity))
        at += width
    strategies = (*by_rows(call, dims[0]), *linear(call, [source]))
    return Ruling(tuple(outputs), work.NOTHING, work.NOTHING, strategies, reads_positions=True)


@rule("concat", "constant_pad_nd", "pad")
def padded(call: Call) -> Ruling:
    """A constant before and behind the entries of some dimensions; ``pad`` names the last dimension first."""
    source = call.tensor("self")
    given = call.arguments["pad"]
    padded = {len(source.dims) - 1 - k // 2 for k, width in enumerate(given) if width != 0}
    seen = call.seen(0)
    dims = tuple(
        call.axes.match(seen[position]) if position in padded else dim
        for position, dim in enumerate(source.dims)
    )
    forward, backward = work.moved(call, dims)
    whole = padded & {*call.axes.cut(source.dims), *call.axes.cut(dims)}
    zeros = call.get("value") in (None, 0)
    strategies = (*by_rows(call, dims), *(linear(call, [source]) if zeros else ()))
    return Ruling((Output(dims),), forward, backward, () if whole else strategies)


def _whole(call: Call) -> Ruling:
    """Joined along rows that are none of the graph's, or of several kinds."""
    dims = call.matched()
    return Ruling((Output(dims),), *work.moved(call, dims))


def _pieces_of_rows(call: Call) -> Ruling:
    """Views of some of the rows: which rank has them is not known."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    return Ruling(outputs, work.NOTHING, work.NOTHING)


def _stacked(call: Call, parts: Sequence[TensorMeta], dims: Dims, dim: int) -> Ruling:
    """Joined along a dimension that no partition cuts."""
    forward, backward = work.moved(call, dims)
    index, mixed = _ends_along_entries(parts, dim)
    if mixed:
        return Ruling((Output(dims),), forward, backward)
    strategies = (*by_rows(call, dims), *linear(call, parts))
    return Ruling((Output(dims, index),), forward, backward, strategies, reads_positions=True)


def _ends_along_rows(call: Call, parts: Sequence[TensorMeta]) -> tuple[IndexInto | None, bool]:
    """Provenance of positions joined along rows, entry by entry; ``True``: positions and other numbers are mixed."""
    found = [part.index for part in parts]
    if all(index is None for index in found):
        return None, False
    known = [index for index in found if index is not None]
    if len(known) < len(found):
        return None, True
    length = max(len(index.ends) for index in known)
    if any(len(index.ends) not in (1, length) for index in known):
        return None, True
    whole = [index.repeated(length // len(index.ends)) for index in known]
    columns = list(zip(*(zip(i.axes, i.ends, strict=True) for i in whole), strict=True))
    axes = [along for column in columns if (along := joined_axis(call.axes, column)) is not None]
    if len(axes) < len(columns):
        return None, True
    ends = tuple(_either([end for _, end in column]) for column in columns)
    return IndexInto(tuple(axes), ends), False


def _ends_along_entries(parts: Sequence[TensorMeta], dim: int) -> tuple[IndexInto | None, bool]:
    """Provenance of positions joined along a fixed dimension."""
    found = [part.index for part in parts]
    if all(index is None for index in found):
        return None, False
    known = [index for index in found if index is not None]
    if len(known) < len(found):
        return None, True
    if dim == 0:
        axes: list[str] = []
        ends: list[End] = []
        for part, index in zip(parts, known, strict=True):
            new = len(part.dims) < 2 or not isinstance(part.dims[0], int)
            many = 1 if new else part.dims[0]
            assert isinstance(many, int)
            entries = index if len(index.ends) == many else index.repeated(many)
            axes.extend(entries.axes)
            ends.extend(entries.ends)
        return IndexInto(tuple(axes), tuple(ends)), False
    if len(set(known)) > 1:
        return None, True
    return known[0], False


def _either(ends: Sequence[End]) -> End:
    """An end that covers all: owned or halo rows are what ``src`` may be."""
    kinds = set(ends)
    if "any" in kinds:
        return "any"
    if "src" in kinds:
        return "src"
    return "dst" if "dst" in kinds else "self"


def _with(dims: Dims, position: int, dim: str | int) -> Dims:
    return (*dims[:position], dim, *dims[position + 1 :])
