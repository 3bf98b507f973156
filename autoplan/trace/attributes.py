"""What one attribute of a graph is: rules by name and size, and the errors where they do not decide (torch)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from autoplan.errors import TraceError
from autoplan.opgraph import EDGE, GRAPH, NODE, IndexInto

Kind = Literal["node", "edge", "graph", "index", "constant"]
"""What an attribute's rows count: nodes, edges (of any relation), graphs, entries of a list of nodes, or nothing."""

KINDS = ("node", "edge", "graph", "index", "constant")

_NODE_NAMES = frozenset({"x", "pos", "feat", "batch", "node_type", "n_id", "y", "z", "label"})
_NODE_ROWS = frozenset({"x", "pos", "batch", "train_mask", "val_mask", "test_mask"})
_EDGE_ROWS = frozenset({"edge_weight", "edge_attr", "edge_type"})
_LIST_NAME = re.compile(r"(^|_)(idx|index|indices)(_|$)|_ids$|_nodes$|(^|_)(seeds|perm)$")
_SQUARE_FEATURES = frozenset({"x", "y", "pos", "feat"})


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One tensor of the graph.

    Attributes:
        name: the attribute's name on the graph.
        kind: what its rows count. A list of nodes and what is aligned with its entries are both ``index``.
        dims: per dimension an axis (``node``, ``edge``, ``edge:ATTRIBUTE``, ``index:ATTRIBUTE``, ``graph``) or its size.
        dtype: torch's name without the prefix.
        index: set when its values are positions along an axis.
    """

    name: str
    kind: Kind
    dims: tuple[str | int, ...]
    dtype: str
    index: IndexInto | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes among its dimensions, in order."""
        return tuple(dim for dim in self.dims if isinstance(dim, str))


