"""The nodes of all types in one numbering: what is cut, and what belongs together, goes over types. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.partition.ownership import IntArray, Relations, check_ends, ends_of


@dataclass(frozen=True, slots=True)
class NodeUnion:
    """The nodes of the first type, then those of the second, and so on.

    Attributes:
        nodes: by node axis, their number.
    """

    nodes: Mapping[str, int]

    @property
    def total(self) -> int:
        """Number of all nodes."""
        return sum(self.nodes.values())

    @property
    def start(self) -> dict[str, int]:
        """By node axis, the number of its first node."""
        before = itertools.accumulate(self.nodes.values(), initial=0)
        return dict(zip(self.nodes, before, strict=False))

    def joined(
        self, edge_indices: Mapping[str, NDArray[np.integer]], relations: Relations | None
    ) -> NDArray[np.integer]:
        """The edges of all axes in the numbering of the union: [2, sum of E]; of one type and relation, the very array.

        Raises:
            PlanError: an edge index that is not [2, E] or names a node that does not exist.
        """
        start = self.start
        found: list[NDArray[np.integer]] = []
        for axis, edge_index in edge_indices.items():
            source, destination = ends_of(relations, axis)
            check_ends(axis, edge_index, self.nodes[source], self.nodes[destination])
            offsets = np.array([[start[source]], [start[destination]]], dtype=np.int64)
            edges = np.asarray(edge_index)
            found.append(edges + offsets if offsets.any() else edges)
        if not found:
            return np.empty((2, 0), dtype=np.int64)
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def split(self, values: IntArray) -> dict[str, IntArray]:
        """By node axis, the part of an array that has an entry for each node of the union."""
        start = self.start
        return {axis: values[start[axis] : start[axis] + n] for axis, n in self.nodes.items()}
