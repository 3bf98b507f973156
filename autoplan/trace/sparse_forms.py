"""PyG's functions of sparse matrices as functions of their entries while a pass is recorded (torch).

The originals sort the entries again, and count them out of pointers, which says nothing of their ends to a rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from autoplan.trace.recorder import Recorder
from autoplan.trace.shadows import Replacement
from autoplan.trace.sparse import Entries, Function, SparseTensors

Standing = Callable[[Function, Function], Function]
"""Gives the stand-in, or the original, by what runs."""


def sparse_forms(recorder: Recorder, standing: Standing) -> Iterator[Replacement]:
    """The replacements, wherever the originals were imported."""
    forms = {
        "to_edge_index": (_to_edge_index, "torch_geometric.utils.sparse"),
        "set_sparse_value": (_set_sparse_value, "torch_geometric.utils.sparse"),
        "add_self_loops": (_add_self_loops, "torch_geometric.utils.loop"),
    }
    known: dict[int, Function] = {}
    for name, (form, home) in forms.items():
        original = vars(sys.modules[home]).get(name) if home in sys.modules else None
        if original is not None:
            known[id(original)] = standing(form(recorder.sparse, original), original)
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if not isinstance(namespace, dict) or not known:
            continue
        for name in (*forms, *_OTHER_NAMES):
            value = namespace.get(name)
            if value is not None and id(value) in known:
                yield namespace, name, known[id(value)]


_OTHER_NAMES = ("add_self_loops_fn",)
"""What PyG's modules call them besides."""


def _to_edge_index(sparse: SparseTensors, original: Function) -> Function:
    def to_edge_index(adj: Any) -> Any:
        entries = sparse.entries(adj)
        if entries is None:
            return original(adj)
        return torch.stack([entries.row, entries.column]), entries.value

    return to_edge_index


def _set_sparse_value(sparse: SparseTensors, original: Function) -> Function:
    def set_sparse_value(adj: Any, value: Tensor) -> Any:
        entries = sparse.entries(adj)
        if entries is None or value.dim() != 1:
            return original(adj, value)
        return sparse.with_value(entries, value, adj.layout)

    return set_sparse_value


def _add_self_loops(sparse: SparseTensors, original: Function) -> Function:
    """A loop at every node, after the entries that are there: what stands twice is added in every product."""

    def add_self_loops(
        edge_index: Any, edge_attr: Any = None, fill_value: Any = None, num_nodes: Any = None
    ) -> Any:
        entries = sparse.entries(edge_index)
        number = fill_value is None or isinstance(fill_value, int | float)
        if entries is None or edge_attr is not None or not number or entries.value.dim() != 1:
            return original(edge_index, edge_attr, fill_value, num_nodes)
        loops = torch.arange(entries.shape[0], device=entries.row.device)
        filled = entries.value.new_full(
            (entries.shape[0],), 1.0 if fill_value is None else fill_value
        )
        joined = Entries(
            torch.cat([entries.row, loops]),
            torch.cat([entries.column, loops]),
            torch.cat([entries.value, filled]),
            entries.shape,
            False,
        )
        return sparse.entered(joined, edge_index.layout), None

    return add_self_loops
