"""The attributes of a graph, part by part: tensors and what the user says of them to specs (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
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
    node_axis,
    type_of_axis,
)
from autoplan.trace.adjacency import LAYOUTS, VALUES, check_matrix, own_edges, pairs_of
from autoplan.trace.attributes import (
    KINDS,
    AttributeSpec,
    asked_spec,
    check_positions,
    dtype_name,
    is_node_list,
    is_relation,
    node_list_spec,
    relation_spec,
)
from autoplan.trace.readings import inferred_spec
from autoplan.trace.scope import NUM_NODES, AnyGraph, Scope, TypeKey, full_name, key_name, label

_TENSORS = frozenset({"x", "edge_index", "edge_attr", "edge_weight", "y", "pos", "batch"})
"""Attributes that PyG's layers and losses read as tensors."""


def check_graph(graph: object) -> None:
    """Raise TraceError for anything that is neither a `Data` nor a `HeteroData`."""
    if not isinstance(graph, Data | HeteroData):
        raise TraceError(
            f"the graph is a {type(graph).__name__}; give a torch_geometric.data.Data with x and edge_index, or a HeteroData"
        )


def tensors_by_part(
    parts: Mapping[TypeKey, Mapping[str, Any]],
) -> tuple[
    dict[TypeKey, dict[str, Tensor]],
    dict[str, Tensor],
    tuple[tuple[str, Any], ...],
    dict[TypeKey, dict[str, Tensor]],
]:
    """Tensors by part and name, by full name, what is no tensor by full name, and sparse adjacencies by part and name.

    An adjacency is among the tensors, too: its pairs under its name, and its values. Raises TraceError.
    """
    tensors_of: dict[TypeKey, dict[str, Tensor]] = {}
    matrices: dict[TypeKey, dict[str, Tensor]] = {}
    named: dict[str, Tensor] = {}
    constants: dict[str, Any] = {}
    for key, values in parts.items():
        own = tensors_of.setdefault(key, {})
        for name, value in sorted(values.items()):
            full = full_name(key, name)
            if full in named or full in constants:
                raise TraceError(f"two attributes of the graph are called {full!r}; rename a type")
            if not isinstance(value, Tensor):
                _check_constant(label(key, name), name, value)
                constants[full] = value
                continue
            tensor = plain_tensor(value)
            if tensor.layout == torch.strided:
                own[name] = named[full] = tensor
                continue
            check_matrix(label(key, name), name, tensor)
            matrices.setdefault(key, {})[name] = tensor
            own[name], own[f"{name}{VALUES}"] = pairs_of(tensor)
    return tensors_of, named, tuple(sorted(constants.items())), matrices


def _check_constant(where: str, name: str, value: object) -> None:
    """Raise TraceError where what PyG's layers read as a tensor is an array or a list."""
    if name in _TENSORS and isinstance(value, np.ndarray | list | tuple):
        made = "from_numpy" if isinstance(value, np.ndarray) else "tensor"
        raise TraceError(
            f"{where} is a {type(value).__name__}, not a tensor; set {where} = torch.{made}({where})"
        )


def plain_tensor(tensor: Tensor) -> Tensor:
    """The tensor without its subclass (`EdgeIndex`, `Parameter`); itself where it has none."""
    if type(tensor) is Tensor:
        return tensor
    if isinstance(tensor, EdgeIndex):
        inner: Tensor = tensor.as_tensor()
        return inner
    return tensor.as_subclass(Tensor)


def asked_of(inputs: Mapping[str, Any], named: Mapping[str, Tensor]) -> dict[str, Any]:
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


def scope_of(
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
        known = {NODE: rows[NODE], EDGE: tensors[str(own_edges(tensors))].size(1)}
    elif isinstance(key, str):
        node = node_axis(key)
        ends = (node, node)
        known = {node: rows[node]}
    elif isinstance(key, tuple):
        edge, ends = edge_axis(key_name(key)), (node_axis(key[0]), node_axis(key[2]))
        known = {**{end: rows[end] for end in ends}, edge: tensors[str(own_edges(tensors))].size(1)}
    else:
        known = dict(rows)
    scope = Scope(key, node, edge, ends, known)
    if graphs is not None:
        scope.rows[GRAPH] = graphs
    return scope


def classify(
    scope: Scope,
    tensors: Mapping[str, Tensor],
    asked: Mapping[str, Any],
    found: dict[str, AttributeSpec],
    relations: dict[str, tuple[str, str]],
) -> None:
    """Enter the specs of one part's attributes, lists and pairs first: what is aligned with them is found by their rows."""
    graphs = scope.rows.pop(GRAPH, None)
    rest = []
    edges = own_edges(tensors)
    for name, tensor in tensors.items():
        if name.endswith(VALUES):
            continue
        full = scope.full_name(name)
        wish, pairs = asked.get(full), scope.pairs_axis(name)
        if name == edges and scope.edge is not None:
            pairs = scope.edge
        sparse = f"{name}{VALUES}" in tensors
        if pairs == scope.edge or sparse or is_relation(name, tensor, wish, pairs):
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


def classify_matrix(
    scope: Scope, name: str, matrix: Tensor, found: dict[str, AttributeSpec]
) -> None:
    """Tell the specs of a sparse adjacency that they are its parts. Raises TraceError for one of another graph."""
    assert scope.ends is not None
    shape = (scope.rows[scope.ends[1]], scope.rows[scope.ends[0]])
    if tuple(matrix.shape[:2]) != shape:
        raise TraceError(
            f"{scope.label(name)} is {list(matrix.shape)}; an adjacency has a row for each destination and a column for each "
            f"source, here {list(shape)}"
        )
    full = scope.full_name(name)
    pairs = found[full]
    found[full] = replace(pairs, layout=LAYOUTS[matrix.layout])
    dims: tuple[str | int, ...] = (pairs.axes[0], *matrix.shape[2:])
    values = f"{full}{VALUES}"
    found[values] = AttributeSpec(
        values, "edge", dims, dtype_name(matrix), key=scope.key, layout="values"
    )


def bare_types(
    found: Mapping[str, AttributeSpec], rows: Mapping[str, int]
) -> Iterator[tuple[str, AttributeSpec]]:
    """For each node type no tensor of which tells its size, an input that does: one boolean for each node."""
    counted = {axis for spec in found.values() for axis in spec.axes}
    for axis in rows:
        kind = type_of_axis(axis)
        if is_node_axis(axis) and axis not in counted and kind is not None:
            name = full_name(kind, NUM_NODES)
            yield name, AttributeSpec(name, "node", (axis,), "bool", key=kind)


def graph_count(
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
