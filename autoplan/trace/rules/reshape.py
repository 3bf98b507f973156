"""What a reshape makes of dimensions: carried over, merged or taken apart.

Rows that are merged with a fixed dimension are an axis of their own: with one behind them (a row's heads) ``blocks``, with
one in front (tensors that were stacked) ``concat``. Entry j of such an axis belongs to row j // width, or to row j % rows,
if and only if as many elements lie before the merged dimension as lay before what it was merged from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoplan.trace.rules.axes import AxisTable, Dim, Dims, Sizes
from autoplan.trace.rules.call import Call

_MOST_COPIES = 16
"""Parts of a ``concat`` that a merge makes; names grow with them."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a dimension can begin and which rows it then counts.

    Attributes:
        leading: number of elements before it, per sample.
        part: the axis whose rows it has.
        copies: how often, one copy after another.
        wide: whether it may have several entries for each row.
    """

    leading: Sizes
    part: str
    copies: int = 1
    wide: bool = False


def carried(call: Call, before: Dims) -> tuple[Dims, bool]:
    """Dimensions of a reshaped tensor, and whether the rows of the one cut dimension are found again in one dimension."""
    places = list(_places(call.axes, before))
    fixed = dict(_fixed(call.axes, before))
    dims: list[Dim] = []
    found: list[bool] = []
    leading = (1,) * len(call.shapes[0])
    for sizes in call.seen(0):
        dim = next(
            (d for place in places if (d := _counted(call.axes, place, leading, sizes))), None
        )
        found.append(dim is not None)
        dims.append(dim or fixed.get((leading, sizes)) or call.axes.match(sizes))
        leading = _times(leading, sizes)
    cut = call.axes.cut(dims)
    return tuple(dims), len(call.axes.cut(before)) == len(cut) == 1 and found[cut[0]]


def _places(axes: AxisTable, before: Dims) -> Iterator[_Place]:
    """Places of the cut dimensions."""
    leading = (1,) * axes.samples
    in_front: list[tuple[Sizes, int]] = []
    for dim in before:
        if isinstance(dim, int):
            in_front = [(start, copies * dim) for start, copies in in_front]
            in_front.append((leading, dim))
        else:
            if axes.cut((dim,)):
                yield from _around(axes, dim, leading, in_front)
            in_front = []
        leading = _times(leading, _sizes(axes, dim))


def _around(
    axes: AxisTable, dim: str, leading: Sizes, in_front: list[tuple[Sizes, int]]
) -> Iterator[_Place]:
    """The rows themselves, merged with what is behind or in front of them, or taken apart."""
    about = axes.axes[dim]
    yield _Place(leading, dim)
    rows = about.parts[0] if about.kind == "blocks" else dim
    yield _Place(leading, rows, wide=True)
    if about.kind == "concat" and len(set(about.parts)) == 1:
        yield _Place(tuple(size * len(about.parts) for size in leading), about.parts[0])
    for start, copies in in_front:
        if 1 < copies <= _MOST_COPIES:
            yield _Place(start, rows, copies)


def _counted(axes: AxisTable, place: _Place, leading: Sizes, sizes: Sizes) -> Dim | None:
    """The dimension of these sizes, if it begins at the place and counts its rows."""
    if place.leading != leading:
        return None
    rows = axes.rows[place.part]
    if place.copies > 1:
        same = sizes == tuple(size * place.copies for size in rows)
        return axes.concat([place.part] * place.copies) if same else None
    if sizes == rows:
        return place.part
    if (
        not place.wide
        or not all(rows)
        or any(size % n for size, n in zip(sizes, rows, strict=True))
    ):
        return None
    widths = {size // n for size, n in zip(sizes, rows, strict=True)}
    return axes.blocks(place.part, widths.pop()) if len(widths) == 1 else None


def _fixed(axes: AxisTable, before: Dims) -> Iterator[tuple[tuple[Sizes, Sizes], Dim]]:
    """Dimensions without rows: carried over where size and number of elements before them agree."""
    leading = (1,) * axes.samples
    for dim in before:
        sizes = _sizes(axes, dim)
        if not axes.cut((dim,)):
            yield (leading, sizes), dim
        leading = _times(leading, sizes)


def _sizes(axes: AxisTable, dim: Dim) -> Sizes:
    return axes.rows[dim] if isinstance(dim, str) else (dim,) * axes.samples


def _times(first: Sizes, second: Sizes) -> Sizes:
    return tuple(a * b for a, b in zip(first, second, strict=True))
