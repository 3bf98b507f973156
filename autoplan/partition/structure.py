"""Describes a graph: degrees, components, cuts and their growth, sampled neighbourhoods. No torch.

Works in slices of the edges, so that it holds little beside the graph: at most some 20 bytes an edge.
Letters: N nodes of all types, E edges, P parts, L hops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autoplan.graphstats import PartitionStats
from autoplan.graphstructure import (
    DegreeStats,
    GraphStructure,
    PartStructure,
    RelationStructure,
)
from autoplan.opgraph import is_primary_relation
from autoplan.partition.ownership import IntArray, Relations, ends_of
from autoplan.partition.sampled import incoming, neighbourhood
from autoplan.partition.union import NodeUnion

_SLICE = 1 << 20
"""Edges that are looked at together."""


def structure(
    nodes: Mapping[str, int],
    edge_indices: Mapping[str, NDArray[np.integer]],
    relations: Relations | None = None,
    *,
    partitions: Sequence[tuple[PartitionStats, Mapping[str, IntArray]]] = (),
    hops: int = 3,
    fan_outs: Sequence[Sequence[int]] = (),
    seeds: int = 1024,
    batches: int = 8,
    seed: int = 0,
) -> GraphStructure:
    """Describes a graph; equal arguments give equal answers.

    Args:
        nodes: by node axis, their number.
        edge_indices: by edge axis, [2, E] node numbers that exist, source first; those of further attributes do not count.
        relations: what the edge axes join, where there are several node types.
        partitions: sizes of each partition, and by node axis the owners.
        hops: L.
        fan_outs: of each neighbourhood that is to be sampled.
        seeds: nodes of one type that a sampled batch starts from.
        batches: that are sampled.
        seed: of sampling.
    """
    edges = {axis: ends for axis, ends in edge_indices.items() if is_primary_relation(axis)}
    union = _Union(nodes, edges, relations)
    sizes = union.components()
    ordered = incoming(nodes, edges, relations) if fan_outs else ()
    return GraphStructure(
        nodes=dict(nodes),
        relations={
            axis: _relation(ends, nodes, *ends_of(relations, axis)) for axis, ends in edges.items()
        },
        components=len(sizes),
        largest=int(sizes.max(initial=0)),
        partitions=tuple(
            union.partition(stats, owner, hops)
            for stats, owner in sorted(partitions, key=lambda pair: pair[0].parts)
        ),
        neighbourhoods=tuple(
            neighbourhood(nodes, ordered, each, axis, seeds=seeds, batches=batches, seed=seed)
            for axis in _seeded(nodes, edges, relations)
            for each in fan_outs
        ),
    )


def _seeded(
    nodes: Mapping[str, int],
    edges: Mapping[str, NDArray[np.integer]],
    relations: Relations | None,
) -> list[str]:
    """The node axes that edges lead to: from others nothing is sampled. All of them, where there are no edges."""
    ends = {ends_of(relations, axis)[1] for axis in edges}
    return [axis for axis in nodes if axis in ends or not edges]


def degree_stats(degree: IntArray) -> DegreeStats:
    """Of [N] degrees."""
    count, total = len(degree), int(degree.sum())
    if not count:
        return DegreeStats(0.0, 0.0, 0.0, 0, 0.0, 0)
    ordered = np.sort(degree)
    ranks = np.arange(1, count + 1, dtype=np.float64)
    gini = 2.0 * float(ranks @ ordered) / (count * total) - (count + 1) / count if total else 0.0
    return DegreeStats(
        mean=total / count,
        median=float(np.median(ordered)),
        p99=float(ordered[min(count - 1, int(np.ceil(0.99 * count)) - 1)]),
        max=int(ordered[-1]),
        gini=max(0.0, gini),
        without=int(np.searchsorted(ordered, 1)),
    )


def _relation(
    ends: NDArray[np.integer], nodes: Mapping[str, int], source: str, destination: str
) -> RelationStructure:
    loops = 0
    if source == destination:
        loops = sum(int(np.count_nonzero(ends[0, part] == ends[1, part])) for part in _slices(ends))
    outgoing, incoming_ = (
        np.bincount(end, minlength=nodes[axis])
        for end, axis in zip(ends, (source, destination), strict=True)
    )
    return RelationStructure(
        int(ends.shape[1]), loops, degree_stats(incoming_), degree_stats(outgoing)
    )


def _slices(ends: NDArray[np.integer]) -> Iterator[slice]:
    for first in range(0, ends.shape[1], _SLICE):
        yield slice(first, first + _SLICE)


class _Union:
    """The nodes of all types in one numbering, and the edges, slice by slice."""

    def __init__(
        self,
        nodes: Mapping[str, int],
        edges: Mapping[str, NDArray[np.integer]],
        relations: Relations | None,
    ) -> None:
        self.types = NodeUnion(nodes)
        self._edges = edges
        self._relations = relations

    def pairs(self) -> Iterator[tuple[NDArray[np.integer], NDArray[np.integer]]]:
        """Sources and destinations, at most `_SLICE` at once."""
        start = self.types.start
        for axis, ends in self._edges.items():
            source, destination = ends_of(self._relations, axis)
            for part in _slices(ends):
                yield ends[0, part] + start[source], ends[1, part] + start[destination]

    def components(self) -> IntArray:
        """Sizes of the connected components. Labels sink to the least of a component, halving the trees in every round."""
        label = np.arange(self.types.total, dtype=np.int64)
        while True:
            changed = False
            for source, destination in self.pairs():
                first, second = label[source], label[destination]
                apart = first != second
                if not apart.any():
                    continue
                changed = True
                high = np.maximum(first[apart], second[apart])
                np.minimum.at(label, high, np.minimum(first[apart], second[apart]))
                label = _rooted(label)
            if not changed:
                return np.bincount(label)[np.unique(label)] if len(label) else label

    def partition(
        self, stats: PartitionStats, owner: Mapping[str, IntArray], hops: int
    ) -> PartStructure:
        """One partition: its balance, and what each part reaches."""
        parts = stats.parts
        joined = np.concatenate([owner[axis] for axis in self.types.nodes])
        owned = np.bincount(joined, minlength=parts)
        edges = np.zeros(parts, dtype=np.int64)
        for _, destination in self.pairs():
            edges += np.bincount(joined[destination], minlength=parts)
        reached = np.zeros((hops + 1, parts), dtype=np.int64)
        for part in range(parts):
            there = joined == part
            reached[0, part] = int(there.sum())
            for hop in range(1, hops + 1):
                # a closed or a full part grows no more
                grown = self._grown(there)
                reached[hop, part] = int(grown.sum())
                if reached[hop, part] == reached[hop - 1, part]:
                    reached[hop:, part] = reached[hop, part]
                    break
                there = grown
        total = int(edges.sum())
        return PartStructure(
            parts,
            stats.method,
            stats.cut_edges,
            stats.cut_edges / total if total else 0.0,
            _balance(edges),
            _balance(owned),
            tuple(tuple(int(count) for count in row) for row in reached),
        )

    def _grown(self, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
        grown = there.copy()
        for source, destination in self.pairs():
            grown[source[there[destination]]] = True
        return grown


def _rooted(label: IntArray) -> IntArray:
    """Every label replaced by that of its label, until nothing changes."""
    while True:
        further = label[label]
        if np.array_equal(further, label):
            return label
        label = further


def _balance(loads: IntArray) -> float:
    """The largest over the mean."""
    total = int(loads.sum())
    return float(loads.max()) * len(loads) / total if total else 1.0
