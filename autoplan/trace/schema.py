"""What each attribute of a graph is: the first question of tracing, sampling and sharding (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.edge_index import EdgeIndex

from autoplan.errors import TraceError
from autoplan.opgraph import EDGE, GRAPH, NODE, IndexInto
from autoplan.trace.attributes import (
    KINDS,
    AttributeSpec,
    Kind,
    asked_spec,
    check_positions,
    describe,
    inferred_spec,
    is_node_list,
    is_relation,
    node_list_spec,
    relation_spec,
)

__all__ = ["GRAPH", "AttributeSpec", "GraphSchema", "Kind"]

_DERIVED = ("num_nodes", "ptr")
"""Attributes that follow from others: sizes are read from the tensors, so that a sample or a shard has its own."""

_COUNTS_NODES = ("x", "pos", "feat", "batch", "node_type", "n_id", "train_mask", "y")


@dataclass(frozen=True, slots=True)
class GraphSchema:
    """The attributes of a homogeneous graph, classified.

    Attributes:
        attributes: the tensors, ordered by name. This is the order of a traced step's inputs.
        constants: the other attributes (numbers, strings, None), ordered by name.
        rows: rows of every axis: ``node``, ``edge``, ``edge:ATTRIBUTE``, ``index:ATTRIBUTE``, ``graph``.
    """

    attributes: tuple[AttributeSpec, ...]
    constants: tuple[tuple[str, Any], ...]
    rows: Mapping[str, int]

    @classmethod
    def of(cls, graph: Data, inputs: Mapping[str, Any] | None = None) -> GraphSchema:
        """Classify every attribute of a graph.

        Args:
            graph: a homogeneous graph with an ``edge_index``.
            inputs: what the user says of attributes whose meaning is not clear: attribute -> kind (``"node"``,
                ``"edge"``, ``"graph"``, ``"index"``: a list of nodes, ``"constant"``), axis, or dims as a tuple
                (``("node", "node")``). Entries about forward's arguments are not looked at.

        Raises:
            TraceError: no graph that can be traced, an id out of range, or an attribute that is ambiguous.
        """
        values = _values(graph)
        tensors_by_name = {n: _plain(v) for n, v in sorted(values.items()) if isinstance(v, Tensor)}
        constants = tuple((n, v) for n, v in sorted(values.items()) if not isinstance(v, Tensor))
        asked = _asked(inputs or {}, tensors_by_name)
        _refuse_layouts(tensors_by_name)
        edge_index = _edge_index(tensors_by_name, values)
        nodes = _node_count(graph, tensors_by_name, asked)
        if nodes == 0:
            raise TraceError("the graph has no nodes; give a graph with at least one")
        check_positions("edge_index", edge_index, nodes, "node")
        rows = {NODE: nodes, EDGE: edge_index.size(1)}
        specs = {
            "edge_index": AttributeSpec(
                "edge_index", "edge", (2, EDGE), "int64", IndexInto((NODE,), ("src", "dst"))
            )
        }
        for name, tensor in tensors_by_name.items():
            if name in specs:
                continue
            if is_relation(name, tensor, asked.get(name)):
                specs[name] = relation_spec(name, tensor, nodes)
                rows[f"edge:{name}"] = tensor.size(1)
            elif is_node_list(name, tensor, asked.get(name)):
                specs[name] = node_list_spec(name, tensor, nodes)
                rows[f"index:{name}"] = tensor.size(0)
        if "batch" in tensors_by_name and tensors_by_name["batch"].numel() == nodes:
            check_positions("batch", tensors_by_name["batch"], nodes, GRAPH)
            rows[GRAPH] = _graph_count(graph, tensors_by_name["batch"])
        for name, tensor in tensors_by_name.items():
            if name in specs:
                continue
            if name in asked:
                specs[name] = asked_spec(name, tensor, asked[name], rows)
            else:
                specs[name] = inferred_spec(name, tensor, rows)
        ordered = tuple(specs[name] for name in tensors_by_name)
        return cls(ordered, constants, rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names, in schema order."""
        return tuple(spec.name for spec in self.attributes)

    def __getitem__(self, name: str) -> AttributeSpec:
        """The spec of a tensor attribute. Raises KeyError."""
        for spec in self.attributes:
            if spec.name == name:
                return spec
        raise KeyError(name)

    def tensors(self, graph: Data) -> tuple[Tensor, ...]:
        """The graph's tensors in schema order: plain, contiguous, one object for each. Copies only what is not contiguous.

        Raises:
            TraceError: an attribute of the schema is missing or has another dtype or number of dimensions.
        """
        found: list[Tensor] = []
        for spec in self.attributes:
            value = graph.get(spec.name)
            if not isinstance(value, Tensor):
                raise TraceError(
                    f"the plan was made for a graph with {spec.name!r}; this one has {sorted(graph.keys())}"
                )
            if describe(value).split()[0] != spec.dtype or value.dim() != len(spec.dims):
                raise TraceError(
                    f"graph.{spec.name} is {describe(value)}, but was {spec.dtype} {list(spec.dims)}"
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


def _plain(tensor: Tensor) -> Tensor:
    """The tensor without its subclass (`EdgeIndex`, `Parameter`); itself where it has none."""
    if type(tensor) is Tensor:
        return tensor
    if isinstance(tensor, EdgeIndex):
        inner: Tensor = tensor.as_tensor()
        return inner
    return tensor.as_subclass(Tensor)


def _values(graph: object) -> dict[str, Any]:
    """The graph's attributes without derived ones. Raises TraceError for anything that is no `Data`."""
    if isinstance(graph, HeteroData):
        raise TraceError(
            "the graph is a HeteroData; graphs with several types are not planned yet: give a Data"
        )
    if not isinstance(graph, Data):
        raise TraceError(
            f"the graph is a {type(graph).__name__}; give a torch_geometric.data.Data with x and edge_index"
        )
    return {name: value for name, value in graph.to_dict().items() if name not in _DERIVED}


def _asked(inputs: Mapping[str, Any], tensors_by_name: Mapping[str, Tensor]) -> dict[str, Any]:
    """The entries of ``inputs`` that are about attributes."""
    asked = {}
    for name, value in inputs.items():
        about_kind = isinstance(value, tuple) or value in KINDS or _is_axis(value)
        if name in tensors_by_name and about_kind:
            asked[name] = value
        elif isinstance(value, str) and value in KINDS and value not in tensors_by_name:
            raise TraceError(
                f"inputs speak of {name!r}, which is no tensor of the graph; it has {sorted(tensors_by_name)}"
            )
    return asked


def _is_axis(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("edge:", "index:"))


def _refuse_layouts(tensors_by_name: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors_by_name.items():
        if tensor.layout != torch.strided:
            remedy = (
                f"give the graph as edge_index (and edge_weight) and remove {name!r}"
                if name.startswith("adj")
                else f"use graph.{name}.to_dense()"
            )
            raise TraceError(
                f"graph.{name} is a sparse tensor ({tensor.layout}), which cannot be sampled or sharded; {remedy}"
            )


def _edge_index(tensors_by_name: Mapping[str, Tensor], values: Mapping[str, Any]) -> Tensor:
    """The graph's edges, checked for form. Raises TraceError."""
    if "edge_index" not in tensors_by_name:
        raise TraceError(
            f"the graph has no edge_index (it has {sorted(values)}); set graph.edge_index to an "
            "int64 tensor [2, E], sources first"
        )
    edge_index = tensors_by_name["edge_index"]
    if edge_index.dtype != torch.int64:
        raise TraceError(
            f"graph.edge_index is {describe(edge_index)}; it must be int64: use edge_index.long()"
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        hint = "; use edge_index.t()" if edge_index.dim() == 2 and edge_index.size(1) == 2 else ""
        raise TraceError(f"graph.edge_index is {describe(edge_index)}; it must be [2, E]{hint}")
    return edge_index


def _graph_count(graph: Data, batch: Tensor) -> int:
    """The number of graphs: as a PyG batch says (its last ones may have no nodes), else one more than the highest."""
    named = int(batch.max()) + 1
    return max(named, int(graph.num_graphs)) if isinstance(graph, Batch) else named


def _lists(name: str, tensors_by_name: Mapping[str, Tensor]) -> bool:
    tensor = tensors_by_name[name]
    return is_node_list(name, tensor, None) or is_relation(name, tensor, None)


def _node_count(
    graph: Data, tensors_by_name: Mapping[str, Tensor], asked: Mapping[str, Any]
) -> int:
    """The number of nodes: as the graph says, or the rows of an attribute with a row per node."""
    said = graph.to_dict().get("num_nodes")
    if said is not None:
        found = int(said)
    else:
        names = [
            *_COUNTS_NODES,
            *(name for name in asked if asked[name] == NODE),
            *(
                name
                for name in tensors_by_name
                if NODE in name and not _lists(name, tensors_by_name)
            ),
        ]
        counting = [n for n in names if n in tensors_by_name and tensors_by_name[n].dim()]
        if not counting:
            raise TraceError(
                f"nothing on the graph has a row per node (it has {sorted(tensors_by_name)}); add x, for example "
                "graph.x = torch.arange(num_nodes) for a model that looks nodes up"
            )
        found = tensors_by_name[counting[0]].size(0)
    counted = any(
        t.dim() and (t.size(0) == found or name in _COUNTS_NODES)
        for name, t in tensors_by_name.items()
    )
    if found and not counted:
        raise TraceError(
            f"the graph has {found} nodes, but no attribute with a row for each; add x, for example "
            "graph.x = torch.arange(num_nodes) for a model that looks nodes up"
        )
    return found
