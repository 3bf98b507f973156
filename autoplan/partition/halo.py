"""What each rank of a partition holds: owned rows, halo rows, local edges and who sends what to whom. No torch.

A node lives with its owner, an edge with the owner of its destination, a row of an attribute that lists nodes with the
owner of the listed node. A rank reads the source ends of its edges; those that others own are its halo, for each node type
one, whatever the relations. Send lists answer the receivers' requests, so directed graphs are right from both sides. Rows
per graph have owners in closed partitions only (`partition.closed`); others do not cut that axis.

Letters: N nodes of one type, E edges of one axis, P ranks, r a rank that reads, o a rank that owns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.errors import PlanError
from autoplan.graphstats import ShardSizes
from autoplan.opgraph import GRAPH, listed_axis
from autoplan.partition.ownership import (
    Halos,
    IntArray,
    Owners,
    Ownership,
    Relations,
    check_nodes,
    ends_of,
    find_halos,
    group,
    order_by_owner,
    order_types,
)


@dataclass(frozen=True, slots=True, eq=False)
class NodeRows:
    """One rank's nodes of one type. All arrays are int64.

    Local numbering: the owned rows ``0 .. n-1`` in ascending global id, then the halo rows ``n .. n+h-1``.

    Attributes:
        owned: [n] global ids, ascending.
        halo: [h] global ids, ordered by (owner, global id).
        recv_counts: [P] halo rows that come from each rank, in the order of ``halo``; zero from itself.
        send_rows: [s] local positions of owned rows to send, those for rank 0 first; each rank's in the order in
            which they lie in that rank's halo.
        send_counts: [P] how many of ``send_rows`` go to each rank; zero to itself.
    """

    owned: IntArray
    halo: IntArray
    recv_counts: IntArray
    send_rows: IntArray
    send_counts: IntArray

    @classmethod
    def alone(cls, owned: IntArray, parts: int) -> NodeRows:
        """Rows without a halo, of which no rank of ``parts`` reads any."""
        none, nobody = np.empty(0, dtype=np.int64), np.zeros(parts, dtype=np.int64)
        return cls(owned, none, nobody, none, nobody)

    @property
    def local(self) -> IntArray:
        """[n + h] global ids in the order of local numbers."""
        return np.concatenate([self.owned, self.halo])


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """One rank's part of a graph. All arrays are int64.

    Attributes:
        rank: this rank; parts: number of ranks P.
        nodes: by node axis, its rows.
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
    nodes: Mapping[str, NodeRows]
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
        if axis in self.nodes:
            return self.nodes[axis].owned
        if axis == GRAPH and self.graph_rows is not None:
            return self.graph_rows
        return self.edge_rows[axis] if axis in self.edge_rows else self.index_rows[axis]

    def local_rows(self, axis: str) -> IntArray:
        """Global positions of the rows that local numbers along an axis name: owned, then halo rows. Raises as `rows`."""
        return self.nodes[axis].local if axis in self.nodes else self.rows(axis)

    def is_empty(self, part: int | None = None) -> bool:
        """Whether a part of several (this one, or another) has no rows of any axis: every part knows this of all."""
        number = self.rank if part is None else part
        return self.parts > 1 and not any(int(rows[number]) for rows in self.owned_counts.values())

    @property
    def sizes(self) -> ShardSizes:
        """Its row counts, as the prices read them."""
        return ShardSizes(
            owned_rows={axis: int(counts[self.rank]) for axis, counts in self.owned_counts.items()},
            halo_rows={axis: len(rows.halo) for axis, rows in self.nodes.items()},
            sent_rows={axis: len(rows.send_rows) for axis, rows in self.nodes.items()},
        )


