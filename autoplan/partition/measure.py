"""Counts what a graph and its partitions ask for: rows, degrees, cut edges, halo rows. No torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autoplan.graphstats import GraphStats, PartitionStats, ShardSizes
from autoplan.opgraph import GRAPH, NODE, is_primary_relation, listed_axis
from autoplan.partition.closed import Units
from autoplan.partition.ownership import (
    Owners,
    Relations,
    check_ends,
    check_nodes,
    ends_of,
    find_halos,
    order_types,
)


def measure(
    owner: Owners,
    edge_indices: Mapping[str, NDArray[np.integer]],
    index_attributes: Mapping[str, NDArray[np.integer]] | None = None,
    *,
    relations: Relations | None = None,
    parts: int | None = None,
    method: str = "metis",
    seed: int = 0,
    graph_owner: NDArray[np.integer] | None = None,
) -> PartitionStats:
    """Sizes of the shards that `halo.build_shards` would make, without making them.

    Args:
        owner: [N] the rank that owns each node; of several types by node axis.
        edge_indices: by edge axis, [2, E] global node numbers, source first.
        index_attributes: by index axis, [K] global numbers of the listed nodes.
        relations: what the edge axes join, where there are several node types.
        parts: number of ranks; by default the highest owner plus one.
        method: ``metis``, ``given``, ``single`` or ``closed``; kept for the plan.
        seed: what it was made with; kept for the plan.
        graph_owner: of a closed partition, [B] the rank that owns each graph, where the nodes are grouped into graphs.

    Raises:
        PlanError: an owner, an end of an edge or a listed node that does not exist.
    """
    owners = order_types(owner, parts)
    halos = find_halos(owners, edge_indices, relations)
    count = next(iter(owners.values())).parts
    rows = {axis: np.diff(ownership.start) for axis, ownership in owners.items()}
    cut_edges = 0
    for axis, edge_index in edge_indices.items():
        sources, destinations = (owners[end].owner for end in ends_of(relations, axis))
        source, destination = np.asarray(edge_index)
        rows[axis] = np.bincount(destinations[destination], minlength=count)
        cut_edges += int(np.count_nonzero(sources[source] != destinations[destination]))
    for axis, values in (index_attributes or {}).items():
        ranks = owners[listed_axis(axis)].owner
        check_nodes(axis, np.asarray(values), len(ranks))
        rows[axis] = np.bincount(ranks[values], minlength=count)
    if graph_owner is not None:
        rows[GRAPH] = np.bincount(graph_owner, minlength=count)
    read = {axis: np.diff(found.start) for axis, found in halos.items()}
    sent = {axis: np.bincount(found.owner, minlength=count) for axis, found in halos.items()}
    shards = tuple(
        ShardSizes(
            owned_rows={axis: int(counts[rank]) for axis, counts in rows.items()},
            halo_rows={axis: int(counts[rank]) for axis, counts in read.items()},
            sent_rows={axis: int(counts[rank]) for axis, counts in sent.items()},
        )
        for rank in range(count)
    )
    return PartitionStats(count, method, seed, cut_edges, shards)


def graph_stats(
    nodes: int | Mapping[str, int],
    edge_indices: Mapping[str, NDArray[np.integer]],
    index_attributes: Mapping[str, NDArray[np.integer]] | None = None,
    *,
    relations: Relations | None = None,
    attribute_bytes: Mapping[str, int] | None = None,
    partitions: Mapping[int, PartitionStats] | None = None,
    closed: Mapping[int, PartitionStats] | None = None,
    units: Units | None = None,
    graphs: int = 0,
) -> GraphStats:
    """Sizes of a graph: degrees by the edges of each relation's own ``edge_index``, isolated nodes by those of every axis.

    Args:
        nodes: N; of several types by node axis.
        edge_indices: by edge axis, [2, E] node numbers, source first.
        index_attributes: by index axis, [K] numbers of the listed nodes.
        relations: what the edge axes join, where there are several node types.
        attribute_bytes: by graph attribute.
        partitions: by number of parts; one part is added where it is missing.
        closed: closed partitions, by number of parts.
        units: what is never cut there; by default one component.
        graphs: number of graphs that the nodes are grouped into, 0: none.

    Raises:
        PlanError: an end of an edge or a listed node that does not exist.
    """
    count = dict(nodes) if isinstance(nodes, Mapping) else {NODE: nodes}
    rows = dict(count)
    touched = {axis: np.zeros(number, dtype=bool) for axis, number in count.items()}
    in_degree = {axis: np.zeros(number, dtype=np.int64) for axis, number in count.items()}
    primary = 0
    for axis, edge_index in edge_indices.items():
        ends = ends_of(relations, axis)
        edges = np.asarray(edge_index)
        check_ends(axis, edges, count[ends[0]], count[ends[1]])
        rows[axis] = int(edges.shape[1])
        for end, named in zip(ends, edges, strict=True):
            touched[end][named] = True
        if is_primary_relation(axis):
            degree = np.bincount(edges[1].astype(np.int64), minlength=count[ends[1]])
            in_degree[ends[1]] += degree
            primary += rows[axis]
    for axis, values in (index_attributes or {}).items():
        rows[axis] = len(values)
    if graphs:
        rows[GRAPH] = graphs
    known = dict(partitions or {})
    if 1 not in known:
        whole = {axis: np.zeros(number, dtype=np.int64) for axis, number in count.items()}
        known[1] = measure(
            whole, edge_indices, index_attributes, relations=relations, parts=1, method="single"
        )
    total = sum(count.values())
    return GraphStats(
        rows=rows,
        max_in_degree=max(int(degree.max(initial=0)) for degree in in_degree.values()),
        mean_in_degree=primary / total if total else 0.0,
        isolated_nodes=int(total - sum(np.count_nonzero(t) for t in touched.values())),
        attribute_bytes=dict(attribute_bytes or {}),
        partitions=dict(sorted(known.items())),
        closed=dict(sorted((closed or {}).items())),
        units=1 if units is None else units.count,
        unit="component" if units is None else units.kind,
    )
