"""A graph with its partitions: sizes for the search, shards for execution (torch)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from autoplan.execute.inputs import shard_inputs
from autoplan.execute.job import RankData
from autoplan.graphstats import GraphStats
from autoplan.opgraph import GRAPH, NODE, IndexInto, is_index_axis, is_node_axis
from autoplan.partition.closed import ClosedOwner, closed_owner, units_of
from autoplan.partition.halo import Shard, build_shards
from autoplan.partition.measure import graph_stats, measure
from autoplan.partition.metis import partition_types
from autoplan.partition.ownership import IntArray
from autoplan.program.rank_program import RankInput
from autoplan.search.fingerprint import digest, graph_fingerprint
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph

ClosedParts = Iterable[int] | Callable[[int], Iterable[int]]
"""Numbers of parts along whole units, or what tells them of the number of units."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredGraph:
    """A graph, classified, and cut into parts.

    Attributes:
        schema: what its attributes are; tensors: by attribute, as they are on the graph (not copied).
        stats: sizes, and one partition for each number of parts.
        owners: by number of parts and node axis, [N] the rank that owns each node, where units are cut.
        closed_owners: by number of parts, the owners in a partition along whole units.
    """

    schema: GraphSchema
    tensors: Mapping[str, torch.Tensor]
    stats: GraphStats
    owners: Mapping[int, Mapping[str, IntArray]]
    closed_owners: Mapping[int, ClosedOwner]

    @classmethod
    def of(
        cls,
        graph: AnyGraph,
        schema: GraphSchema,
        parts: Iterable[int],
        *,
        seed: int = 0,
        closed_parts: ClosedParts = (),
    ) -> MeasuredGraph:
        """Cuts a graph with METIS, and along whole units, and measures the parts.

        Args:
            graph: of the schema.
            schema: its attributes.
            parts: numbers of parts to share it over; 1 is always there. Several graphs in one are kept whole where there
                are as many of them as parts; else METIS cuts.
            seed: of METIS.
            closed_parts: numbers of parts of further partitions along whole units, or what tells them of the number of units.
        """
        tensors = dict(zip(schema.names, schema.tensors(graph), strict=True))
        edges, listed = edge_arrays(schema, tensors), list_arrays(schema, tensors)
        relations, graphs = schema.relations, graph_count(schema)
        nodes = node_counts(schema.rows)
        owned = {1: {axis: np.zeros(count, dtype=np.int64) for axis, count in nodes.items()}}
        partitions = {}
        units = units_of(nodes, edges, batch_arrays(schema, tensors), graphs, relations)
        shared = set(parts) - {1}
        whole = {count for count in shared if units.kind == "graph" and units.count >= count}
        for count in sorted(shared - whole):
            owned[count] = partition_types(nodes, edges, relations, count, seed=seed)
            partitions[count] = measure(
                owned[count], edges, listed, relations=relations, parts=count, seed=seed
            )
        asked = closed_parts(units.count) if callable(closed_parts) else closed_parts
        packed = {
            count: closed_owner(units, edges, count, relations)
            for count in sorted(whole | set(asked))
        }
        closed = {
            count: measure(
                owner.nodes,
                edges,
                listed,
                relations=relations,
                parts=count,
                method="closed",
                graph_owner=owner.graphs,
            )
            for count, owner in packed.items()
        }
        partitions |= {count: closed[count] for count in whole}
        attribute_bytes = {
            name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()
        }
        stats = graph_stats(
            nodes,
            edges,
            listed,
            relations=relations,
            attribute_bytes=attribute_bytes,
            partitions=partitions,
            closed=closed,
            units=units,
            graphs=graphs,
        )
        return cls(schema, tensors, stats, owned, packed)

    @property
    def fingerprint(self) -> str:
        """Of the schema, the sizes, edges, listed nodes and the nodes' graphs; features and labels may change."""
        arrays = {
            **edge_arrays(self.schema, self.tensors),
            **list_arrays(self.schema, self.tensors),
        }
        graphs = batch_arrays(self.schema, self.tensors) or {}
        arrays |= {axis.replace(NODE, "batch", 1): batch for axis, batch in graphs.items()}
        content = digest(
            {
                axis: hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
                for axis, array in arrays.items()
            }
        )
        attributes = {
            spec.name: (spec.dtype, tuple(self.tensors[spec.name].shape))
            for spec in self.schema.attributes
        }
        return graph_fingerprint(attributes, self.schema.rows, content)

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """What the attributes are, for people: by name, as ``float32 [node, 8]``."""
        return tuple(
            (spec.name, f"{spec.dtype} [{', '.join(map(str, spec.dims))}]")
            for spec in self.schema.attributes
        )

    @property
    def schema_fingerprint(self) -> str:
        """Of what the attributes are: names, kinds, dtypes and dims, without the sizes of the graph."""
        return digest([[s.name, s.kind, s.dtype, s.dims] for s in self.schema.attributes])

    def shards(self, parts: int, *, closed: bool = False) -> tuple[Shard, ...]:
        """What each rank holds; ``closed``: of the closed partition in any case. Raises KeyError where it was not asked for."""
        closed = closed or parts not in self.owners
        return shards_of(
            self.closed_owners[parts] if closed else self.owners[parts],
            self.schema,
            self.tensors,
            parts,
        )

    def rank_data(
        self, parts: int, wanted: Iterable[RankInput], *, closed: bool = False
    ) -> Iterator[RankData]:
        """Each rank's part of the graph in turn, so that the caller need not hold them all."""
        needed = tuple(wanted)
        for shard in self.shards(parts, closed=closed):
            yield RankData(shard, shard_inputs(needed, self.tensors, shard))


