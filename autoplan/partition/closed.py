"""Closed partitions: whole graphs or connected components, packed into parts so that no edge joins two of them. No torch.

A part of a closed partition has no halo, and every graph of a batch lies within one part, so that per-graph rows have
owners, too. A part may be empty: there may be fewer units than parts.

Letters: N nodes of one type, B graphs, U units, P parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import PlanError
from autoplan.opgraph import NODE
from autoplan.partition.ownership import IntArray, Relations, ends_of
from autoplan.partition.union import NodeUnion

BALANCE = 1.1
"""Load of the fullest part over the mean that a packing is searched for."""

_MOST_STEPS = 20_000
"""Placements that the search for a balanced packing tries before it gives up."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What is never cut.

    Attributes:
        of: by node axis, [N] unit of each node; graph_of: [B] unit of each graph, None where the nodes are not grouped into
            graphs.
        count: U; kind: ``graph`` where each is one graph, ``component`` where edges alone say what belongs together.
    """

    of: Mapping[str, IntArray]
    graph_of: IntArray | None
    count: int
    kind: Literal["graph", "component"]


@dataclass(frozen=True, slots=True, eq=False)
class ClosedOwner:
    """Who owns what in a closed partition.

    Attributes:
        nodes: by node axis, [N] part of each node; graphs: [B] part of each graph, None where the nodes are not grouped into
            graphs.
        parts: P.
    """

    nodes: Mapping[str, IntArray]
    graphs: IntArray | None
    parts: int


def units_of(
    nodes: int | Mapping[str, int],
    edge_indices: Mapping[str, NDArray[np.integer]],
    batch: NDArray[np.integer] | Mapping[str, NDArray[np.integer]] | None = None,
    graphs: int = 0,
    relations: Relations | None = None,
) -> Units:
    """Groups the nodes of a graph into units that no edge joins.

    With a ``batch`` vector every graph is a unit, but graphs that an edge joins are one. Without, the units are the
    connected components, an isolated node among them.

    Args:
        nodes: N; of several types by node axis.
        edge_indices: by edge axis, [2, E] node numbers.
        batch: [N] graph of each node, or None; of several types by node axis.
        graphs: B, where there is a ``batch``; graphs without nodes are units as well.
        relations: what the edge axes join, where there are several node types.
    """
    union = NodeUnion(nodes if isinstance(nodes, Mapping) else {NODE: nodes})
    whole = np.arange(union.total, dtype=np.int64)
    if batch is not None:
        numbers = batch if isinstance(batch, Mapping) else {NODE: batch}
        whole = np.concatenate([numbers[axis].astype(np.int64) for axis in union.nodes])
    total = union.total if batch is None else graphs
    pairs = whole[union.joined(edge_indices, relations)]
    pairs = pairs[:, pairs[0] != pairs[1]]
    merged = _components(total, pairs) if pairs.size else np.arange(total, dtype=np.int64)
    count = int(merged.max(initial=-1)) + 1
    kind: Literal["graph", "component"] = (
        "graph" if batch is not None and count == total else "component"
    )
    return Units(union.split(merged[whole]), None if batch is None else merged, count, kind)


def closed_owner(
    units: Units,
    edge_indices: Mapping[str, NDArray[np.integer]],
    parts: int,
    relations: Relations | None = None,
) -> ClosedOwner:
    """Packs units into parts, balanced by nodes and edges (of all edge axes).

    Raises:
        PlanError: fewer than one part.
    """
    loads = np.zeros(units.count, dtype=np.int64)
    for of in units.of.values():
        loads += np.bincount(of, minlength=units.count)
    for axis, edges in edge_indices.items():
        of = units.of[ends_of(relations, axis)[1]]
        destinations = np.asarray(edges)[1].astype(np.int64)
        loads += np.bincount(of[destinations], minlength=units.count)
    part = pack(loads, parts)
    graphs = None if units.graph_of is None else part[units.graph_of]
    return ClosedOwner({axis: part[of] for axis, of in units.of.items()}, graphs, parts)


def pack(loads: NDArray[np.integer], parts: int) -> IntArray:
    """Gives every unit a part: the largest first, each to the part with the least load; equal inputs give equal packings.

    Largest-first alone may end a third above the best packing (Graham 1969); where it ends above `BALANCE`, a search
    looks for a packing below.

    Args:
        loads: [U] load of each unit, not negative.
        parts: P, at least 1.

    Returns:
        [U] part of each unit. Parts may stay empty.

    Raises:
        PlanError: fewer than one part.
    """
    if parts < 1:
        raise PlanError(f"a partition needs at least 1 part, not {parts}")
    order = np.argsort(-np.asarray(loads, dtype=np.int64), kind="stable")
    sizes = [int(load) for load in np.asarray(loads)[order]]
    limit = BALANCE * sum(sizes) / parts
    chosen = _largest_first(sizes, parts)
    if max(_filled(sizes, chosen, parts)) > limit:
        chosen = _within(sizes, parts, limit) or chosen
    found = np.empty(len(sizes), dtype=np.int64)
    found[order] = chosen
    return found


def _components(total: int, pairs: IntArray) -> IntArray:
    """[total] connected component of each number, counted in the order of their lowest members."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(pairs.shape[1], dtype=np.int8)
    _, label = connected_components(
        coo_array((ones, (pairs[0], pairs[1])), shape=(total, total)), directed=False
    )
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    ordered: IntArray = rank[inverse.reshape(-1)]
    return ordered


def _largest_first(sizes: list[int], parts: int) -> list[int]:
    """Part of each size, which descend: the part with the least load so far, of equals the first."""
    heap = [(0, part) for part in range(parts)]
    chosen = []
    for size in sizes:
        load, part = heapq.heappop(heap)
        heapq.heappush(heap, (load + size, part))
        chosen.append(part)
    return chosen


def _filled(sizes: list[int], chosen: list[int], parts: int) -> list[int]:
    load = [0] * parts
    for size, part in zip(sizes, chosen, strict=True):
        load[part] += size
    return load


def _within(sizes: list[int], parts: int, limit: float) -> list[int] | None:
    """A packing in which no part exceeds the limit: depth first, fullest fitting part first; None where none was found.

    Sizes descend. Parts of equal load are alike, so only one of them is tried.
    """
    load = [0] * parts
    untried: list[list[int]] = []
    chosen: list[int] = []
    for _ in range(_MOST_STEPS):
        if len(untried) == len(chosen):
            if len(chosen) == len(sizes):
                return chosen
            size = sizes[len(chosen)]
            alike = {load[part]: part for part in reversed(range(parts))}
            untried.append([alike[have] for have in sorted(alike) if have + size <= limit])
        if untried[-1]:
            part = untried[-1].pop()
            load[part] += sizes[len(chosen)]
            chosen.append(part)
            continue
        untried.pop()
        if not chosen:
            return None
        load[chosen.pop()] -= sizes[len(chosen)]
    return None
