"""What an attribute is by its name and sizes, and the errors where they do not decide (torch)."""

from __future__ import annotations

import torch
from torch import Tensor

from autoplan.errors import TraceError
from autoplan.opgraph import EDGE, GRAPH, NODE, IndexInto, is_node_axis
from autoplan.trace.attributes import (
    LIST_NAME,
    NODE_NAMES,
    AttributeSpec,
    ambiguous,
    describe,
    dtype_name,
    is_integer,
    kind_of,
)
from autoplan.trace.scope import Scope, rows_word

_NODE_ROWS = frozenset({"x", "pos", "batch", "train_mask", "val_mask", "test_mask"})
_EDGE_ROWS = frozenset({"edge_weight", "edge_attr", "edge_type"})
_SQUARE_FEATURES = frozenset({"x", "y", "pos", "feat"})


def inferred_spec(scope: Scope, name: str, tensor: Tensor) -> AttributeSpec:
    """What it is by its name and sizes.

    Args:
        scope: the part of the graph that holds it.
        name: the attribute's name there.
        tensor: its value; neither a relation nor a list of nodes.

    Raises:
        TraceError: a reserved name has the wrong number of rows, or several readings are left.
    """
    shape = tuple(tensor.shape)
    full, dtype = scope.full_name(name), dtype_name(tensor)
    for axis, word in scope.own():
        reserved = _NODE_ROWS if axis == scope.node else _EDGE_ROWS
        if name in reserved and (not shape or shape[0] != scope.rows[axis]):
            raise TraceError(
                f"{scope.label(name)} is {describe(tensor)}, but the graph has {scope.rows[axis]} {word}s; "
                "it needs a row for each"
            )
    if not shape:
        return AttributeSpec(full, "graph", (), dtype, key=scope.key)
    if LIST_NAME.search(name) and name not in NODE_NAMES and is_integer(tensor):
        reading = "looks like ids in a form that is not known"
        raise ambiguous(scope, name, tensor, reading, ("'constant'",))
    axis_found = _axis_by_size(scope, name, tensor)
    if axis_found is not None:
        _refuse_second_reading(scope, name, tensor, axis_found)
        index = IndexInto((GRAPH,), ("self",)) if name == "batch" else None
        dims: tuple[str | int, ...] = (axis_found, *shape[1:])
        return AttributeSpec(full, kind_of(axis_found), dims, dtype, index, scope.key)
    if shape[0] == 1:
        return AttributeSpec(full, "graph", shape, dtype, key=scope.key)
    _refuse_unnamed_positions(scope, name, tensor)
    for position, size in enumerate(shape):
        for axis, word in scope.own():
            if size == scope.rows[axis] and size > 1:
                reading = f"has {size} entries along dimension {position}, as many as the graph has {word}s"
                said = tuple(axis if i == position else s for i, s in enumerate(shape))
                raise ambiguous(scope, name, tensor, reading, (str(said), "'constant'"))
    return AttributeSpec(full, "constant", shape, dtype, key=scope.key)


def _refuse_unnamed_positions(scope: Scope, name: str, tensor: Tensor) -> None:
    """Raise where values that no size explains could be ids of the part's nodes."""
    if scope.node is None or not is_integer(tensor):
        return
    if not _all_positions(tensor, scope.rows[scope.node]):
        return
    if tensor.dim() == 1:
        reading = "could list nodes or be a constant"
        raise ambiguous(scope, name, tensor, reading, ("'index'", "'constant'"))
    if tensor.dim() == 2 and tensor.size(0) == 2:
        pairs = str((2, scope.pairs_axis(name)))
        reading = "could be pairs of nodes or a constant"
        raise ambiguous(scope, name, tensor, reading, (pairs, "'constant'"))


def _axis_by_size(scope: Scope, name: str, tensor: Tensor) -> str | None:
    """The axis with as many rows as the tensor; among several the one that the name speaks for."""
    size = tensor.size(0)
    counted = [axis for axis in scope.rows if not _is_foreign(scope, axis)]
    found = [axis for axis in counted if scope.rows[axis] == size]
    if not found:
        return None
    wanted = _axis_by_name(scope, name, found)
    if wanted is None and len(found) == 1 and found[0] in (scope.node, scope.edge, GRAPH):
        return found[0]
    if wanted is None:
        readings = (*found, "constant") if len(found) == 1 else tuple(found)
        raise ambiguous(
            scope,
            name,
            tensor,
            f"has {size} rows, as many as {' and '.join(found)}",
            tuple(repr(reading) for reading in readings),
        )
    return wanted


def _is_foreign(scope: Scope, axis: str) -> bool:
    """Whether a relation's part knows an axis of nodes only because its edges end there."""
    return scope.node is None and scope.edge is not None and is_node_axis(axis)


def _axis_by_name(scope: Scope, name: str, found: list[str]) -> str | None:
    """Which of the axes a name speaks for: PyG's names, ``node`` and ``edge`` in it, or a relation's or list's stem.

    Where every graph of a batch has a single node, ``y`` labels the graphs, as it does in most batches (``inputs=`` says
    otherwise). On a graph of several types what lies on a type is about that type's rows.
    """
    if name == "y" and GRAPH in found:
        return GRAPH
    for axis in found:
        _, _, attribute = axis.rpartition("]")[2].partition(":")
        stem = LIST_NAME.sub("", attribute).strip("_")
        if stem and (name.startswith(stem) or name.endswith(stem)) and stem not in (EDGE, NODE):
            return axis
    if scope.key is not None:
        return next((axis for axis, _ in scope.own() if axis in found), None)
    if EDGE in name:
        return scope.edge if scope.edge in found else None
    known = name in NODE_NAMES or name in _NODE_ROWS or NODE in name
    return scope.node if known and scope.node in found else None


def _refuse_second_reading(scope: Scope, name: str, tensor: Tensor, axis: str) -> None:
    """Raise where rows are clear but values or further dimensions could still be node ids or nodes."""
    size = scope.rows[axis]
    if axis == scope.node and size > 2 and tensor.dim() == 1 and is_integer(tensor):
        unnamed = name not in NODE_NAMES and name not in _NODE_ROWS and NODE not in name
        if (
            unnamed
            and _all_positions(tensor, size)
            and torch.bincount(tensor, minlength=size).max() == 1
        ):
            reading = "is a permutation of the node ids: a value per node or a list of nodes"
            raise ambiguous(scope, name, tensor, reading, ("'node'", "'index'"))
    square = tensor.dim() > 1 and size > 1 and size in tensor.shape[1:]
    if square and axis in (scope.node, scope.edge) and name not in _SQUARE_FEATURES:
        dims = tuple(axis if s == size else s for s in tensor.shape)
        reading = f"counts {rows_word(axis)}s along its rows and perhaps again"
        raise ambiguous(scope, name, tensor, reading, (repr(axis), str(dims)))


def _all_positions(tensor: Tensor, rows: int) -> bool:
    if not tensor.numel():
        return False
    low, high = torch.aminmax(tensor)
    return bool(low >= 0) and bool(high < rows)
