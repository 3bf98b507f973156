"""The user's graph, put together again from a step's tensors: what model and loss get to see (torch)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData

from autoplan.opgraph import GRAPH, node_axis, type_of_axis
from autoplan.trace.adjacency import VALUES, adjacency
from autoplan.trace.attributes import AttributeSpec
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import NUM_NODES, AnyGraph, TypeKey, parts_of, store_of

_COUNTS_NODES = frozenset({"x", "feat", "pos", "batch", "node_type", "n_id"})
"""Attributes from whose rows PyG reads ``graph.num_nodes``."""


@dataclass(frozen=True, slots=True)
class GraphTemplate:
    """The user's graph without its tensors.

    Attributes:
        empty: an object of the graph's class with what is no tensor.
        attributes: what the tensors are, in the order in which they are given.
        sizes: per part of the graph whose number of nodes PyG would not find on its own, the position and the dimension of
            a tensor that tells it.
        matrices: sparse adjacencies, which are put together of their parts.
    """

    empty: AnyGraph
    attributes: tuple[AttributeSpec, ...]
    sizes: tuple[tuple[TypeKey, int, int], ...]
    matrices: tuple[Matrix, ...] = ()

    @classmethod
    def of(cls, graph: AnyGraph, schema: GraphSchema) -> GraphTemplate:
        """The template of a graph of the schema. The graph is left as it is."""
        return cls(
            _without_tensors(graph, schema),
            schema.attributes,
            tuple(_node_sizes(graph, schema)),
            tuple(_matrices(schema)),
        )

    def graph(self, tensors: tuple[Tensor, ...]) -> AnyGraph:
        """A graph of the user's class that holds these tensors."""
        graph = copy.copy(self.empty)
        for spec, tensor in zip(self.attributes, tensors, strict=True):
            if spec.attribute != NUM_NODES and not spec.layout:
                store_of(graph, spec.key)[spec.attribute] = tensor
        for key, position, dimension in self.sizes:
            store_of(graph, key)[NUM_NODES] = tensors[position].size(dimension)
        for matrix in self.matrices:
            store_of(graph, matrix.key)[matrix.name] = matrix.of(tensors)
        return graph


@dataclass(frozen=True, slots=True)
class Matrix:
    """A sparse adjacency.

    Attributes:
        key: the part of the graph that holds it; name: the attribute's name there.
        layout: ``coo`` or ``csr``.
        pairs, values: positions of its parts among the tensors.
        rows, columns: positions and dimensions of tensors that have as many rows.
    """

    key: TypeKey
    name: str
    layout: str
    pairs: int
    values: int
    rows: tuple[int, int]
    columns: tuple[int, int]

    def of(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """The matrix of these tensors."""
        rows, columns = (tensors[at].size(dim) for at, dim in (self.rows, self.columns))
        return adjacency(tensors[self.pairs], tensors[self.values], rows, columns, self.layout)


class StepBatch(Batch):  # type: ignore[misc]
    """A batch whose tensors are those of a step: what follows from them is worked out from them."""

    @property
    def num_graphs(self) -> int:
        """Rows of an attribute that has one for each graph; without one, as PyG tells it from ``batch``."""
        if self._counts_graphs is not None:
            key, attribute = self._counts_graphs
            rows: int = store_of(self, key)[attribute].size(0)
            return rows
        if not isinstance(self, HeteroData):
            return int(self.batch.max()) + 1
        return max(int(batch.max()) + 1 for batch in self.batch_dict.values())

    @property
    def ptr(self) -> Tensor:
        """[B + 1] where each graph's nodes begin."""
        numbers = torch.arange(self.num_graphs + 1, device=self.batch.device)
        return torch.searchsorted(self.batch, numbers)


def _matrices(schema: GraphSchema) -> Iterator[Matrix]:
    names = list(schema.names)
    counting: dict[str, tuple[int, int]] = {}
    for position, spec in enumerate(schema.attributes):
        for dimension, axis in enumerate(spec.dims):
            if isinstance(axis, str) and (spec.attribute == "x" or axis not in counting):
                counting[axis] = (position, dimension)
    for position, spec in enumerate(schema.attributes):
        if spec.layout and spec.index is not None:
            source, destination = spec.index.axes
            values = names.index(f"{spec.name}{VALUES}")
            ends = counting[destination], counting[source]
            yield Matrix(spec.key, spec.attribute, spec.layout, position, values, *ends)


def _without_tensors(graph: AnyGraph, schema: GraphSchema) -> AnyGraph:
    """An object of the graph's class with its constants only."""
    template: Any
    if isinstance(graph, Batch):
        template = StepBatch(_base_cls=type(graph).__bases__[-1])
        counting = [spec for spec in schema.attributes if spec.dims[:1] == (GRAPH,)]
        place = (counting[0].key, counting[0].attribute) if counting else None
        vars(template)["_counts_graphs"] = place
        for kind in (*schema.node_types, *schema.edge_types):
            _ = template[kind]  # PyG makes the part when it is looked at
    else:
        template = copy.copy(graph)
        for key, _ in parts_of(graph):
            store = store_of(template, key)
            for name in list(store.keys()):
                del store[name]
            # PyG's memory of which attributes are per node
            vars(getattr(store, "_store", store)).pop("_cached_attr", None)
    for name, value in schema.constants:
        key, attribute = schema.place(name)
        store_of(template, key)[attribute] = value
    return template


def _node_sizes(graph: AnyGraph, schema: GraphSchema) -> Iterator[tuple[TypeKey, int, int]]:
    """Part, tensor and dimension to read ``num_nodes`` from; nothing for parts where PyG finds it on its own."""
    kinds: tuple[str | None, ...] = schema.node_types or (None,)
    for kind in kinds:
        axis = node_axis(kind)
        own = {spec.attribute for spec in schema.attributes if spec.key == kind}
        if NUM_NODES not in store_of(graph, kind) and _COUNTS_NODES & own:
            continue
        candidates = [
            (spec.attribute != "x", position, spec.dims.index(axis))
            for position, spec in enumerate(schema.attributes)
            if axis in spec.dims
        ]
        if candidates:
            _, position, dimension = min(candidates)
            yield type_of_axis(axis), position, dimension
