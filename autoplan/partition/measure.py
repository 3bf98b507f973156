"""Counts what a graph and its partitions ask for: rows, degrees, cut edges, halo rows. No torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autoplan.graphstats import GraphStats, PartitionStats, ShardSizes
from autoplan.opgraph import EDGE, GRAPH, NODE
from autoplan.partition.closed import Units
from autoplan.partition.halo import check_nodes, find_halos, order_by_owner


def measure(
    owner: NDArray[np.integer],
    edge_indices: Mapping[str, NDArray[np.integer]],
    index_attributes: Mapping[str, NDArray[np.integer]] | None = None,
    *,
    parts: int | None = None,
    method: str = "metis",
    seed: int = 0,
    graph_owner: NDArray[np.integer] | None = None,
) -> PartitionStats:
    """Sizes of the shards that `halo.build_shards` would make, without making them.

    Args:
        owner: [N] the rank that owns each node.
        edge_indices: by edge axis, [2, E] global node numbers, source first.
        index_attributes: by index axis, [K] global numbers of the listed nodes.
        parts: number of ranks; by default the highest owner plus one.
        method: ``metis``, ``given``, ``single`` or ``closed``; kept for the plan.
        seed: what it was made with; kept for the plan.
        graph_owner: of a closed partition, [B] the rank that owns each graph, where the nodes are grouped into graphs.

    Raises:
        PlanError: an owner, an end of an edge or a listed node that does not exist.
    """
    ownership = order_by_owner(owner, parts)
    halos = find_halos(ownership, edge_indices)
    ranks = ownership.owner
    rows = {NODE: np.diff(ownership.start)}
    cut_edges = 0
    for axis, edge_index in edge_indices.items():
        source, destination = np.asarray(edge_index)
        rows[axis] = np.bincount(ranks[destination], minlength=ownership.parts)
        cut_edges += int(np.count_nonzero(ranks[source] != ranks[destination]))
    for axis, values in (index_attributes or {}).items():
        check_nodes(axis, np.asarray(values), len(ranks))
        rows[axis] = np.bincount(ranks[values], minlength=ownership.parts)
    if graph_owner is not None:
        rows[GRAPH] = np.bincount(graph_owner, minlength=ownership.parts)
    halo_rows = np.diff(halos.start)
    sent_rows = np.bincount(halos.owner, minlength=ownership.parts)
    shards = tuple(
        ShardSizes(
            owned_rows={axis: int(counts[rank]) for axis, counts in rows.items()},
            halo_rows={NODE: int(halo_rows[rank])},
            sent_rows=int(sent_rows[rank]),
        )
        for rank in range(ownership.parts)
    )
    return PartitionStats(ownership.parts, method, seed, cut_edges, shards)


def graph_stats(
    num_nodes: int,
    edge_indices: Mapping[str, NDArray[np.integer]],
    index_attributes: Mapping[str, NDArray[np.integer]] | None = None,
    *,
    attribute_bytes: Mapping[str, int] | None = None,
    partitions: Mapping[int, PartitionStats] | None = None,
    closed: Mapping[int, PartitionStats] | None = None,
    units: Units | None = None,
    graphs: int = 0,
) -> GraphStats:
    """Sizes of a graph. Degrees are those of the primary edges (axis ``edge``), isolated nodes those of no axis.

    Args:
        num_nodes: N.
        edge_indices: by edge axis, [2, E] node numbers, source first.
        index_attributes: by index axis, [K] numbers of the listed nodes.
        attribute_bytes: by graph attribute.
        partitions: by number of parts; one part is added where it is missing.
        closed: closed partitions, by number of parts.
        units: what is never cut there; by default one component.
        graphs: number of graphs that the nodes are grouped into, 0: none.

    Raises:
        PlanError: an end of an edge or a listed node that does not exist.
    """
    rows = {NODE: num_nodes}
    touched = np.zeros(num_nodes, dtype=bool)
    for axis, edge_index in edge_indices.items():
        check_nodes(axis, np.asarray(edge_index), num_nodes)
        rows[axis] = int(np.asarray(edge_index).shape[1])
        touched[np.asarray(edge_index).ravel()] = True
    for axis, values in (index_attributes or {}).items():
        rows[axis] = len(values)
    if graphs:
        rows[GRAPH] = graphs
    primary = edge_indices.get(EDGE)
    destinations = np.empty(0, np.int64) if primary is None else np.asarray(primary)[1]
    in_degree = np.bincount(destinations.astype(np.int64), minlength=num_nodes)
    known = dict(partitions or {})
    if 1 not in known:
        whole = np.zeros(num_nodes, dtype=np.int64)
        known[1] = measure(whole, edge_indices, index_attributes, parts=1, method="single")
    return GraphStats(
        rows=rows,
        max_in_degree=int(in_degree.max(initial=0)),
        mean_in_degree=len(destinations) / num_nodes if num_nodes else 0.0,
        isolated_nodes=int(num_nodes - np.count_nonzero(touched)),
        attribute_bytes=dict(attribute_bytes or {}),
        partitions=dict(sorted(known.items())),
        closed=dict(sorted((closed or {}).items())),
        units=1 if units is None else units.count,
        unit="component" if units is None else units.kind,
    )
