"""What each attribute of a graph is: the first question of tracing, sampling and sharding (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.edge_index import EdgeIndex

from autoplan.errors import TraceError
from autoplan.opgraph import (
    EDGE,
    GRAPH,
    NODE,
    edge_axis,
    is_edge_axis,
    is_index_axis,
    is_node_axis,
    is_primary_relation,
    node_axis,
    type_of_axis,
)
from autoplan.trace.attributes import (
    KINDS,
    AttributeSpec,
    Kind,
    asked_spec,
    check_positions,
    describe,
    is_node_list,
    is_relation,
    node_list_spec,
    relation_spec,
)
from autoplan.trace.counts import check_relations, node_rows
from autoplan.trace.readings import inferred_spec
from autoplan.trace.scope import (
    NUM_NODES,
    AnyGraph,
    Scope,
    TypeKey,
    full_name,
    key_name,
    label,
    parts_of,
    store_of,
)

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
        tensors_of, named, constants = _tensors_by_part(parts)
        asked = _asked(inputs or {}, named)
        several = isinstance(graph, HeteroData)
        rows = node_rows(graph, tensors_of, asked)
        check_relations(graph, rows, parts, tensors_of)
        found: dict[str, AttributeSpec] = {}
        relations: dict[str, tuple[str, str]] = {}
        graphs = _graph_count(graph, tensors_of, rows)
        for key, tensors in tensors_of.items():
            scope = _scope(key, tensors, rows, graphs, several=several)
            _classify(scope, tensors, asked, found, relations)
            rows.update(scope.rows)
        if several:
            found.update(_bare_types(found, rows))
        ordered = tuple(found[name] for name in sorted(found))
        own_first = dict(
            sorted(relations.items(), key=lambda pair: ":" in pair[0].rpartition("]")[2])
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

    def tensors(self, graph: AnyGraph) -> tuple[Tensor, ...]:
        """The graph's tensors in schema order: plain, contiguous, one object for each. Copies only what is not contiguous.

        Raises:
            TraceError: an attribute of the schema is missing or has another dtype or number of dimensions.
        """
        found: list[Tensor] = []
        for spec in self.attributes:
            store = store_of(graph, spec.key)
            value = None if store is None else _value(store, spec)
            if not isinstance(value, Tensor):
                has = sorted(full_name(key, name) for key, own in parts_of(graph) for name in own)
                raise TraceError(
                    f"the plan was made for a graph with {spec.name!r}; this one has {has}"
                )
            if describe(value).split()[0] != spec.dtype or value.dim() != len(spec.dims):
                raise TraceError(
                    f"{spec.label} is {describe(value)}, but was {spec.dtype} {list(spec.dims)}"
                )
            plain = _plain(value)
            seen = any(plain is other for other in found)  # one tensor under two names
            found.append(plain.view_as(plain) if seen else plain.contiguous())
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


def check_graph(graph: object) -> None:
    """Raise TraceError for anything that is neither a `Data` nor a `HeteroData`."""
    if not isinstance(graph, Data | HeteroData):
        raise TraceError(
            f"the graph is a {type(graph).__name__}; give a torch_geometric.data.Data with x and edge_index, or a HeteroData"
        )


def _tensors_by_part(
    parts: Mapping[TypeKey, Mapping[str, Any]],
) -> tuple[dict[TypeKey, dict[str, Tensor]], dict[str, Tensor], tuple[tuple[str, Any], ...]]:
    """Tensors by part and name, by full name, and what is no tensor by full name. Raises TraceError."""
    tensors_of: dict[TypeKey, dict[str, Tensor]] = {}
    named: dict[str, Tensor] = {}
    constants: dict[str, Any] = {}
    for key, values in parts.items():
        own = tensors_of.setdefault(key, {})
        for name, value in sorted(values.items()):
            full = full_name(key, name)
            if full in named or full in constants:
                raise TraceError(f"two attributes of the graph are called {full!r}; rename a type")
            if isinstance(value, Tensor):
                own[name] = named[full] = _plain(value)
                _refuse_layout(key, name, own[name])
            else:
                constants[full] = value
    return tensors_of, named, tuple(sorted(constants.items()))


def _plain(tensor: Tensor) -> Tensor:
    """The tensor without its subclass (`EdgeIndex`, `Parameter`); itself where it has none."""
    if type(tensor) is Tensor:
        return tensor
    if isinstance(tensor, EdgeIndex):
        inner: Tensor = tensor.as_tensor()
        return inner
    return tensor.as_subclass(Tensor)


def _value(store: Any, spec: AttributeSpec) -> Any:
    """What a store holds under a spec's name; of a type without attributes, one entry for each node."""
    if spec.attribute == NUM_NODES:
        return torch.ones(int(store.num_nodes), dtype=torch.bool)
    return store.get(spec.attribute)


