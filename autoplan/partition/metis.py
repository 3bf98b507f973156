"""Which rank owns which node: METIS' k-way partition, balanced by edges. No torch.

A rank's work follows the edges it owns, which are the edges into its nodes; so a node weighs 1 + its in-degree. METIS
wants an undirected simple graph: directions, self-loops and duplicates are dropped before it sees the edges.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pymetis
from numpy.typing import NDArray

from autoplan.errors import PlanError
from autoplan.opgraph import EDGE, is_primary_relation
from autoplan.partition.ownership import IntArray, Relations, check_nodes, distinct
from autoplan.partition.union import NodeUnion


def partition_types(
    nodes: Mapping[str, int],
    edge_indices: Mapping[str, NDArray[np.integer]],
    relations: Relations | None,
    parts: int,
    *,
    seed: int = 0,
) -> dict[str, IntArray]:
    """Assigns the nodes of every type to ranks: `partition_nodes` of the union of all types, by each relation's own edges.

    Args:
        nodes: by node axis, their number.
        edge_indices: by edge axis, [2, E] node numbers, source first. Those of further attributes do not count.
        relations: what the edge axes join, where there are several node types.
        parts: number of ranks P.
        seed: of METIS' random choices.

    Returns:
        By node axis, [N] int64 ranks. Nodes of all types are balanced together: a rank may own none of one type.

    Raises:
        PlanError: parts below 1, or an edge to a node that does not exist.
    """
    union = NodeUnion(nodes)
    primary = {axis: edges for axis, edges in edge_indices.items() if is_primary_relation(axis)}
    owner = partition_nodes(union.joined(primary, relations), union.total, parts, seed=seed)
    return union.split(owner)


def partition_nodes(
    edge_index: NDArray[np.integer],
    num_nodes: int,
    parts: int,
    *,
    weights: Sequence[float] | None = None,
    seed: int = 0,
) -> IntArray:
    """Assigns every node to a rank. The same arguments give the same answer.

    Args:
        edge_index: [2, E] node numbers, source first; directed, with self-loops and duplicates as they come.
        num_nodes: N.
        parts: number of ranks P.
        weights: [P] the share of the work each rank is to get (any scale); equal by default.
        seed: of METIS' random choices.

    Returns:
        [N] int64 ranks. With N >= P every rank owns a node; with fewer nodes the last ranks own none.

    Raises:
        PlanError: parts below 1, weights that are not P positive numbers, or an edge to a node that does not exist.
    """
    edge_index = np.asarray(edge_index)
    shares = _shares(weights, parts)
    check_nodes(EDGE, edge_index, num_nodes)
    if parts == 1:
        return np.zeros(num_nodes, dtype=np.int64)
    if num_nodes <= parts:
        return np.arange(num_nodes, dtype=np.int64)
    work = 1 + np.bincount(edge_index[1].astype(np.int64), minlength=num_nodes)
    adjacency = _undirected(edge_index, num_nodes)
    if len(adjacency.adjacent):
        options = pymetis.Options(seed=seed)
        with _standard_output_to_null():
            answer = pymetis.part_graph(
                parts, adjacency, vweights=work, tpwgts=list(shares), options=options
            )
        owner = np.asarray(answer.vertex_part, dtype=np.int64)
    else:
        owner = _blocks(work, shares)
    return _without_empty_ranks(owner, work, shares)


def _shares(weights: Sequence[float] | None, parts: int) -> NDArray[np.float64]:
    """The part of the whole that each rank is to get: [P], positive, sums to 1."""
    if parts < 1:
        raise PlanError(f"a partition needs at least 1 part, not {parts}")
    given = [1.0] * parts if weights is None else [float(weight) for weight in weights]
    if len(given) != parts or not all(math.isfinite(w) and w > 0 for w in given):
        raise PlanError(
            f"weights {given} do not fit {parts} parts; give {parts} finite positive numbers"
        )
    return np.array(given) / math.fsum(given)


def _undirected(edge_index: NDArray[np.integer], num_nodes: int) -> pymetis.CSRAdjacency:
    """Each pair of different neighbours once in both directions, as rows of a CSR matrix."""
    source, destination = edge_index.astype(np.int64, copy=False)
    no_loop = source != destination
    source, destination = source[no_loop], destination[no_loop]
    pairs = distinct(
        np.concatenate([source * num_nodes + destination, destination * num_nodes + source])
    )
    rows, neighbours = np.divmod(pairs, num_nodes)
    starts = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=starts[1:])
    return pymetis.CSRAdjacency(starts, neighbours)


def _blocks(work: IntArray, shares: NDArray[np.float64]) -> IntArray:
    """Consecutive nodes, each rank's share of the work: for graphs without edges, which METIS does not take."""
    bounds = np.cumsum(shares)[:-1] * float(work.sum())
    middle = np.cumsum(work) - work / 2
    return np.searchsorted(bounds, middle, side="right").astype(np.int64)


def _without_empty_ranks(owner: IntArray, work: IntArray, shares: NDArray[np.float64]) -> IntArray:
    """Gives each rank that METIS left empty the lightest node of the rank with the most work for its share."""
    parts = len(shares)
    nodes = np.bincount(owner, minlength=parts)
    if nodes.all():
        return owner
    owner = owner.copy()
    load = np.bincount(owner, weights=work, minlength=parts)
    for empty in np.flatnonzero(nodes == 0):
        donor = int(np.argmax(np.where(nodes > 1, load / shares, -1.0)))
        candidates = np.flatnonzero(owner == donor)
        moved = candidates[np.argmin(work[candidates])]
        owner[moved] = empty
        for rank, sign in ((donor, -1), (empty, 1)):
            nodes[rank] += sign
            load[rank] += sign * work[moved]
    return owner


@contextmanager
def _standard_output_to_null() -> Iterator[None]:
    """Drops what C code prints: METIS complains on standard output, which belongs to the caller's ``--json``.

    Both flushes are of C's own buffer, which would otherwise be written after file descriptor 1 is back in place.
    """
    c_library = ctypes.CDLL(None)
    c_library.fflush(None)
    kept = os.dup(1)
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        yield
    finally:
        c_library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
