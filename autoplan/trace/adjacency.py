"""A graph's sparse adjacency as plain tensors (pairs of nodes and values), and put together again (torch)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from autoplan.errors import TraceError
from autoplan.program.torch_internals import pointers_of

LAYOUTS = {torch.sparse_coo: "coo", torch.sparse_csr: "csr"}
"""Layouts of an adjacency that are known, and their short names."""

VALUES = ".values"
"""How the name of an adjacency's values ends; that of its pairs is the attribute's own."""

EDGES = "edge_index"


def own_edges(names: Collection[str]) -> str | None:
    """The attribute that holds the edges of a part of a graph: ``edge_index``, else an adjacency; None: there is none."""
    if EDGES in names:
        return EDGES
    return min((name.removesuffix(VALUES) for name in names if name.endswith(VALUES)), default=None)


def pairs_of(adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """[2, K] int64 sources and destinations of the edges, ordered by destination, and their [K, ...] values.

    Args:
        adjacency: as convolutions take it, a row for each destination (``adj_t``); an edge that is there twice counts once,
            with the sum of its values, as in every product.
    """
    if adjacency.layout == torch.sparse_csr:
        pointers = adjacency.crow_indices()
        rows = torch.arange(adjacency.size(0), device=adjacency.device)
        row = rows.repeat_interleave(pointers.diff())
        column, values = adjacency.col_indices(), adjacency.values()
    else:
        coalesced = adjacency.coalesce()
        (row, column), values = coalesced.indices(), coalesced.values()
    return torch.stack([column.long(), row.long()]), values


def adjacency(pairs: Tensor, values: Tensor, rows: Any, columns: Any, layout: str) -> Tensor:
    """The sparse matrix with these entries; a torch function, so that a recorder sees it whole.

    Args:
        pairs: [2, K] columns and rows, ordered by rows.
        values: [K, ...].
        rows: how many there are.
        columns: how many there are.
        layout: ``coo`` or ``csr``.
    """
    if has_torch_function_unary(pairs):
        made: Tensor = handle_torch_function(
            adjacency, (pairs,), pairs, values, rows, columns, layout
        )
        return made
    shape = (rows, columns, *values.shape[1:])
    if layout == "coo":
        return torch.sparse_coo_tensor(
            pairs.flip(0), values, shape, is_coalesced=True, check_invariants=False
        )
    pointers = pointers_of(pairs[1].contiguous(), rows)
    column = pairs[0].contiguous()
    return torch.sparse_csr_tensor(pointers, column, values, shape, check_invariants=False)


def check_matrix(where: str, name: str, matrix: Tensor) -> None:
    """Raise TraceError for a sparse tensor that is no adjacency, or none whose entries are known.

    Args:
        where: the attribute as the user writes it.
        name: the attribute's name.
        matrix: a sparse tensor.
    """
    if "adj" not in name and "edge" not in name:
        raise TraceError(
            f"{where} is a sparse tensor ({matrix.layout}), which cannot be sampled or sharded; use {where}.to_dense(), or, if it "
            f"says which nodes are joined, call it adj_t"
        )
    if matrix.layout not in LAYOUTS:
        raise TraceError(
            f"{where} is a sparse tensor in the layout {matrix.layout}; give it as rows of destinations: "
            f"{where}.to_sparse_csr(), or give the graph as edge_index (and edge_weight) and remove {name!r}"
        )
    if matrix.dim() - matrix.dense_dim() != 2:
        raise TraceError(f"{where} has {matrix.dim()} sparse dimensions; an adjacency has two")
