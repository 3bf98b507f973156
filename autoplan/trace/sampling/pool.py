"""The part of a graph that samples are cut from: all of a small graph, some thousand nearby nodes of a large one (torch).

A large graph is read piece by piece: the pool is grown from labelled and listed nodes along edges, pass by pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from autoplan.opgraph import GRAPH, is_node_axis
from autoplan.trace.attributes import AttributeSpec
from autoplan.trace.sampling.scan import Facts, facts_of, mixed, pieces
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import NUM_NODES, AnyGraph

_SMALL_NODES, _SMALL_EDGES = 20_000, 300_000
"""Up to this size a graph is its own pool."""

_POOL_NODES = 1_500
"""Nodes of each type in the pool of a larger graph."""

_SEEDS = 64
"""Nodes of every mask and list, and pairs of every relation, that a pool grows from."""

_PASSES = 4
_TAKEN_PER_PIECE = 1_024
_GRAPHS_IN_POOL = 64
_WHOLE_GRAPH_NODES = 100_000
"""Whole graphs of a batch are taken as long as they have no more nodes than this together."""


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
        tensors = dict(zip(schema.names, schema.tensors(graph), strict=True))
        generator = torch.Generator().manual_seed(seed)
        graphs = graph_vectors(schema, tensors)
        growth = _Growth(schema, tensors, generator)
        if growth.is_small:
            nodes = {axis: torch.arange(schema.rows[axis]) for axis in schema.node_axes}
        else:
            nodes = growth.grown(graphs)
        relations = tuple(_relations(schema, tensors, nodes, graphs, whole=growth.is_small))
        reverse_of = dict(_reverses(relations))
        batches = {axis: graph_of[nodes[axis]] for axis, graph_of in graphs.items()}
        masks = {
            name: nodes[axis][column[nodes[axis]]] for name, axis, column in _masks(schema, tensors)
        }
        lists = dict(_lists(schema, tensors, nodes))
        return cls(schema, tensors, nodes, relations, reverse_of, masks, lists, batches)


def graph_vectors(schema: GraphSchema, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By node axis, the graph of each node; empty where there are not several graphs."""
    if schema.rows.get(GRAPH, 1) == 1:
        return {}
    return {
        str(spec.dims[0]): tensors[spec.name].detach().to("cpu", torch.int64)
        for spec in schema.attributes
        if spec.index is not None and spec.index.axes == (GRAPH,)
    }


def node_lists(schema: GraphSchema) -> list[AttributeSpec]:
    """The attributes that list nodes (not what is only aligned with such a list)."""
    return [spec for spec in schema.attributes if spec.kind == "index" and spec.index is not None]


