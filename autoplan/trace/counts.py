"""How many nodes and edges a graph has, by type: as it says, or as its attributes tell (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from autoplan.errors import TraceError
from autoplan.opgraph import NODE, node_axis
from autoplan.trace.adjacency import own_edges
from autoplan.trace.attributes import describe, is_node_list, is_relation
from autoplan.trace.scope import AnyGraph, TypeKey, full_name, label, store_of

_COUNTS_NODES = ("x", "pos", "feat", "batch", "node_type", "n_id", "train_mask", "y")

_TensorsOf = Mapping[TypeKey, Mapping[str, Tensor]]


def node_rows(graph: AnyGraph, tensors_of: _TensorsOf, asked: Mapping[str, Any]) -> dict[str, int]:
    """By node axis, the number of nodes. Raises TraceError where it is zero or cannot be told."""
    if not isinstance(graph, HeteroData):
        check_edge_index(None, tensors_of[None], graph.keys())
        rows = {NODE: _count(graph, None, tensors_of[None], asked)}
        if rows[NODE] == 0:
            raise TraceError("the graph has no nodes; give a graph with at least one")
        return rows
    kinds = [key for key in tensors_of if isinstance(key, str)]
    if not kinds:
        raise TraceError(
            "the HeteroData has no node types; give each type its features, for example graph['paper'].x = ..."
        )
    rows = {node_axis(kind): _count_of_type(graph, kind, tensors_of[kind], asked) for kind in kinds}
    for kind in kinds:
        if rows[node_axis(kind)] == 0:
            raise TraceError(
                f"node type {kind!r} has no nodes; give it at least one, or remove it and its relations"
            )
    return rows


def check_relations(
    graph: AnyGraph, rows: Mapping[str, int], parts: Mapping[TypeKey, Any], tensors_of: _TensorsOf
) -> None:
    """Raise TraceError where a `HeteroData` has no edges, or a relation no ``edge_index`` or no such node type."""
    if not isinstance(graph, HeteroData):
        return
    relations = [key for key in tensors_of if isinstance(key, tuple)]
    if not relations:
        raise TraceError(
            "the HeteroData has no relations; give it edges, for example "
            "graph['author', 'writes', 'paper'].edge_index = ..."
        )
    for relation in relations:
        for kind in (relation[0], relation[2]):
            if node_axis(kind) not in rows:
                raise TraceError(
                    f"relation {relation} names node type {kind!r}, which has no attributes; give it features, or "
                    f"graph[{kind!r}].num_nodes"
                )
        check_edge_index(relation, tensors_of[relation], parts[relation])


def check_edge_index(key: TypeKey, tensors: Mapping[str, Tensor], names: Any) -> None:
    """Raise TraceError where a part has no edges in the form that is known."""
    where = label(key, "edge_index")
    own = own_edges(tensors)
    if own is None:
        part = "the graph" if key is None else f"relation {key}"
        raise TraceError(
            f"{part} has no edge_index (it has {sorted(names)}); set {where} to an int64 tensor [2, E], sources first"
        )
    edge_index = tensors[own]
    if edge_index.dtype != torch.int64:
        raise TraceError(
            f"{where} is {describe(edge_index)}; it must be int64: use edge_index.long()"
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        hint = "; use edge_index.t()" if edge_index.dim() == 2 and edge_index.size(1) == 2 else ""
        raise TraceError(f"{where} is {describe(edge_index)}; it must be [2, E]{hint}")


def _lists(name: str, tensor: Tensor) -> bool:
    return is_node_list(name, tensor, None) or is_relation(name, tensor, None)


def _counting(key: TypeKey, tensors: Mapping[str, Tensor], asked: Mapping[str, Any]) -> list[str]:
    """Attributes that have a row per node, those that count first in front."""
    names = [
        *_COUNTS_NODES,
        *(name for name in tensors if asked.get(full_name(key, name)) == NODE),
        *(name for name, tensor in tensors.items() if NODE in name and not _lists(name, tensor)),
    ]
    return [name for name in names if name in tensors and tensors[name].dim()]


def _count(
    graph: AnyGraph, key: TypeKey, tensors: Mapping[str, Tensor], asked: Mapping[str, Any]
) -> int:
    """The number of nodes of a graph of one type: as it says, or the rows of an attribute with a row per node."""
    said = store_of(graph, key).to_dict().get("num_nodes")
    if said is not None:
        found = int(said)
    else:
        counting = _counting(key, tensors, asked)
        if not counting:
            raise TraceError(
                f"nothing on the graph has a row per node (it has {sorted(tensors)}); add x, for example "
                "graph.x = torch.arange(num_nodes) for a model that looks nodes up"
            )
        found = tensors[counting[0]].size(0)
    counted = any(
        t.dim() and (t.size(0) == found or name in _COUNTS_NODES) for name, t in tensors.items()
    )
    if found and not counted:
        raise TraceError(
            f"the graph has {found} nodes, but no attribute with a row for each; add x, for example "
            "graph.x = torch.arange(num_nodes) for a model that looks nodes up"
        )
    return found


def _count_of_type(
    graph: HeteroData, kind: str, tensors: Mapping[str, Tensor], asked: Mapping[str, Any]
) -> int:
    """The number of nodes of one type: as it says, or the rows that its attributes have."""
    said = graph[kind].get("num_nodes")
    if said is not None:
        return int(said)
    counting = _counting(kind, tensors, asked)
    if counting:
        return tensors[counting[0]].size(0)
    sizes = {t.size(0) for name, t in tensors.items() if t.dim() and not _lists(name, t)}
    if len(sizes) != 1:
        raise TraceError(
            f"node type {kind!r} does not tell its number of nodes (it has {sorted(tensors)}); add features, or "
            f"graph[{kind!r}].num_nodes"
        )
    return sizes.pop()
