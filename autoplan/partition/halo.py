"""What each rank of a node partition holds: owned rows, halo rows, local edges and who sends what to whom. No torch.

A node lives with its owner, an edge with the owner of its destination, a row of an attribute that lists nodes with the
owner of the listed node. A rank reads the source ends of its edges; those that others own are its halo. Send lists
answer the receivers' requests, so directed graphs are right from both sides. Rows per graph have owners in closed
partitions only (`partition.closed`); others do not cut that axis.

Letters: N nodes, E edges of one axis, P ranks, r a rank that reads, o a rank that owns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import PlanError
from autoplan.graphstats import ShardSizes
from autoplan.opgraph import GRAPH, NODE

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """One rank's part of a graph. All arrays are int64.

    Local numbering of nodes: the owned rows ``0 .. n-1`` in ascending global id, then the halo rows ``n .. n+h-1``.

    Attributes:
        rank: this rank; parts: number of ranks P.
        owned_nodes: [n] global ids, ascending.
        halo_nodes: [h] global ids, ordered by (owner, global id).
        recv_counts: [P] halo rows that come from each rank, in the order of ``halo_nodes``; zero from itself.
        send_rows: [s] local positions of owned rows to send, those for rank 0 first; each rank's in the order in
            which they lie in that rank's halo.
        send_counts: [P] how many of ``send_rows`` go to each rank; zero to itself.
        edge_rows: by edge axis, [e] global positions of the owned edges, ascending.
        edge_index: by edge axis, [2, e] local numbers of their ends, in the order of ``edge_rows``.
        index_rows: by index axis, [k] global positions of the owned entries, ascending.
        index_values: by index axis, [k] local numbers of the nodes they list (always owned).
        owned_counts: by axis, [P] rows that every rank owns; their sum is the axis's global size.
        graph_rows: [g] global numbers of the owned graphs, ascending; None where the partition does not cut that axis.
        graphs: number of all graphs, 0 where the nodes are not grouped into graphs.
        closed: no edge and no graph is cut: there is no halo.
    """

    rank: int
    parts: int
    owned_nodes: IntArray
    halo_nodes: IntArray
    recv_counts: IntArray
    send_rows: IntArray
    send_counts: IntArray
    edge_rows: Mapping[str, IntArray]
    edge_index: Mapping[str, IntArray]
    index_rows: Mapping[str, IntArray]
    index_values: Mapping[str, IntArray]
    owned_counts: Mapping[str, IntArray]
    graph_rows: IntArray | None = None
    graphs: int = 0
    closed: bool = False

    def rows(self, axis: str) -> IntArray:
        """Global positions of the rows this rank owns along an axis. Raises KeyError for an axis it does not know."""
        if axis == NODE:
            return self.owned_nodes
        if axis == GRAPH and self.graph_rows is not None:
            return self.graph_rows
        return self.edge_rows[axis] if axis in self.edge_rows else self.index_rows[axis]

    def is_empty(self, part: int | None = None) -> bool:
        """Whether a part of several (this one, or another) has no rows of any axis: every part knows this of all."""
        number = self.rank if part is None else part
        return self.parts > 1 and not any(int(rows[number]) for rows in self.owned_counts.values())

    @property
    def sizes(self) -> ShardSizes:
        """Its row counts, as the prices read them."""
        return ShardSizes(
            owned_rows={axis: int(counts[self.rank]) for axis, counts in self.owned_counts.items()},
            halo_rows={NODE: len(self.halo_nodes)},
            sent_rows=len(self.send_rows),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ownership:
    """Nodes in the order of (owner, global id), which is the order of all ranks' owned rows one after the other.

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
    """The halo rows of all ranks, those of rank 0 first, each rank's by (owner, global id).

    Attributes:
        start: [P + 1] where each reader's rows begin.
        nodes: [H] global ids; owner: [H] their ranks; reader: [H] the rank that asked.
    """

    start: IntArray
    nodes: IntArray
    owner: IntArray
    reader: IntArray


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
    nodes, start = _group(ranks, count)
    position = np.empty_like(nodes)
    position[nodes] = np.arange(len(nodes))
    return Ownership(ranks, count, nodes, position, start)