def build_shards(
    owner: Owners,
    edge_indices: Mapping[str, NDArray[np.integer]],
    index_attributes: Mapping[str, NDArray[np.integer]],
    *,
    relations: Relations | None = None,
    parts: int | None = None,
    closed: bool = False,
    graph_owner: NDArray[np.integer] | None = None,
    graphs: int = 0,
) -> tuple[Shard, ...]:
    """Cuts a graph into one shard per rank.

    Args:
        owner: [N] the rank that owns each node; of several types by node axis.
        edge_indices: by edge axis (``edge``, ``edge:ATTRIBUTE``), [2, E] global node numbers, source first.
        index_attributes: by index axis (``index:ATTRIBUTE``), [K] global numbers of the listed nodes.
        relations: what the edge axes join, where there are several node types.
        parts: number of ranks; by default the highest owner plus one. Ranks may own nothing.
        closed: the partition is to be a closed one.
        graph_owner: of a closed partition, [B] the rank that owns each graph, where the nodes are grouped into graphs.
        graphs: B, for a partition that is not closed; its ranks know the number and own none.

    Raises:
        PlanError: an owner, an end of an edge or a listed node that does not exist, or an edge that a closed partition
            cuts.
    """
    owners = order_types(owner, parts)
    halos = find_halos(owners, edge_indices, relations)
    if closed:
        _check_closed(halos)
    count = next(iter(owners.values())).parts
    counts = {axis: np.diff(ownership.start) for axis, ownership in owners.items()}

    edges: dict[str, tuple[list[IntArray], list[IntArray]]] = {}
    for axis, edge_index in edge_indices.items():
        source, destination = ends_of(relations, axis)
        edges[axis] = _local_edges(
            owners[source], owners[destination], halos[source], np.asarray(edge_index)
        )
        counts[axis] = np.array([len(rows) for rows in edges[axis][0]], dtype=np.int64)

    listed: dict[str, tuple[list[IntArray], list[IntArray]]] = {}
    for axis, values in index_attributes.items():
        listed[axis] = _local_entries(owners[listed_axis(axis)], axis, np.asarray(values))
        counts[axis] = np.array([len(rows) for rows in listed[axis][0]], dtype=np.int64)

    graph_rows: list[IntArray | None] = [None] * count
    if graph_owner is not None:
        by_graph = order_by_owner(graph_owner, count)
        bounds = itertools.pairwise(by_graph.start)
        graph_rows = [by_graph.nodes[a:b].copy() for a, b in bounds]
        counts[GRAPH] = np.diff(by_graph.start)
        graphs = len(by_graph.nodes)

    nodes = {axis: _node_rows(ownership, halos[axis]) for axis, ownership in owners.items()}
    return tuple(
        Shard(
            rank=rank,
            parts=count,
            nodes={axis: rows[rank] for axis, rows in nodes.items()},
            edge_rows={axis: rows[rank] for axis, (rows, _) in edges.items()},
            edge_index={axis: ends[rank] for axis, (_, ends) in edges.items()},
            index_rows={axis: rows[rank] for axis, (rows, _) in listed.items()},
            index_values={axis: values[rank] for axis, (_, values) in listed.items()},
            owned_counts=counts,
            graph_rows=graph_rows[rank],
            graphs=graphs,
            closed=closed,
        )
        for rank in range(count)
    )


def gather_order(shards: Sequence[Shard], axis: str) -> IntArray:
    """Global positions of the rows in an all-gather's result: rank 0's owned rows, then rank 1's, and so on."""
    return np.concatenate([shard.rows(axis) for shard in shards])


def _check_closed(halos: Mapping[str, Halos]) -> None:
    for found in halos.values():
        if len(found.nodes):
            raise PlanError(
                f"node {int(found.nodes[0])} is read by rank {int(found.reader[0])} and owned by rank "
                f"{int(found.owner[0])}: an edge joins two parts of a closed partition; pack whole units (partition.closed)"
            )


def _node_rows(ownership: Ownership, halos: Halos) -> list[NodeRows]:
    """Per rank its nodes of one type."""
    send_rows, send_counts = _answers(ownership, halos)
    recv_counts = send_counts.T
    return [
        NodeRows(
            owned=ownership.nodes[ownership.start[rank] : ownership.start[rank + 1]].copy(),
            halo=halos.nodes[halos.start[rank] : halos.start[rank + 1]].copy(),
            recv_counts=recv_counts[rank].copy(),
            send_rows=send_rows[rank],
            send_counts=send_counts[rank].copy(),
        )
        for rank in range(ownership.parts)
    ]


def _local_edges(
    sources: Ownership,
    destinations: Ownership,
    halos: Halos,
    edge_index: NDArray[np.integer],
) -> tuple[list[IntArray], list[IntArray]]:
    """Per rank the owned edges of one axis, and their ends in local numbers; ``halos``: of the sources' axis."""
    reader = destinations.owner[edge_index[1]]
    order, edge_start = group(reader, destinations.parts)
    source, destination, reader = edge_index[0][order], edge_index[1][order], reader[order]
    local = np.empty((2, len(order)), dtype=np.int64)
    local[0] = sources.position[source] - sources.start[reader]
    local[1] = destinations.position[destination] - destinations.start[reader]
    far = sources.owner[source] != reader

    # a rank reads only the entries that it has just written, so one table serves all without clearing
    number = np.empty(len(sources.owner), dtype=np.int64)
    rows: list[IntArray] = []
    ends: list[IntArray] = []
    for rank in range(sources.parts):
        halo = halos.nodes[halos.start[rank] : halos.start[rank + 1]]
        owned = sources.start[rank + 1] - sources.start[rank]
        number[halo] = np.arange(len(halo)) + owned
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
    order, start = group(ranks, ownership.parts)
    local = ownership.position[values[order]] - ownership.start[ranks[order]]
    bounds = [slice(a, b) for a, b in itertools.pairwise(start)]
    return [order[s].copy() for s in bounds], [local[s].copy() for s in bounds]


def _answers(ownership: Ownership, halos: Halos) -> tuple[list[IntArray], IntArray]:
    """Per rank the owned rows that others asked for, by asker in the asker's order; and counts [P owner, P reader]."""
    parts = ownership.parts
    # requests lie by (reader, owner, id); a stable sort by owner keeps (reader, id) within each owner
    order, start = group(halos.owner, parts)
    rows = ownership.position[halos.nodes[order]] - ownership.start[halos.owner[order]]
    counts = np.bincount(halos.owner * parts + halos.reader, minlength=parts * parts)
    send = [rows[a:b].copy() for a, b in itertools.pairwise(start)]
    return send, counts.reshape(parts, parts).astype(np.int64)
