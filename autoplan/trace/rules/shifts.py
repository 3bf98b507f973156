"""Positions in nodes of several types that are joined: those of one type, moved past the rows of the types before it.

``torch.cat([authors, papers])`` with ``papers' positions + authors.size(0)`` is how several types become one. In a shard
the rows of the types before are the rank's own: owned rows for ends that are owned, owned and halo rows for sources, as the
joined tensor that is read at sources has both. So a shift is by local rows, and which rows is a part of what the positions are.

Two kinds of axes name such positions. They are never dimensions of a tensor:

    shifted(node[paper],src,node[author])   positions of papers, moved past the authors
    among(node[author],shifted(...))        positions of either kind, joined
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autoplan.opgraph import Axis, End, IndexInto, Polynomial, State, is_node_axis
from autoplan.trace.rules.axes import AxisTable

_ADDED: dict[End, State | None] = {"src": "H", "dst": "O", "self": "O", "any": None}
_SHIFTED, _AMONG = "shifted(", "among("


@dataclass(frozen=True, slots=True)
class _Moved:
    """Positions along a node axis, moved past the rows of others (sorted, an axis as often as its rows were added)."""

    axis: str
    before: tuple[str, ...]


def rows_added(end: End) -> State | None:
    """The rows by which positions of an end are to be moved: those of the state that they are read in; None: unknown."""
    return _ADDED[end]


def shifted(axes: AxisTable, index: IndexInto, before: Sequence[str]) -> IndexInto | None:
    """Positions of one end, moved past the rows of node axes; None where that says nothing."""
    if not before:
        return index
    added = rows_added(index.ends[0])
    if len(index.ends) > 1 or added is None or not all(map(is_node_axis, before)):
        return None
    known = axes.axes[index.axes[0]]
    if known.name.startswith(_SHIFTED):
        axis, earlier = known.parts[0], known.parts[1:]
    elif is_node_axis(known.name):
        axis, earlier = known.name, ()
    else:
        return None
    past = tuple(sorted((*earlier, *before)))
    name = f"{_SHIFTED}{axis},{added},{'+'.join(past)})"
    if name not in axes.axes:
        parts = (axis, *past)
        rows = Polynomial()
        for part in parts:
            rows = rows + axes.axes[part].rows
        axes.axes[name] = Axis(name, "const", "other", parts, rows)
        axes.rows[name] = tuple(map(sum, zip(*(axes.rows[part] for part in parts), strict=True)))
    return IndexInto((name,), index.ends)


def is_moved(index: IndexInto) -> bool:
    """Whether some positions count rows of several axes."""
    return any(axis.startswith((_SHIFTED, _AMONG)) for axis in index.axes)


def joined_axis(axes: AxisTable, parts: Sequence[tuple[str, End]]) -> str | None:
    """The axis of positions of several kinds in one tensor, whose ends are given; None where they have no common reading."""
    names = tuple(sorted({name for name, _ in parts}))
    if len(names) == 1 and not names[0].startswith((_SHIFTED, _AMONG)):
        return names[0]
    # owned ends and sources were moved by other rows
    added = {rows_added(end) for _, end in parts}
    if None in added or len(added) > 1:
        return None
    if len(names) == 1:
        return names[0]
    members = sorted({member for name in names for member in _members(axes, name)})
    if not all(_moved(axes, member) for member in members):
        return None
    name = f"{_AMONG}{','.join(members)})"
    if name not in axes.axes:
        longest = max(members, key=lambda member: axes.rows[member])
        axes.axes[name] = Axis(name, "const", "other", tuple(members), axes.axes[longest].rows)
        axes.rows[name] = axes.rows[longest]
    return name


def points_into(axes: AxisTable, index: IndexInto, axis: str) -> bool:
    """Whether all positions, each by what it is, name rows along an axis."""
    if index.axis == axis:
        return True
    flat = axes.flat(axis)
    if index.axis is None or flat is None:
        return False
    places = {_Moved(part, tuple(sorted(flat[:place]))) for place, part in enumerate(flat)}
    return all(_moved(axes, member) in places for member in _members(axes, index.axis))


def parts_between(
    axes: AxisTable, axis: str, start: Counter[str], end: Counter[str]
) -> tuple[str, ...] | None:
    """The parts of a joined axis between two offsets, given as the axes whose rows they count; None: no whole parts."""
    flat = axes.flat(axis)
    if flat is None:
        return None
    cuts = [Counter(flat[:place]) for place in range(len(flat) + 1)]
    if start not in cuts or end not in cuts:
        return None
    return flat[cuts.index(start) : cuts.index(end)] or None


def _members(axes: AxisTable, name: str) -> tuple[str, ...]:
    return axes.axes[name].parts if name.startswith(_AMONG) else (name,)


def _moved(axes: AxisTable, name: str) -> _Moved | None:
    if name.startswith(_SHIFTED):
        parts = axes.axes[name].parts
        return _Moved(parts[0], parts[1:])
    return _Moved(name, ()) if is_node_axis(name) else None