def _masks(schema: GraphSchema, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Name, node axis and first column of every boolean mask over nodes."""
    for spec in schema.attributes:
        axis, tensor = spec.dims[0] if spec.dims else None, tensors[spec.name]
        bare = spec.attribute == NUM_NODES
        if spec.dtype == "bool" and isinstance(axis, str) and is_node_axis(axis) and not bare:
            yield spec.name, axis, tensor.detach().reshape(tensor.size(0), -1)[:, 0].cpu()


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


def pair_attributes(schema: GraphSchema) -> dict[str, str]:
    """By axis of pairs of nodes, the attribute that holds them; in the schema's order of relations."""
    named = {
        str(spec.dims[1]): spec.name
        for spec in schema.attributes
        if spec.index is not None and spec.kind == "edge"
    }
    return {axis: named[axis] for axis in schema.relations}


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
        primary = ":" not in axis.rpartition("]")[2]
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
        while total > _SMALL_EDGES:
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


class _Growth:
    """Which nodes of a large graph the pool has."""

    def __init__(
        self, schema: GraphSchema, tensors: Mapping[str, Tensor], generator: torch.Generator
    ) -> None:
        self._schema, self._tensors, self._generator = schema, tensors, generator
        self._pairs = pair_attributes(schema)
        self._wanted = {axis: min(schema.rows[axis], _POOL_NODES) for axis in schema.node_axes}
        self._member = {
            axis: torch.zeros(schema.rows[axis], dtype=torch.bool) for axis in schema.node_axes
        }
        self._count = dict.fromkeys(schema.node_axes, 0)

    @property
    def is_small(self) -> bool:
        """Whether the whole graph can be the pool."""
        pairs = sum(self._tensors[name].size(1) for name in self._pairs.values())
        return self._schema.nodes <= _SMALL_NODES and pairs <= _SMALL_EDGES

    def grown(self, graphs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By node axis, the nodes of the pool, ascending."""
        if graphs and self._whole_graphs(graphs):
            return self._found()
        for _, axis, column in _masks(self._schema, self._tensors):
            self._enter(axis, self._some(column.nonzero().view(-1), _SEEDS))
        for spec in node_lists(self._schema):
            assert spec.index is not None
            self._enter(spec.index.axes[0], self._some(self._tensors[spec.name], _SEEDS))
        for axis, name in self._pairs.items():
            ends = self._tensors[name]
            if ends.size(1):
                drawn = self._integers(ends.size(1), _SEEDS)
                for end, values in zip(self._schema.relations[axis], ends[:, drawn], strict=True):
                    self._enter(end, values)
        for _ in range(_PASSES):
            if not self._pass():
                break
        for axis, wanted in self._wanted.items():
            self._enter(axis, self._integers(self._schema.rows[axis], 2 * wanted))
        return self._found()

    def _found(self) -> dict[str, Tensor]:
        return {axis: inside.nonzero().view(-1) for axis, inside in self._member.items()}

    def _whole_graphs(self, graphs: Mapping[str, Tensor]) -> bool:
        """Takes all nodes of some graphs, as far as they are not too many; whether there are any."""
        count = self._schema.rows[GRAPH]
        sizes = sum(torch.bincount(graph_of, minlength=count) for graph_of in graphs.values())
        assert isinstance(sizes, Tensor)
        chosen = torch.zeros(count, dtype=torch.bool)
        total = 0
        for number in torch.randperm(count, generator=self._generator)[:_GRAPHS_IN_POOL].tolist():
            if total + int(sizes[number]) <= _WHOLE_GRAPH_NODES:
                chosen[number] = True
                total += int(sizes[number])
        for axis in self._member:
            if axis in graphs:
                self._member[axis] = chosen[graphs[axis]]
            else:
                self._enter(axis, self._integers(self._schema.rows[axis], self._wanted[axis]))
        return total > 0

    def _pass(self) -> bool:
        """Takes nodes next to those of the pool; whether there was room for more and some were found."""
        near: dict[str, list[Tensor]] = {axis: [] for axis in self._member}
        room = [axis for axis in self._member if self._count[axis] < self._wanted[axis]]
        for axis, name in self._pairs.items():
            source_axis, target_axis = self._schema.relations[axis]
            if not {source_axis, target_axis} & {*room}:
                continue
            inside, outside = self._member[source_axis], self._member[target_axis]
            for _, source, target in pieces(self._tensors[name].detach()):
                first, second = inside.index_select(0, source), outside.index_select(0, target)
                if target_axis in room:
                    near[target_axis].append(self._some(target[first & ~second], _TAKEN_PER_PIECE))
                if source_axis in room:
                    near[source_axis].append(self._some(source[second & ~first], _TAKEN_PER_PIECE))
        before = sum(self._count.values())
        for axis in room:
            if near[axis]:
                self._enter(
                    axis, self._some(torch.unique(torch.cat(near[axis])), self._wanted[axis])
                )
        return sum(self._count.values()) > before

    def _enter(self, axis: str, nodes: Tensor) -> None:
        """Adds nodes as far as there is room."""
        inside = self._member[axis]
        fresh = torch.unique(nodes.detach().to("cpu", torch.int64))
        fresh = fresh[~inside[fresh]]
        fresh = self._some(fresh, self._wanted[axis] - self._count[axis])
        inside[fresh] = True
        self._count[axis] += fresh.numel()

    def _some(self, values: Tensor, count: int) -> Tensor:
        """At most so many of them, at random."""
        if values.numel() <= count:
            return values
        order = torch.randperm(values.numel(), generator=self._generator)[: max(count, 0)]
        return values[order.to(values.device)]

    def _integers(self, below: int, count: int) -> Tensor:
        return torch.randint(0, below, (count,), generator=self._generator)
