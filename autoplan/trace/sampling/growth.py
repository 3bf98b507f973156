"""Which nodes of a large graph samples are cut from, found in passes over its pairs of nodes (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from autoplan.opgraph import GRAPH, is_node_axis
from autoplan.trace.attributes import AttributeSpec
from autoplan.trace.sampling.scan import pieces
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import NUM_NODES

_SMALL_NODES, SMALL_EDGES = 20_000, 300_000
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


def node_masks(
    schema: GraphSchema, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, str, Tensor]]:
    """Name, node axis and first column of every boolean mask over nodes."""
    for spec in schema.attributes:
        axis, tensor = spec.dims[0] if spec.dims else None, tensors[spec.name]
        bare = spec.attribute == NUM_NODES
        if spec.dtype == "bool" and isinstance(axis, str) and is_node_axis(axis) and not bare:
            yield spec.name, axis, tensor.detach().reshape(tensor.size(0), -1)[:, 0].cpu()


def pair_attributes(schema: GraphSchema) -> dict[str, str]:
    """By axis of pairs of nodes, the attribute that holds them; in the schema's order of relations."""
    named = {
        str(spec.dims[1]): spec.name
        for spec in schema.attributes
        if spec.index is not None and spec.kind == "edge"
    }
    return {axis: named[axis] for axis in schema.relations}


class Growth:
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
        return self._schema.nodes <= _SMALL_NODES and pairs <= SMALL_EDGES

    def grown(self, graphs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By node axis, the nodes of the pool, ascending."""
        if graphs and self._whole_graphs(graphs):
            return self._found()
        for _, axis, column in node_masks(self._schema, self._tensors):
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
