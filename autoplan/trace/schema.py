"""What each attribute of a graph is: the first question of tracing, sampling and sharding (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from autoplan.errors import TraceError
from autoplan.opgraph import GRAPH, is_node_axis, is_primary_relation
from autoplan.trace.adjacency import VALUES, check_matrix, pairs_of
from autoplan.trace.attributes import AttributeSpec, Kind, describe
from autoplan.trace.classification import (
    asked_of,
    bare_types,
    check_graph,
    classify,
    classify_matrix,
    graph_count,
    plain_tensor,
    scope_of,
    tensors_by_part,
)
from autoplan.trace.counts import check_relations, node_rows
from autoplan.trace.scope import NUM_NODES, AnyGraph, TypeKey, full_name, label, parts_of, store_of

__all__ = ["GRAPH", "AttributeSpec", "GraphSchema", "Kind"]


@dataclass(frozen=True, slots=True)
class GraphSchema:
    """The attributes of a graph, classified.

    Attributes:
        attributes: the tensors, ordered by name. This is the order of a traced step's inputs.
        constants: the other attributes (numbers, strings, None), ordered by name.
        rows: rows of every axis: ``node``, ``edge``, ``edge:ATTRIBUTE``, ``index:ATTRIBUTE``, ``graph``; of several types
            ``node[paper]``, ``edge[author__writes__paper]``, and so on.
        relations: by axis of pairs of nodes, the axes of their sources and destinations; the graph's own edges first.
        node_types, edge_types: of a graph of several types, in its order; empty where there is only one.
    """

    attributes: tuple[AttributeSpec, ...]
    constants: tuple[tuple[str, Any], ...]
    rows: Mapping[str, int]
    relations: Mapping[str, tuple[str, str]]
    node_types: tuple[str, ...] = ()
    edge_types: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, graph: AnyGraph, inputs: Mapping[str, Any] | None = None) -> GraphSchema:
        """Classify every attribute of a graph.

        Args:
            graph: a `Data` with an ``edge_index``, or a `HeteroData` with one for every relation.
            inputs: what the user says of attributes whose meaning is not clear: attribute (``x``, ``paper.x``) -> kind
                (``"node"``, ``"edge"``, ``"graph"``, ``"index"``: a list of nodes, ``"constant"``), axis, or dims as a tuple
                (``("node", "node")``). Entries about forward's arguments are not looked at.

        Raises:
            TraceError: no graph that can be traced, an id out of range, or an attribute that is ambiguous.
        """
        check_graph(graph)
        parts = dict(parts_of(graph))
        tensors_of, named, constants, matrices = tensors_by_part(parts)
        asked = asked_of(inputs or {}, named)
        several = isinstance(graph, HeteroData)
        rows = node_rows(graph, tensors_of, asked)
        check_relations(graph, rows, parts, tensors_of)
        found: dict[str, AttributeSpec] = {}
        relations: dict[str, tuple[str, str]] = {}
        graphs = graph_count(graph, tensors_of, rows)
        for key, tensors in tensors_of.items():
            scope = scope_of(key, tensors, rows, graphs, several=several)
            classify(scope, tensors, asked, found, relations)
            for name, matrix in matrices.get(key, {}).items():
                classify_matrix(scope, name, matrix, found)
            rows.update(scope.rows)
        if several:
            found.update(bare_types(found, rows))
        ordered = tuple(found[name] for name in sorted(found))
        own_first = dict(
            sorted(relations.items(), key=lambda pair: not is_primary_relation(pair[0]))
        )
        kinds = tuple(key for key in parts if isinstance(key, str))
        pairs = tuple(key for key in parts if isinstance(key, tuple))
        return cls(ordered, constants, rows, own_first, kinds, pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names, in schema order."""
        return tuple(spec.name for spec in self.attributes)

    @property
    def several_types(self) -> bool:
        """Whether the graph is a `HeteroData`."""
        return bool(self.node_types)

    @property
    def node_axes(self) -> tuple[str, ...]:
        """The axes of nodes: one, or one for each type."""
        return tuple(axis for axis in self.rows if is_node_axis(axis))

    @property
    def nodes(self) -> int:
        """Nodes of all types."""
        return sum(self.rows[axis] for axis in self.node_axes)

    @property
    def edges(self) -> int:
        """The graph's own edges, of all relations."""
        return sum(rows for axis, rows in self.rows.items() if is_primary_relation(axis))

    def place(self, name: str) -> tuple[TypeKey, str]:
        """Which part of the graph an attribute's full name is about, and its name there."""
        keys: tuple[TypeKey, ...] = (*self.node_types, *self.edge_types)
        for key in keys:
            prefix = full_name(key, "")
            if name.startswith(prefix):
                return key, name[len(prefix) :]
        return None, name

    def __getitem__(self, name: str) -> AttributeSpec:
        """The spec of a tensor attribute. Raises KeyError."""
        for spec in self.attributes:
            if spec.name == name:
                return spec
        raise KeyError(name)

    def tensors(self, graph: AnyGraph, *, contiguous: bool = True) -> tuple[Tensor, ...]:
        """The graph's tensors in schema order: plain, one object for each; ``contiguous`` copies those that are not.

        Raises:
            TraceError: an attribute of the schema is missing or has another dtype or number of dimensions.
        """
        found: list[Tensor] = []
        taken_apart: dict[str, tuple[Tensor, Tensor]] = {}
        for spec in self.attributes:
            store = store_of(graph, spec.key)
            value = None if store is None else _value(store, spec, taken_apart)
            if not isinstance(value, Tensor):
                has = sorted(full_name(key, name) for key, own in parts_of(graph) for name in own)
                raise TraceError(
                    f"the plan was made for a graph with {spec.name!r}; this one has {has}"
                )
            if describe(value).split()[0] != spec.dtype or value.dim() != len(spec.dims):
                raise TraceError(
                    f"{spec.label} is {describe(value)}, but was {spec.dtype} {list(spec.dims)}"
                )
            plain = plain_tensor(value)
            seen = any(plain is other for other in found)  # one tensor under two names
            plain = plain.view_as(plain) if seen else plain
            found.append(plain.contiguous() if contiguous else plain)
        return tuple(found)

    @property
    def summary(self) -> tuple[tuple[str, ...], ...]:
        """Plain text for fingerprints: name, kind, dtype and dims of each tensor, then name and value of each constant.

        Rows are not part of it: graphs of other sizes share a program.
        """
        described = [
            (spec.name, spec.kind, spec.dtype, *(str(dim) for dim in spec.dims))
            for spec in self.attributes
        ]
        plain = [
            (name, "constant", repr(value))
            for name, value in self.constants
            if isinstance(value, str | int | float | bool | None)
        ]
        return (*described, *plain)


def _value(store: Any, spec: AttributeSpec, taken_apart: dict[str, tuple[Tensor, Tensor]]) -> Any:
    """What a store holds under a spec's name; of a type without attributes, one entry for each node.

    ``taken_apart``: pairs and values of the adjacencies so far, by attribute.
    """
    if spec.attribute == NUM_NODES:
        return torch.ones(int(store.num_nodes), dtype=torch.bool)
    if not spec.layout:
        return store.get(spec.attribute)
    name, full = (text.removesuffix(VALUES) for text in (spec.attribute, spec.name))
    if full not in taken_apart:
        matrix = store.get(name)
        if not isinstance(matrix, Tensor) or matrix.layout == torch.strided:
            return matrix
        check_matrix(label(spec.key, name), name, matrix)
        taken_apart[full] = pairs_of(matrix)
    return taken_apart[full][spec.layout == "values"]
