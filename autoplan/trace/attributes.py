"""What one attribute of a graph is: its spec, lists of nodes and pairs, and what the user says of it (torch)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from autoplan.errors import TraceError
from autoplan.opgraph import (
    GRAPH,
    IndexInto,
    edge_axis,
    is_index_axis,
    is_node_axis,
)
from autoplan.trace.scope import Scope, TypeKey, full_name, label, rows_word

Kind = Literal["node", "edge", "graph", "index", "constant"]
"""What an attribute's rows count: nodes, edges (of any relation), graphs, entries of a list of nodes, or nothing."""

KINDS = ("node", "edge", "graph", "index", "constant")

NODE_NAMES = frozenset({"x", "pos", "feat", "batch", "node_type", "n_id", "y", "z", "label"})
LIST_NAME = re.compile(r"(^|_)(idx|index|indices)(_|$)|_ids$|_nodes$|(^|_)(seeds|perm)$")


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One tensor of the graph.

    Attributes:
        name: the attribute's name in the schema: ``x``, or of several types ``paper.x``.
        kind: what its rows count. A list of nodes and what is aligned with its entries are both ``index``.
        dims: per dimension an axis (``node``, ``edge``, ``edge:ATTRIBUTE``, ``index:ATTRIBUTE``, ``graph``; of several types
            ``node[paper]``, ``edge[author__writes__paper]``, ...) or its size.
        dtype: torch's name without the prefix.
        index: set when its values are positions along an axis.
        key: the part of the graph that holds it.
        layout: of the pairs of a sparse adjacency its layout (``coo``, ``csr``), of its values ``values``; empty for what is no
            part of one.
    """

    name: str
    kind: Kind
    dims: tuple[str | int, ...]
    dtype: str
    index: IndexInto | None = None
    key: TypeKey = None
    layout: str = ""

    @property
    def attribute(self) -> str:
        """Its name in its part of the graph: ``x``."""
        return self.name[len(full_name(self.key, "")) :]

    @property
    def label(self) -> str:
        """How a user writes it: ``graph.x``, ``graph['paper'].x``."""
        return label(self.key, self.attribute)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes among its dimensions, in order."""
        return tuple(dim for dim in self.dims if isinstance(dim, str))


def dtype_name(tensor: Tensor) -> str:
    """``float32`` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def graph_name(variable: str, *, ids: bool) -> str:
    """An attribute's name for a variable that is to be put on the graph, such that a list of nodes is taken for one."""
    name = variable.rpartition(".")[2]
    return name if not ids or LIST_NAME.search(name) else f"{name}_idx"


def is_integer(tensor: Tensor) -> bool:
    """Whether its values could be positions."""
    return tensor.dtype in (torch.int64, torch.int32)


def describe(tensor: Tensor) -> str:
    """``int64 [2, 40]``, for messages."""
    return f"{dtype_name(tensor)} {list(tensor.shape)}"


def ambiguous(
    scope: Scope, name: str, tensor: Tensor, reading: str, choices: tuple[str, ...]
) -> TraceError:
    """The error that asks the user what an attribute is."""
    options = " or ".join(f"inputs={{'{scope.full_name(name)}': {choice}}}" for choice in choices)
    return TraceError(f"{scope.label(name)} ({describe(tensor)}) {reading}; say which: {options}")


def check_positions(where: str, tensor: Tensor, rows: int, of: str) -> None:
    """Raise TraceError where a value is no position along an axis of ``rows`` rows; names the value.

    Args:
        where: the attribute as the user writes it, ``graph.edge_index``.
        tensor: its values.
        rows: of the axis.
        of: what a row of the axis is, ``node``.
    """
    if not tensor.numel():
        return
    low, high = (int(value) for value in torch.aminmax(tensor))
    if low < 0:
        raise TraceError(f"{where} holds the {of} id {low}; ids start at 0")
    if high >= rows:
        raise TraceError(
            f"{where} holds the {of} id {high}, but the graph has {rows} {of}s (ids 0 to {rows - 1})"
        )


def is_relation(name: str, tensor: Tensor, asked: object, axis: str | None = None) -> bool:
    """Whether it lists pairs of nodes: integers [2, K] under a name with ``index``, or said to be along ``axis``."""
    if asked is not None:
        return asked == (2, axis or edge_axis(attribute=name))
    return "index" in name and tensor.dim() == 2 and tensor.size(0) == 2 and is_integer(tensor)


