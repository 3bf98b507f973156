"""Closed partitions: whole graphs or connected components, packed into parts so that no edge joins two of them. No torch.

A part of a closed partition has no halo, and every graph of a batch lies within one part, so that per-graph rows have
owners, too. A part may be empty: there may be fewer units than parts.

Letters: N nodes, B graphs, U units, P parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import PlanError

IntArray = NDArray[np.int64]

BALANCE = 1.1
"""Load of the fullest part over the mean that a packing is searched for."""

_MOST_STEPS = 20_000
"""Placements that the search for a balanced packing tries before it gives up."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What is never cut.

    Attributes:
        of: [N] unit of each node; graph_of: [B] unit of each graph, None where the nodes are not grouped into graphs.
        count: U; kind: ``graph`` where each is one graph, ``component`` where edges alone say what belongs together.
    """

    of: IntArray
    graph_of: IntArray | None
    count: int
    kind: Literal["graph", "component"]


@dataclass(frozen=True, slots=True, eq=False)
class ClosedOwner:
    """Who owns what in a closed partition.

    Attributes:
        nodes: [N] part of each node; graphs: [B] part of each graph, None where the nodes are not grouped into graphs.
        parts: P.
    """

    nodes: IntArray
    graphs: IntArray | None
    parts: int


def units_of(
    nodes: int,
    edge_indices: Mapping[str, NDArray[np.integer]],
    batch: NDArray[np.integer] | None = None,
    graphs: int = 0,
) -> Units:
    """Groups the nodes of a graph into units that no edge joins.

    With a ``batch`` vector every graph is a unit, but graphs that an edge joins are one. Without, the units are the
    connected components, an isolated node among them.

    Args:
        nodes: N.
        edge_indices: by edge axis, [2, E] node numbers.
        batch: [N] graph of each node, or None.
        graphs: B, where there is a ``batch``; graphs without nodes are units as well.
    """
    whole = np.arange(nodes, dtype=np.int64) if batch is None else batch.astype(np.int64)
    total = nodes if batch is None else graphs
    joined = [whole[np.asarray(edges)] for edges in edge_indices.values()]
    across = [pairs[:, pairs[0] != pairs[1]] for pairs in joined]
    pairs = np.concatenate(across, axis=1) if across else np.empty((2, 0), dtype=np.int64)
    merged = _components(total, pairs) if pairs.size else np.arange(total, dtype=np.int64)
    count = int(merged.max(initial=-1)) + 1
    kind: Literal["graph", "component"] = (
        "graph" if batch is not None and count == total else "component"
    )
    return Units(merged[whole], None if batch is None else merged, count, kind)


def closed_owner(
    units: Units, edge_indices: Mapping[str, NDArray[np.integer]], parts: int
) -> ClosedOwner:
    """Packs units into parts, balanced by nodes and edges (of all edge axes).

    Raises:
        PlanError: fewer than one part.
    """
    loads = np.bincount(units.of, minlength=units.count).astype(np.int64)
    for edges in edge_indices.values():
        destinations = np.asarray(edges)[1].astype(np.int64)
        loads += np.bincount(units.of[destinations], minlength=units.count)
    part = pack(loads, parts)
    graphs = None if units.graph_of is None else part[units.graph_of]
    return ClosedOwner(part[units.of], graphs, parts)


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