def _refuse_layout(key: TypeKey, name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        remedy = (
            f"give the graph as edge_index (and edge_weight) and remove {name!r}"
            if name.startswith("adj")
            else f"use {label(key, name)}.to_dense()"
        )
        raise TraceError(
            f"{label(key, name)} is a sparse tensor ({tensor.layout}), which cannot be sampled or sharded; {remedy}"
        )


def _asked(inputs: Mapping[str, Any], named: Mapping[str, Tensor]) -> dict[str, Any]:
    """The entries of ``inputs`` that are about attributes."""
    asked = {}
    for name, value in inputs.items():
        if name in named and says_what(value):
            asked[name] = value
        elif isinstance(value, str) and value in KINDS and value not in named:
            raise TraceError(
                f"inputs speak of {name!r}, which is no tensor of the graph; it has {sorted(named)}"
            )
    return asked


def says_what(wish: object) -> bool:
    """Whether an entry of ``inputs`` says what an attribute is: a kind, an axis, or dims."""
    if not isinstance(wish, str):
        return isinstance(wish, tuple)
    return wish in KINDS or is_node_axis(wish) or is_edge_axis(wish) or is_index_axis(wish)


def _scope(
    key: TypeKey,
    tensors: Mapping[str, Tensor],
    rows: Mapping[str, int],
    graphs: int | None,
    *,
    several: bool,
) -> Scope:
    """What the attributes of a part may count."""
    node = edge = ends = None
    if not several:
        node, edge, ends = NODE, EDGE, (NODE, NODE)
        known = {NODE: rows[NODE], EDGE: tensors["edge_index"].size(1)}
    elif isinstance(key, str):
        node = node_axis(key)
        ends = (node, node)
        known = {node: rows[node]}
    elif isinstance(key, tuple):
        edge, ends = edge_axis(key_name(key)), (node_axis(key[0]), node_axis(key[2]))
        known = {**{end: rows[end] for end in ends}, edge: tensors["edge_index"].size(1)}
    else:
        known = dict(rows)
    scope = Scope(key, node, edge, ends, known)
    if graphs is not None:
        scope.rows[GRAPH] = graphs
    return scope


def _classify(
    scope: Scope,
    tensors: Mapping[str, Tensor],
    asked: Mapping[str, Any],
    found: dict[str, AttributeSpec],
    relations: dict[str, tuple[str, str]],
) -> None:
    """Enter the specs of one part's attributes, lists and pairs first: what is aligned with them is found by their rows."""
    graphs = scope.rows.pop(GRAPH, None)
    rest = []
    for name, tensor in tensors.items():
        full = scope.full_name(name)
        wish, pairs = asked.get(full), scope.pairs_axis(name)
        if name == "edge_index" and scope.edge is not None:
            pairs = scope.edge
        if pairs == scope.edge or is_relation(name, tensor, wish, pairs):
            found[full] = relation_spec(scope, name, tensor, pairs)
            scope.rows[pairs] = tensor.size(1)
            assert scope.ends is not None
            relations[pairs] = scope.ends
        elif is_node_list(name, tensor, wish):
            found[full] = node_list_spec(scope, name, tensor)
            scope.rows[scope.list_axis(name)] = tensor.size(0)
        else:
            rest.append(name)
    if graphs is not None:
        scope.rows[GRAPH] = graphs
    for name in rest:
        full, tensor = scope.full_name(name), tensors[name]
        if full in asked:
            found[full] = asked_spec(scope, name, tensor, asked[full])
        else:
            found[full] = inferred_spec(scope, name, tensor)


def _bare_types(
    found: Mapping[str, AttributeSpec], rows: Mapping[str, int]
) -> Iterator[tuple[str, AttributeSpec]]:
    """For each node type no tensor of which tells its size, an input that does: one boolean for each node."""
    counted = {axis for spec in found.values() for axis in spec.axes}
    for axis in rows:
        kind = type_of_axis(axis)
        if is_node_axis(axis) and axis not in counted and kind is not None:
            name = full_name(kind, NUM_NODES)
            yield name, AttributeSpec(name, "node", (axis,), "bool", key=kind)


def _graph_count(
    graph: AnyGraph, tensors_of: Mapping[TypeKey, Mapping[str, Tensor]], rows: Mapping[str, int]
) -> int | None:
    """The number of graphs: as a PyG batch says (its last ones may have no nodes), else one more than the highest."""
    named = 0
    for key, tensors in tensors_of.items():
        axis = node_axis(key) if isinstance(key, str) else NODE
        batch = tensors.get("batch")
        if batch is None or axis not in rows or batch.numel() != rows[axis]:
            continue
        check_positions(label(key, "batch"), batch, rows[axis], GRAPH)
        named = max(named, int(batch.max()) + 1)
    if not named:
        return None
    return max(named, int(graph.num_graphs)) if isinstance(graph, Batch) else named
