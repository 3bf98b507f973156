"""The axes of a program: what each dimension of a tensor counts, checked against the sizes that the samples saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from autoplan.opgraph import (
    GRAPH,
    Axis,
    IndexInto,
    Polynomial,
    Role,
    is_edge_axis,
    is_index_axis,
    is_node_axis,
)
from autoplan.states import has_halo, parts_of

Dim = str | int
"""An axis name, or a fixed size."""

Dims = tuple[Dim, ...]

Sizes = tuple[int, ...]
"""One size per sample."""


@dataclass(frozen=True, slots=True)
class Sharded:
    """The one dimension of a tensor that a partition cuts."""

    axis: str
    position: int


@dataclass(slots=True)
class AxisTable:
    """Axes by name, each with its rows in every sample.

    Attributes:
        axes: what goes into the OpGraph.
        rows: rows of each axis, per sample.
        masks: identity of a boolean tensor (`trace.rules.call.Output`) -> the first tensor of that identity that selects.
    """

    axes: dict[str, Axis] = field(default_factory=dict)
    rows: dict[str, Sizes] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, base_rows: Sequence[Mapping[str, int]]) -> AxisTable:
        """A table of base and index axes.

        Args:
            base_rows: per sample, the rows of ``node``, ``edge``, ``edge:ATTRIBUTE``, ``index:ATTRIBUTE`` (of several types
                ``node[TYPE]`` and so on) and, of a batch of several graphs, ``graph``. Any other name, and a single graph,
                has no place in a partition.
        """
        table = cls()
        for name in base_rows[0]:
            role: Role = "const"
            kind: Literal["base", "index", "other"] = "other"
            if is_node_axis(name):
                role, kind = "node", "base"
            elif is_edge_axis(name):
                role, kind = "edge", "base"
            elif is_index_axis(name):
                role, kind = "node", "index"
            elif name.partition(":")[0] == GRAPH:
                role = "graph"
                several = len({sample[name] for sample in base_rows}) > 1
                kind = "base" if several else "other"
            table.axes[name] = Axis(name, role, kind, (), Polynomial.of(1, name))
            table.rows[name] = tuple(sample[name] for sample in base_rows)
        for name, axis in table.axes.items():
            if axis.kind == "other":
                table.axes[name] = replace(axis, rows=table._fit(table.rows[name]))
        return table

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.rows.values())))

    def select(self, mask: str, parent: str, sizes: Sizes) -> str:
        """The rows of ``parent`` where the boolean tensor ``mask`` holds; its rows are estimated from the samples."""
        name = f"select({mask})"
        if name in self.axes:
            return name
        source = self.axes[parent]
        if source.kind == "other":
            return self.other(sizes, name)
        share = sum(sizes) / max(1, sum(self.rows[parent]))
        self.axes[name] = Axis(name, source.role, "select", (parent,), source.rows * share)
        self.rows[name] = sizes
        return name

    def concat(self, parts: Sequence[str]) -> str:
        """The rows of each part in turn."""
        name = f"concat({','.join(parts)})"
        if name in self.axes:
            return name
        sizes = tuple(
            sum(column) for column in zip(*(self.rows[part] for part in parts), strict=True)
        )
        if any(self.axes[part].kind == "other" for part in parts):
            return self.other(sizes, name)
        roles = {self.axes[part].role for part in parts}
        rows = Polynomial()
        for part in parts:
            rows = rows + self.axes[part].rows
        role: Role = roles.pop() if len(roles) == 1 else "edge"
        self.axes[name] = Axis(name, role, "concat", tuple(parts), rows)
        self.rows[name] = sizes
        return name

    def blocks(self, part: str, width: int) -> str:
        """``width`` rows for each row of ``part``: a row's heads, one after another."""
        about = self.axes[part]
        if about.kind == "blocks":
            part, width = about.parts[0], width * about.width
        name = f"{part}*{width}"
        if name not in self.axes:
            whole = self.axes[part]
            rows = whole.rows * width
            self.axes[name] = Axis(name, whole.role, "blocks", (part,), rows, width)
            self.rows[name] = tuple(size * width for size in self.rows[part])
        return name

    def other(self, sizes: Sizes, name: str | None = None) -> str:
        """An axis without a place in a partition; its rows are fitted by a linear polynomial in the base rows."""
        for known, axis in self.axes.items():
            if axis.kind == "other" and self.rows[known] == sizes:
                return known
        name = name or f"other{sum(axis.kind == 'other' for axis in self.axes.values())}"
        self.axes[name] = Axis(name, "const", "other", (), self._fit(sizes))
        self.rows[name] = sizes
        return name

    def match(self, sizes: Sizes) -> Dim:
        """The dimension that has these sizes: fixed, a base axis of that many rows (position by position), or another.

        A dimension as long as an axis is laid along it by position, whatever its rows mean: rows are cut by position too.
        """
        for name, axis in self.axes.items():
            if axis.kind == "base" and self.rows[name] == sizes:
                return name
        if len(set(sizes)) > 1:
            return self.other(sizes)
        # nothing has a fixed size of 0: there was no row of this kind in any sample
        empty = (name for name, axis in self.axes.items() if axis.kind == "other" and not sizes[0])
        return next((name for name in empty if self.rows[name] == sizes), sizes[0])

    def agrees(self, dim: Dim, sizes: Sizes) -> bool:
        """Whether the samples saw this dimension with these sizes."""
        seen = self.rows.get(dim) if isinstance(dim, str) else (dim,) * len(sizes)
        return seen == sizes

    def cut(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """Positions of the dimensions that a partition cuts."""
        return tuple(
            position
            for position, dim in enumerate(dims)
            if isinstance(dim, str) and self.axes[dim].kind != "other"
        )

    def cut_by_all(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """Positions of the dimensions that every partition cuts: rows of graphs are whole on one that is not closed."""
        return tuple(at for at in self.cut(dims) if not self.counts_graphs(dims[at]))

    def counts_graphs(self, dim: Dim) -> bool:
        """Whether the dimension has a row for each graph of a batch, or for some of them."""
        return isinstance(dim, str) and counts_graphs(self.axes, dim)

    def sharded(self, dims: Sequence[Dim]) -> Sharded | None:
        """The one dimension that a partition cuts; None when there is none or more than one."""
        cut = self.cut(dims)
        return Sharded(str(dims[cut[0]]), cut[0]) if len(cut) == 1 else None

    def has_halo(self, axis: str) -> bool:
        """Whether tensors along the axis may lie in state H."""
        return has_halo(self.axes, axis)

    def flat(self, axis: str) -> tuple[str, ...] | None:
        """The node axes that a joined axis is made of, in order; None where it is no such axis."""
        joined = self.axes[axis].kind == "concat" and self.has_halo(axis)
        return parts_of(self.axes, axis) if joined else None

    def depends_on_data(self, dim: Dim) -> bool:
        """Whether the rows are known only when the program runs: a ``select`` axis is involved."""
        if not isinstance(dim, str):
            return False
        axis = self.axes[dim]
        return axis.kind == "select" or any(self.depends_on_data(part) for part in axis.parts)

    def is_untold(self, dim: Dim) -> bool:
        """Whether the rows do not follow from those of the graph's own axes: a ``select`` or an ``other`` axis is involved."""
        if not isinstance(dim, str):
            return False
        axis = self.axes[dim]
        return axis.kind in ("select", "other") or any(self.is_untold(part) for part in axis.parts)

    def masks_of(self, dim: Dim) -> tuple[str, ...]:
        """The tensors that tell which rows a dimension has: masks of the ``select`` axes that it is made of."""
        if not isinstance(dim, str) or self.axes[dim].kind not in ("select", "concat", "blocks"):
            return ()
        axis = self.axes[dim]
        own = (dim.removeprefix("select(").removesuffix(")"),) if axis.kind == "select" else ()
        return (*own, *(mask for part in axis.parts for mask in self.masks_of(part)))

    def is_whole(self, index: IndexInto) -> bool:
        """Whether every position is an owned row in state O."""
        return all(end in ("dst", "self") for end in index.ends)

    def _fit(self, sizes: Sizes) -> Polynomial:
        names = [name for name, axis in self.axes.items() if axis.kind == "base"]
        columns = [self.rows[name] for name in names] + [(1,) * len(sizes)]
        solution, *_ = np.linalg.lstsq(
            np.array(columns, dtype=float).T, np.array(sizes, dtype=float), rcond=None
        )
        total = Polynomial()
        for name, coefficient in zip([*names, None], solution.round(9), strict=True):
            total = total + Polynomial.of(coefficient, *([name] if name else []))
        return total


def counts_graphs(axes: Mapping[str, Axis], dim: str) -> bool:
    """Whether an axis has its rows along the graph axis, and only closed partitions cut it."""
    axis = axes[dim]
    return axis.role == "graph" and axis.kind != "other"