def is_node_list(name: str, tensor: Tensor, asked: object) -> bool:
    """Whether it lists nodes: integers [K], by name or because the user says so."""
    if asked is not None:
        return asked == "index"
    return (
        bool(LIST_NAME.search(name))
        and name not in NODE_NAMES
        and tensor.dim() == 1
        and is_integer(tensor)
    )


def relation_spec(scope: Scope, name: str, tensor: Tensor, axis: str) -> AttributeSpec:
    """Pairs of nodes, which the rows of their own edge axis are. Raises TraceError for ids out of range or a wrong form."""
    where = scope.label(name)
    if tensor.dim() != 2 or tensor.size(0) != 2 or not is_integer(tensor):
        raise TraceError(f"{where} is {describe(tensor)}; pairs of nodes are int64 [2, K]")
    if scope.ends is None:
        raise TraceError(
            f"{where} holds pairs of nodes, but not of which types; put it on a relation, for example "
            f"graph['user', 'rates', 'item'].{name}"
        )
    for end, row in zip(scope.ends, tensor, strict=True):
        check_positions(where, row, scope.rows[end], rows_word(end))
    index = IndexInto(scope.ends, ("src", "dst"))
    full = scope.full_name(name)
    return AttributeSpec(full, "edge", (2, axis), dtype_name(tensor), index, scope.key)


def node_list_spec(scope: Scope, name: str, tensor: Tensor) -> AttributeSpec:
    """A list of nodes. Raises TraceError for ids out of range, a wrong form, or a list of edges."""
    where = scope.label(name)
    if "edge" in name or (scope.node is None and scope.edge is not None):
        raise TraceError(
            f"{where} lists edges, which cannot be followed into a shard; give a boolean mask with a row per edge"
        )
    if scope.node is None:
        raise TraceError(
            f"{where} lists nodes, but not of which type; put it on a node type, for example graph['paper'].{name}"
        )
    if tensor.dim() != 1 or not is_integer(tensor):
        raise TraceError(f"{where} is {describe(tensor)}; a list of nodes is int64 [K]")
    check_positions(where, tensor, scope.rows[scope.node], rows_word(scope.node))
    index = IndexInto((scope.node,), ("self",))
    full, dims = scope.full_name(name), (scope.list_axis(name),)
    return AttributeSpec(full, "index", dims, dtype_name(tensor), index, scope.key)


def asked_spec(scope: Scope, name: str, tensor: Tensor, asked: object) -> AttributeSpec:
    """What the user says it is: a kind, an axis, or dims as a tuple of axes and sizes.

    Raises:
        TraceError: it says something that the tensor's shape contradicts, or that does not exist.
    """
    shape, rows, full = tuple(tensor.shape), scope.rows, scope.full_name(name)
    where = scope.label(name)
    if asked == "constant" or (asked == GRAPH and GRAPH not in rows):
        kind: Kind = "constant" if asked == "constant" else "graph"
        return AttributeSpec(full, kind, shape, dtype_name(tensor), key=scope.key)
    wanted_dims: tuple[Any, ...] = asked if isinstance(asked, tuple) else (asked, *shape[1:])
    dims = tuple(scope.axis(dim) if isinstance(dim, str) else dim for dim in wanted_dims)
    if len(dims) != len(shape):
        raise TraceError(f"inputs say {where} is {dims}, but it is {describe(tensor)}")
    for position, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if isinstance(dim, str) and dim not in rows:
            raise TraceError(
                f"inputs say that {where} counts {dim!r}; the graph has {sorted(rows)} and kinds are {list(KINDS)}"
            )
        wanted = rows[dim] if isinstance(dim, str) else dim
        if wanted != size:
            raise TraceError(
                f"inputs say that dimension {position} of {where} counts {dim!r} ({wanted}), but it has {size}"
            )
    axes = [dim for dim in dims if isinstance(dim, str)]
    kind = kind_of(axes[0]) if axes else "constant"
    return AttributeSpec(full, kind, dims, dtype_name(tensor), key=scope.key)


def kind_of(axis: str) -> Kind:
    """The kind of an attribute whose first axis this is."""
    if is_node_axis(axis):
        return "node"
    if axis == GRAPH:
        return "graph"
    return "index" if is_index_axis(axis) else "edge"
