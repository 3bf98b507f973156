"""Owners, and the rows of others that each rank reads: nodes of several types, each along an axis of its own. No torch.

Letters: N nodes of one type, E edges of one relation, P ranks, r a rank that reads, o a rank that owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import PlanError
from autoplan.opgraph import NODE, is_index_axis

IntArray = NDArray[np.int64]

Relations = Mapping[str, tuple[str, str]]
"""By edge axis, the node axes of its sources and of its destinations; one that is missing joins the nodes of one type."""

Owners = NDArray[np.integer] | Mapping[str, NDArray[np.integer]]
"""[N] the rank that owns each node; of several types by node axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Ownership:
    """Nodes of one type in the order of (owner, global id), which is the order of all ranks' owned rows one after the other.

    Attributes:
        owner: [N] rank of each node; parts: number of ranks.
        nodes: [N] global ids in that order; position: [N] its inverse, the place of each node in it.
        start: [P + 1] where each rank's nodes begin.
    """

    owner: IntArray
    parts: int
    nodes: IntArray
    position: IntArray
    start: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Halos:
    """The halo rows of all ranks along one node axis, those of rank 0 first, each rank's by (owner, global id).

    Attributes:
        start: [P + 1] where each reader's rows begin.
        nodes: [H] global ids; owner: [H] their ranks; reader: [H] the rank that asked.
    """

    start: IntArray
    nodes: IntArray
    owner: IntArray
    reader: IntArray


def ends_of(relations: Relations | None, axis: str) -> tuple[str, str]:
    """The node axes of an edge axis's sources and destinations."""
    return (relations or {}).get(axis, (NODE, NODE))


def by_node_axis(owner: Owners) -> Mapping[str, NDArray[np.integer]]:
    """Owners by node axis, also where there is one type."""
    return owner if isinstance(owner, Mapping) else {NODE: owner}


def order_by_owner(owner: NDArray[np.integer], parts: int | None = None) -> Ownership:
    """Sorts nodes by owner.

    Args:
        owner: [N] rank of each node.
        parts: number of ranks; by default the highest rank that owns a node, plus one (at least 1).

    Raises:
        PlanError: a rank below 0 or not below ``parts``.
    """
    ranks = np.asarray(owner, dtype=np.int64)
    highest = int(ranks.max(initial=-1))
    count = max(highest + 1, 1) if parts is None else parts
    if highest >= count or int(ranks.min(initial=0)) < 0:
        raise PlanError(
            f"the partition names ranks {int(ranks.min(initial=0))} to {highest} but there are {count} parts; "
            f"owners must lie in 0 .. {count - 1}"
        )
    nodes, start = group(ranks, count)
    position = np.empty_like(nodes)
    position[nodes] = np.arange(len(nodes))
    return Ownership(ranks, count, nodes, position, start)


def order_types(owner: Owners, parts: int | None = None) -> dict[str, Ownership]:
    """`order_by_owner` for every node type, over as many ranks.

    Raises:
        PlanError: a rank below 0 or not below ``parts``.
    """
    owners = by_node_axis(owner)
    if parts is None:
        parts = max(1, *(int(np.max(ranks, initial=-1)) + 1 for ranks in owners.values()))
    return {axis: order_by_owner(ranks, parts) for axis, ranks in owners.items()}


def find_halos(
    owners: Mapping[str, Ownership],
    edge_indices: Mapping[str, NDArray[np.integer]],
    relations: Relations | None = None,
) -> dict[str, Halos]:
    """Finds every rank's halo: by node axis, the union over all edge axes of the sources that it reads and does not own.

    Args:
        owners: by node axis, over equally many ranks.
        edge_indices: by edge axis, [2, E] global node numbers, source first.
        relations: what the edge axes join.

    Raises:
        PlanError: an edge index that is not [2, E] or names a node that does not exist.
    """
    found: dict[str, list[IntArray]] = {axis: [] for axis in owners}
    for axis, edge_index in edge_indices.items():
        source_axis, destination_axis = ends_of(relations, axis)
        sources, destinations = owners[source_axis], owners[destination_axis]
        check_ends(axis, edge_index, len(sources.owner), len(destinations.owner))
        source, destination = np.asarray(edge_index)
        reads = destinations.owner[destination]
        cut = np.flatnonzero(sources.owner[source] != reads)
        # one number per cut edge that sorts by (rank that reads, owner of the source, source)
        keys = reads[cut] * len(sources.owner) + sources.position[source[cut]]
        found[source_axis].append(distinct(keys))
    return {axis: _halos(ownership, found[axis]) for axis, ownership in owners.items()}


def _halos(ownership: Ownership, found: list[IntArray]) -> Halos:
    keys = distinct(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
    reader, position = np.divmod(keys, max(len(ownership.owner), 1))
    nodes = ownership.nodes[position]
    start = np.searchsorted(reader, np.arange(ownership.parts + 1))
    return Halos(start.astype(np.int64), nodes, ownership.owner[nodes], reader)


def check_ends(axis: str, edge_index: NDArray[np.integer], sources: int, destinations: int) -> None:
    """Checks the node numbers of a relation: it is [2, E], and each end names nodes that exist.

    Raises:
        PlanError: otherwise, naming the axis and the first number that is out of range.
    """
    edges = np.asarray(edge_index)
    if sources == destinations or edges.ndim != 2 or edges.shape[0] != 2:
        check_nodes(axis, edges, sources)
        return
    for end, total in zip(edges, (sources, destinations), strict=True):
        _check_range(axis, end, total)


def check_nodes(axis: str, nodes: NDArray[np.integer], total: int) -> None:
    """Checks node numbers: an edge index is [2, E], a list of nodes [K], and every number lies in 0 .. N-1.

    Raises:
        PlanError: otherwise, naming the axis and the first number that is out of range.
    """
    listed = is_index_axis(axis)
    if nodes.ndim != (1 if listed else 2) or (not listed and nodes.shape[0] != 2):
        wanted = "[K]" if listed else "[2, E]"
        raise PlanError(f"'{axis}' has shape {list(nodes.shape)}; it must be {wanted}")
    _check_range(axis, nodes, total)


def _check_range(axis: str, nodes: NDArray[np.integer], total: int) -> None:
    if nodes.size and (int(nodes.min()) < 0 or int(nodes.max()) >= total):
        first = int(nodes[(nodes < 0) | (nodes >= total)][0])
        raise PlanError(
            f"'{axis}' names node {first} but the graph has {total} nodes; "
            f"its values must lie in 0 .. {total - 1}"
        )


def distinct(keys: IntArray) -> IntArray:
    """The distinct keys, ascending. numpy's ``unique`` hashes, which takes eighty times as long on ten million."""
    ordered = np.sort(keys)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def group(ranks: IntArray, parts: int) -> tuple[IntArray, IntArray]:
    """Positions sorted by rank, ascending within a rank, and where each rank's begin: [n], [P + 1]."""
    # numpy's stable sort of 16-bit integers is a radix sort, ten times faster than that of 64-bit ones
    small = ranks.astype(np.uint16) if parts <= 2**16 else ranks
    order = np.argsort(small, kind="stable").astype(np.int64, copy=False)
    start = np.zeros(parts + 1, dtype=np.int64)
    np.cumsum(np.bincount(ranks, minlength=parts), out=start[1:])
    return order, start