def find_halos(ownership: Ownership, edge_indices: Mapping[str, NDArray[np.integer]]) -> Halos:
    """Finds every rank's halo: the union over all edge axes of the sources that it reads and does not own.

    Raises:
        PlanError: an edge index that is not [2, E] or names a node that does not exist.
    """
    owner, total = ownership.owner, len(ownership.owner)
    found = []
    for axis, edge_index in edge_indices.items():
        check_nodes(axis, np.asarray(edge_index), total)
        source, destination = np.asarray(edge_index)
        reads = owner[destination]
        cut = np.flatnonzero(owner[source] != reads)
        # one number per cut edge that sorts by (rank that reads, owner of the source, source)
        found.append(distinct(reads[cut] * total + ownership.position[source[cut]]))
    keys = distinct(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
    reader, position = np.divmod(keys, max(total, 1))
    nodes = ownership.nodes[position]
    start = np.searchsorted(reader, np.arange(ownership.parts + 1))
    return Halos(start.astype(np.int64), nodes, owner[nodes], reader)


def build_shards(
    owner: NDArray[np.integer],
    edge_indices: Mapping[str, NDArray[np.integer]],
    index_attributes: Mapping[str, NDArray[np.integer]],
    *,
    parts: int | None = None,
    closed: bool = False,
    graph_owner: NDArray[np.integer] | None = None,
    graphs: int = 0,
) -> tuple[Shard, ...]:
    """Cuts a graph into one shard per rank.

    Args:
        owner: [N] the rank that owns each node.
        edge_indices: by edge axis (``edge``, ``edge:ATTRIBUTE``), [2, E] global node numbers, source first.
        index_attributes: by index axis (``index:ATTRIBUTE``), [K] global numbers of the listed nodes.
        parts: number of ranks; by default the highest owner plus one. Ranks may own nothing.
        closed: the partition is to be a closed one.
        graph_owner: of a closed partition, [B] the rank that owns each graph, where the nodes are grouped into graphs.
        graphs: B, for a partition that is not closed; its ranks know the number and own none.

    Raises:
        PlanError: an owner, an end of an edge or a listed node that does not exist, or an edge that a closed partition
            cuts.
    """
    ownership = order_by_owner(owner, parts)
    halos = find_halos(ownership, edge_indices)
    if closed and len(halos.nodes):
        raise PlanError(
            f"node {int(halos.nodes[0])} is read by rank {int(halos.reader[0])} and owned by rank {int(halos.owner[0])}: "
            "an edge joins two parts of a closed partition; pack whole units (partition.closed)"
        )
    ranks = range(ownership.parts)
    counts = {NODE: np.diff(ownership.start)}

    edges: dict[str, tuple[list[IntArray], list[IntArray]]] = {}
    for axis, edge_index in edge_indices.items():
        edges[axis] = _local_edges(ownership, halos, np.asarray(edge_index))
        counts[axis] = np.array([len(rows) for rows in edges[axis][0]], dtype=np.int64)

    listed: dict[str, tuple[list[IntArray], list[IntArray]]] = {}
    for axis, values in index_attributes.items():
        listed[axis] = _local_entries(ownership, axis, np.asarray(values))
        counts[axis] = np.array([len(rows) for rows in listed[axis][0]], dtype=np.int64)

    graph_rows: list[IntArray | None] = [None] * ownership.parts
    if graph_owner is not None:
        by_graph = order_by_owner(graph_owner, ownership.parts)
        bounds = itertools.pairwise(by_graph.start)
        graph_rows = [by_graph.nodes[a:b].copy() for a, b in bounds]
        counts[GRAPH] = np.diff(by_graph.start)
        graphs = len(by_graph.nodes)

    send_rows, send_counts = _answers(ownership, halos)
    recv_counts = send_counts.T
    return tuple(
        Shard(
            rank=rank,
            parts=ownership.parts,
            owned_nodes=ownership.nodes[ownership.start[rank] : ownership.start[rank + 1]].copy(),
            halo_nodes=halos.nodes[halos.start[rank] : halos.start[rank + 1]].copy(),
            recv_counts=recv_counts[rank].copy(),
            send_rows=send_rows[rank],
            send_counts=send_counts[rank].copy(),
            edge_rows={axis: rows[rank] for axis, (rows, _) in edges.items()},
            edge_index={axis: ends[rank] for axis, (_, ends) in edges.items()},
            index_rows={axis: rows[rank] for axis, (rows, _) in listed.items()},
            index_values={axis: values[rank] for axis, (_, values) in listed.items()},
            owned_counts=counts,
            graph_rows=graph_rows[rank],
            graphs=graphs,
            closed=closed,
        )
        for rank in ranks
    )


def gather_order(shards: Sequence[Shard], axis: str) -> IntArray:
    """Global positions of the rows in an all-gather's result: rank 0's owned rows, then rank 1's, and so on."""
    return np.concatenate([shard.rows(axis) for shard in shards])


def check_nodes(axis: str, nodes: NDArray[np.integer], total: int) -> None:
    """Checks node numbers: an edge index is [2, E], a list of nodes [K], and every number lies in 0 .. N-1.

    Raises:
        PlanError: otherwise, naming the axis and the first number that is out of range.
    """
    listed = axis.startswith("index:")
    if nodes.ndim != (1 if listed else 2) or (not listed and nodes.shape[0] != 2):
        wanted = "[K]" if listed else "[2, E]"
        raise PlanError(f"'{axis}' has shape {list(nodes.shape)}; it must be {wanted}")
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


def _group(ranks: IntArray, parts: int) -> tuple[IntArray, IntArray]:
    """Positions sorted by rank, ascending within a rank, and where each rank's begin: [n], [P + 1]."""
    # numpy's stable sort of 16-bit integers is a radix sort, ten times faster than that of 64-bit ones
    small = ranks.astype(np.uint16) if parts <= 2**16 else ranks
    order = np.argsort(small, kind="stable").astype(np.int64, copy=False)
    start = np.zeros(parts + 1, dtype=np.int64)
    np.cumsum(np.bincount(ranks, minlength=parts), out=start[1:])
    return order, start


def _local_edges(
    ownership: Ownership, halos: Halos, edge_index: NDArray[np.integer]
) -> tuple[list[IntArray], list[IntArray]]:
    """Per rank the owned edges of one axis, and their ends in local numbers."""
    owner, position, start = ownership.owner, ownership.position, ownership.start
    reader = owner[edge_index[1]]
    order, edge_start = _group(reader, ownership.parts)
    source, destination, reader = edge_index[0][order], edge_index[1][order], reader[order]
    local = np.empty((2, len(order)), dtype=np.int64)
    local[0] = position[source] - start[reader]
    local[1] = position[destination] - start[reader]
    far = owner[source] != reader

    # a rank reads only the entries that it has just written, so one table serves all without clearing
    number = np.empty(len(owner), dtype=np.int64)
    rows: list[IntArray] = []
    ends: list[IntArray] = []
    for rank in range(ownership.parts):
        halo = halos.nodes[halos.start[rank] : halos.start[rank + 1]]
        number[halo] = np.arange(len(halo)) + (start[rank + 1] - start[rank])
        own = slice(edge_start[rank], edge_start[rank + 1])
        mine = local[:, own].copy()
        mine[0, far[own]] = number[source[own][far[own]]]
        rows.append(order[own].copy())
        ends.append(mine)
    return rows, ends


def _local_entries(
    ownership: Ownership, axis: str, values: NDArray[np.integer]
) -> tuple[list[IntArray], list[IntArray]]:
    """Per rank the owned entries of an attribute that lists nodes, and the nodes in local numbers."""
    check_nodes(axis, values, len(ownership.owner))
    ranks = ownership.owner[values]
    order, start = _group(ranks, ownership.parts)
    local = ownership.position[values[order]] - ownership.start[ranks[order]]
    bounds = [slice(a, b) for a, b in itertools.pairwise(start)]
    return [order[s].copy() for s in bounds], [local[s].copy() for s in bounds]


def _answers(ownership: Ownership, halos: Halos) -> tuple[list[IntArray], IntArray]:
    """Per rank the owned rows that others asked for, by asker in the asker's order; and counts [P owner, P reader]."""
    parts = ownership.parts
    # requests lie by (reader, owner, id); a stable sort by owner keeps (reader, id) within each owner
    order, start = _group(halos.owner, parts)
    rows = ownership.position[halos.nodes[order]] - ownership.start[halos.owner[order]]
    counts = np.bincount(halos.owner * parts + halos.reader, minlength=parts * parts)
    send = [rows[a:b].copy() for a, b in itertools.pairwise(start)]
    return send, counts.reshape(parts, parts).astype(np.int64)
