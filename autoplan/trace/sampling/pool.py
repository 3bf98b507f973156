"""The part of a graph that samples are cut from: all of a small graph, some thousand nearby nodes of a large one (torch).

A large graph is read piece by piece; `growth` says which of its nodes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from autoplan.opgraph import is_primary_relation
from autoplan.trace.sampling.growth import (
    SMALL_EDGES,
    Growth,
    graph_vectors,
    node_lists,
    node_masks,
    pair_attributes,
)
from autoplan.trace.sampling.scan import Facts, facts_of, mixed, pieces
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph


@dataclass(frozen=True, slots=True)
class PoolRelation:
    """Pairs of nodes of the pool.

    Attributes:
        axis: their own; source, target: the node axes of their ends.
        ends: [2, m] positions in the pool; rows: [m] which of the graph's pairs they are, ascending.
        facts: about the whole relation.
        primary: edges of the graph, not pairs besides them.
    """

    axis: str
    source: str
    target: str
    ends: Tensor
    rows: Tensor
    facts: Facts
    primary: bool

    @property
    def one_type(self) -> bool:
        """Whether both ends are of one type."""
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class PoolList:
    """A list of nodes, as far as they are in the pool.

    Attributes:
        nodes: the node axis.
        rows: [k] which entries; values: [k] the graph's nodes that they name.
        ascending: whether the whole list ascends.
    """

    nodes: str
    rows: Tensor
    values: Tensor
    ascending: bool


@dataclass(frozen=True, slots=True)
class Pool:
    """What samples are cut from.

    Attributes:
        schema: of the graph; tensors: its tensors by name, as they are.
        nodes: by node axis, [k] the graph's nodes in the pool, ascending.
        relations: between them.
        reverse_of: by axis of a relation, an earlier one that has the same pairs the other way round.
        masks: by name of a boolean mask over nodes, the pool's nodes that it selects (its first column, if it has several).
        lists: by index axis, the list of nodes.
        batches: by node axis, [k] the graph of each of the pool's nodes, where there are several graphs.
    """

    schema: GraphSchema
    tensors: Mapping[str, Tensor]
    nodes: Mapping[str, Tensor]
    relations: tuple[PoolRelation, ...]
    reverse_of: Mapping[str, str]
    masks: Mapping[str, Tensor]
    lists: Mapping[str, PoolList]
    batches: Mapping[str, Tensor]

    @classmethod
    def of(cls, graph: AnyGraph, schema: GraphSchema, *, seed: int = 0) -> Pool:
        """Reads a graph. Its tensors are only indexed: no copy of a large one is made.

        Args:
            graph: any graph of the schema; one node or no edges will do.
            schema: its schema.
            seed: of a private generator.
        """
        tensors = dict(zip(schema.names, schema.tensors(graph, contiguous=False), strict=True))
        generator = torch.Generator().manual_seed(seed)
        graphs = graph_vectors(schema, tensors)
        growth = Growth(schema, tensors, generator)
        if growth.is_small:
            nodes = {axis: torch.arange(schema.rows[axis]) for axis in schema.node_axes}
        else:
            nodes = growth.grown(graphs)
        relations = tuple(_relations(schema, tensors, nodes, graphs, whole=growth.is_small))
        reverse_of = dict(_reverses(relations))
        batches = {axis: graph_of[nodes[axis]] for axis, graph_of in graphs.items()}
        masks = {
            name: nodes[axis][column[nodes[axis]]]
            for name, axis, column in node_masks(schema, tensors)
        }
        lists = dict(_lists(schema, tensors, nodes))
        return cls(schema, tensors, nodes, relations, reverse_of, masks, lists, batches)


def _lists(
    schema: GraphSchema, tensors: Mapping[str, Tensor], nodes: Mapping[str, Tensor]
) -> Iterator[tuple[str, PoolList]]:
    for spec in node_lists(schema):
        assert spec.index is not None
        axis = spec.index.axes[0]
        values = tensors[spec.name].detach().to("cpu", torch.int64)
        inside = torch.zeros(schema.rows[axis], dtype=torch.bool)
        inside[nodes[axis]] = True
        rows = inside[values].nonzero().view(-1)
        ascending = bool((values[1:] >= values[:-1]).all())
        yield spec.axes[0], PoolList(axis, rows, values[rows], ascending)


def _relations(
    schema: GraphSchema,
    tensors: Mapping[str, Tensor],
    nodes: Mapping[str, Tensor],
    graphs: Mapping[str, Tensor],
    *,
    whole: bool,
) -> Iterator[PoolRelation]:
    """The pairs between nodes of the pool, with what is true of the whole relations."""
    for axis, name in pair_attributes(schema).items():
        source, target = schema.relations[axis]
        ends = tensors[name].detach()
        known = source in graphs and target in graphs
        batches = (graphs[source], graphs[target]) if known else None
        facts = facts_of(ends, batches, one_type=source == target)
        primary = is_primary_relation(axis)
        if whole:
            rows, inside = torch.arange(ends.size(1)), ends.to("cpu", torch.int64)
        else:
            rows, inside = _induced(
                ends, [(nodes[end], schema.rows[end]) for end in (source, target)]
            )
        yield PoolRelation(axis, source, target, inside, rows, facts, primary)


def _induced(ends: Tensor, of_end: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Rows and ends, as positions in the pool, of the pairs whose ends are both in it; of too many a share.

    The share is told by the two nodes whatever their order, so that a pair stays with its reverse.
    """
    member = []
    for nodes, count in of_end:
        inside = torch.zeros(count, dtype=torch.bool)
        inside[nodes] = True
        member.append(inside)
    share, total = 1, 0
    found: list[Tensor] = []
    for start, source, target in pieces(ends):
        first, second = member[0].index_select(0, source), member[1].index_select(0, target)
        kept = (first & second).nonzero().view(-1)
        piece = torch.stack([kept + start, source[kept], target[kept]])
        found.append(_thinned(piece, share))
        total += found[-1].size(1)
        while total > SMALL_EDGES:
            share *= 2
            found = [_thinned(torch.cat(found, dim=1), share)]
            total = found[0].size(1)
    if not found:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
    rows, source, target = torch.cat(found, dim=1)
    positions = [
        torch.searchsorted(nodes, end)
        for (nodes, _), end in zip(of_end, (source, target), strict=True)
    ]
    return rows, torch.stack(positions)


def _thinned(piece: Tensor, share: int) -> Tensor:
    """One of ``share`` (a power of two) pairs of nodes, with all that joins them."""
    low, high = piece[1:].min(dim=0).values, piece[1:].max(dim=0).values
    return piece[:, (mixed(low, high) & (share - 1)) == 0] if share > 1 else piece


def _reverses(relations: tuple[PoolRelation, ...]) -> Iterator[tuple[str, str]]:
    for position, relation in enumerate(relations):
        for earlier in relations[:position]:
            swapped = (earlier.target, earlier.source) == (relation.source, relation.target)
            if swapped and not relation.one_type and relation.facts.reverses(earlier.facts):
                yield relation.axis, earlier.axis
                break