def dtype_name(tensor: Tensor) -> str:
    """``float32`` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def is_integer(tensor: Tensor) -> bool:
    """Whether its values could be positions."""
    return tensor.dtype in (torch.int64, torch.int32)


def describe(tensor: Tensor) -> str:
    """``int64 [2, 40]``, for messages."""
    return f"{dtype_name(tensor)} {list(tensor.shape)}"


def ambiguous(name: str, tensor: Tensor, reading: str, choices: tuple[str, ...]) -> TraceError:
    """The error that asks the user what an attribute is."""
    options = " or ".join(f"inputs={{'{name}': {choice}}}" for choice in choices)
    return TraceError(f"graph.{name} ({describe(tensor)}) {reading}; say which: {options}")


def check_positions(name: str, tensor: Tensor, rows: int, of: str) -> None:
    """Raise TraceError where a value is no position along an axis of ``rows`` rows; names the value."""
    if not tensor.numel():
        return
    low, high = (int(value) for value in torch.aminmax(tensor))
    if low < 0:
        raise TraceError(f"graph.{name} holds the {of} id {low}; ids start at 0")
    if high >= rows:
        raise TraceError(
            f"graph.{name} holds the {of} id {high}, but the graph has {rows} {of}s (ids 0 to {rows - 1})"
        )


def is_relation(name: str, tensor: Tensor, asked: object) -> bool:
    """Whether it lists pairs of nodes: integers [2, K] under a name with ``index``."""
    if asked is not None:
        return asked == (2, f"edge:{name}")
    return "index" in name and tensor.dim() == 2 and tensor.size(0) == 2 and is_integer(tensor)


def is_node_list(name: str, tensor: Tensor, asked: object) -> bool:
    """Whether it lists nodes: integers [K], by name or because the user says so."""
    if asked is not None:
        return asked == "index"
    return (
        bool(_LIST_NAME.search(name))
        and name not in _NODE_NAMES
        and tensor.dim() == 1
        and is_integer(tensor)
    )


def relation_spec(name: str, tensor: Tensor, nodes: int) -> AttributeSpec:
    """Pairs of nodes on their own edge axis. Raises TraceError for ids out of range or a wrong form."""
    if tensor.dim() != 2 or tensor.size(0) != 2 or not is_integer(tensor):
        raise TraceError(f"graph.{name} is {describe(tensor)}; pairs of nodes are int64 [2, K]")
    check_positions(name, tensor, nodes, "node")
    return AttributeSpec(
        name, "edge", (2, f"edge:{name}"), dtype_name(tensor), IndexInto((NODE,), ("src", "dst"))
    )


def node_list_spec(name: str, tensor: Tensor, nodes: int) -> AttributeSpec:
    """A list of nodes. Raises TraceError for ids out of range, a wrong form, or a list of edges."""
    if "edge" in name:
        raise TraceError(
            f"graph.{name} lists edges, which cannot be followed into a shard; give a boolean mask with a row per edge"
        )
    if tensor.dim() != 1 or not is_integer(tensor):
        raise TraceError(f"graph.{name} is {describe(tensor)}; a list of nodes is int64 [K]")
    check_positions(name, tensor, nodes, "node")
    return AttributeSpec(
        name, "index", (f"index:{name}",), dtype_name(tensor), IndexInto((NODE,), ("self",))
    )


def asked_spec(name: str, tensor: Tensor, asked: object, rows: Mapping[str, int]) -> AttributeSpec:
    """What the user says it is: a kind, an axis, or dims as a tuple of axes and sizes.

    Raises:
        TraceError: it says something that the tensor's shape contradicts, or that does not exist.
    """
    shape = tuple(tensor.shape)
    if asked == "constant" or (asked == GRAPH and GRAPH not in rows):
        kind: Kind = "constant" if asked == "constant" else "graph"
        return AttributeSpec(name, kind, shape, dtype_name(tensor))
    dims: tuple[Any, ...] = asked if isinstance(asked, tuple) else (asked, *shape[1:])
    if len(dims) != len(shape):
        raise TraceError(f"inputs say graph.{name} is {dims}, but it is {describe(tensor)}")
    for position, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if isinstance(dim, str) and dim not in rows:
            raise TraceError(
                f"inputs say that graph.{name} counts {dim!r}; the graph has {sorted(rows)} and kinds are {list(KINDS)}"
            )
        wanted = rows[dim] if isinstance(dim, str) else dim
        if wanted != size:
            raise TraceError(
                f"inputs say that dimension {position} of graph.{name} counts {dim!r} ({wanted}), but it has {size}"
            )
    axes = [dim for dim in dims if isinstance(dim, str)]
    return AttributeSpec(name, kind_of(axes[0]) if axes else "constant", dims, dtype_name(tensor))


def kind_of(axis: str) -> Kind:
    """The kind of an attribute whose first axis this is."""
    if axis == NODE:
        return "node"
    if axis == GRAPH:
        return "graph"
    return "index" if axis.startswith("index:") else "edge"


def inferred_spec(name: str, tensor: Tensor, rows: Mapping[str, int]) -> AttributeSpec:
    """What it is by its name and sizes.

    Args:
        name: the attribute's name.
        tensor: its value; neither a relation nor a list of nodes.
        rows: rows of every axis of the graph.

    Raises:
        TraceError: a reserved name has the wrong number of rows, or several readings are left.
    """
    shape = tuple(tensor.shape)
    for names, axis in ((_NODE_ROWS, NODE), (_EDGE_ROWS, EDGE)):
        if name in names and (not shape or shape[0] != rows[axis]):
            raise TraceError(
                f"graph.{name} is {describe(tensor)}, but the graph has {rows[axis]} {axis}s; it needs a row for each"
            )
    if not shape:
        return AttributeSpec(name, "graph", (), dtype_name(tensor))
    if _LIST_NAME.search(name) and name not in _NODE_NAMES and is_integer(tensor):
        raise ambiguous(name, tensor, "looks like ids in a form that is not known", ("'constant'",))
    axis_found = _axis_by_size(name, tensor, rows)
    if axis_found is not None:
        _refuse_second_reading(name, tensor, axis_found, rows)
        index = IndexInto((GRAPH,), ("self",)) if name == "batch" else None
        return AttributeSpec(
            name, kind_of(axis_found), (axis_found, *shape[1:]), dtype_name(tensor), index
        )
    if shape[0] == 1:
        return AttributeSpec(name, "graph", shape, dtype_name(tensor))
    if is_integer(tensor) and _all_positions(tensor, rows[NODE]):
        if tensor.dim() == 1:
            raise ambiguous(
                name, tensor, "could list nodes or be a constant", ("'index'", "'constant'")
            )
        if tensor.dim() == 2 and tensor.size(0) == 2:
            pairs = str((2, f"edge:{name}"))
            raise ambiguous(
                name, tensor, "could be pairs of nodes or a constant", (pairs, "'constant'")
            )
    for position, size in enumerate(shape):
        for axis in (NODE, EDGE):
            if size == rows[axis] and size > 1:
                dims = tuple(axis if i == position else s for i, s in enumerate(shape))
                raise ambiguous(
                    name,
                    tensor,
                    f"has {size} entries along dimension {position}, as many as the graph has {axis}s",
                    (str(dims), "'constant'"),
                )
    return AttributeSpec(name, "constant", shape, dtype_name(tensor))


def _axis_by_size(name: str, tensor: Tensor, rows: Mapping[str, int]) -> str | None:
    """The axis with as many rows as the tensor; among several the one that the name speaks for."""
    size = tensor.size(0)
    found = [axis for axis, count in rows.items() if count == size]
    if not found:
        return None
    wanted = _axis_by_name(name, found)
    if wanted is None and found in ([NODE], [EDGE], [GRAPH]):
        return found[0]
    if wanted is None:
        readings = (*found, "constant") if len(found) == 1 else tuple(found)
        raise ambiguous(
            name,
            tensor,
            f"has {size} rows, as many as {' and '.join(found)}",
            tuple(repr(reading) for reading in readings),
        )
    return wanted


def _axis_by_name(name: str, found: list[str]) -> str | None:
    """Which of the axes a name speaks for: PyG's names, ``node`` and ``edge`` in it, or a relation's or list's stem."""
    for axis in found:
        _, _, attribute = axis.partition(":")
        stem = _LIST_NAME.sub("", attribute).strip("_")
        if stem and (name.startswith(stem) or name.endswith(stem)) and stem not in (EDGE, NODE):
            return axis
    if EDGE in name:
        return EDGE if EDGE in found else None
    known = name in _NODE_NAMES or name in _NODE_ROWS or NODE in name
    return NODE if known and NODE in found else None