def shards_of(
    owner: Mapping[str, IntArray] | ClosedOwner,
    schema: GraphSchema,
    tensors: Mapping[str, torch.Tensor],
    parts: int,
    rows: Mapping[str, int] | None = None,
) -> tuple[Shard, ...]:
    """Cuts a graph's tensors into one shard per rank.

    Args:
        owner: by node axis, [N] the rank that owns each node, or a closed partition.
        schema: of the graph.
        tensors: by attribute.
        parts: number of ranks; they may own nothing.
        rows: of every axis, where it is another graph of the schema than the one it was made of (a sample).
    """
    edges, listed = edge_arrays(schema, tensors), list_arrays(schema, tensors)
    relations = schema.relations
    if not isinstance(owner, ClosedOwner):
        graphs = (schema.rows if rows is None else rows).get(GRAPH, 0)
        return build_shards(
            owner,
            edges,
            listed,
            relations=relations,
            parts=parts,
            graphs=graphs if graph_count(schema) else 0,
        )
    return build_shards(
        owner.nodes,
        edges,
        listed,
        relations=relations,
        parts=parts,
        closed=True,
        graph_owner=owner.graphs,
    )


def node_counts(rows: Mapping[str, int]) -> dict[str, int]:
    """By node axis, the number of nodes."""
    return {axis: count for axis, count in rows.items() if is_node_axis(axis)}


def graph_count(schema: GraphSchema) -> int:
    """How many graphs the nodes are grouped into; 0 where it is but one, which no partition of its nodes need keep whole."""
    graphs = schema.rows.get(GRAPH, 0)
    return graphs if graphs > 1 else 0


def batch_arrays(
    schema: GraphSchema, tensors: Mapping[str, torch.Tensor]
) -> dict[str, NDArray[np.integer]] | None:
    """By node axis, [N] the graph of each node; None where there are not several, or not all types say."""
    found = {
        str(spec.dims[0]): tensors[spec.name].detach().cpu().numpy()
        for spec in schema.attributes
        if spec.index == IndexInto((GRAPH,), ("self",)) and is_node_axis(str(spec.dims[0]))
    }
    there = graph_count(schema) > 0 and found.keys() >= node_counts(schema.rows).keys()
    return found if there else None


def edge_arrays(
    schema: GraphSchema, tensors: Mapping[str, torch.Tensor]
) -> dict[str, NDArray[np.integer]]:
    """By edge axis, [2, E] node numbers, source first; views of the tensors."""
    return {
        str(spec.dims[1]): tensors[spec.name].detach().cpu().numpy()
        for spec in schema.attributes
        if spec.index is not None and spec.index.ends == ("src", "dst")
    }


def list_arrays(
    schema: GraphSchema, tensors: Mapping[str, torch.Tensor]
) -> dict[str, NDArray[np.integer]]:
    """By index axis, [K] the nodes that an attribute lists; views of the tensors."""
    return {
        str(spec.dims[0]): tensors[spec.name].detach().cpu().numpy()
        for spec in schema.attributes
        if spec.index is not None
        and spec.index.ends == ("self",)
        and is_index_axis(str(spec.dims[0]))
    }
