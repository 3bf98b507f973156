"""Tables of the model with an entry for each node: cut to a sample's nodes while a step runs on it (torch).

A node embedding, or a weight that multiplies the adjacency matrix, has as many rows as the graph has nodes. On a sample its
first rows stand for it. On the graph itself that is the whole table, so a program recorded so is that of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from autoplan.opgraph import is_node_axis
from autoplan.program.torch_internals import module_tensors
from autoplan.trace.schema import GraphSchema

LEAST_ROWS = 32
"""A tensor of the model with as many rows as the graph has nodes or edges is taken for a table from this size on."""

Tables = Mapping[str, tuple[str, int]]
"""Path of a parameter or buffer -> the graph's attribute, and its dimension, that has as many rows."""


def tables_of(model: nn.Module, schema: GraphSchema) -> Tables:
    """The parameters and buffers with a row for each of the graph's nodes."""
    counted = {
        schema.rows[dim]: (spec.name, position)
        for spec in reversed(schema.attributes)
        for position, dim in enumerate(spec.dims)
        if isinstance(dim, str) and is_node_axis(dim) and schema.rows[dim] >= LEAST_ROWS
    }
    return {
        path: counted[tensor.size(0)]
        for path, tensor in (*model.named_parameters(), *model.named_buffers())
        if not nn.parameter.is_lazy(tensor) and tensor.dim() and tensor.size(0) in counted
    }


@contextmanager
def cut_tables(model: nn.Module, tables: Tables, graph: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it, the model has only the rows of these tensors that the graph, given as its tensors by name, has nodes for."""
    whole: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, (attribute, dim) in tables.items():
            owner, _, key = path.rpartition(".")
            module = model.get_submodule(owner)
            own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
            held = module_tensors(module, "parameter" if key in own else "buffer")
            whole.append((held, key, held[key]))
            held[key] = held[key][: graph[attribute].size(dim)]
        yield
    finally:
        for held, key, tensor in whole:
            held[key] = tensor