def _refuse_second_reading(name: str, tensor: Tensor, axis: str, rows: Mapping[str, int]) -> None:
    """Raise where rows are clear but values or further dimensions could still be node ids or nodes."""
    size = rows[axis]
    if axis == NODE and size > 2 and tensor.dim() == 1 and is_integer(tensor):
        unnamed = name not in _NODE_NAMES and name not in _NODE_ROWS and NODE not in name
        if (
            unnamed
            and _all_positions(tensor, size)
            and torch.bincount(tensor, minlength=size).max() == 1
        ):
            raise ambiguous(
                name,
                tensor,
                "is a permutation of the node ids: a value per node or a list of nodes",
                ("'node'", "'index'"),
            )
    square = tensor.dim() > 1 and size > 1 and size in tensor.shape[1:]
    if square and axis in (NODE, EDGE) and name not in _SQUARE_FEATURES:
        dims = tuple(axis if s == size else s for s in tensor.shape)
        raise ambiguous(
            name,
            tensor,
            f"counts {axis}s along its rows and perhaps again",
            (repr(axis), str(dims)),
        )


def _all_positions(tensor: Tensor, rows: int) -> bool:
    if not tensor.numel():
        return False
    low, high = torch.aminmax(tensor)
    return bool(low >= 0) and bool(high < rows)
