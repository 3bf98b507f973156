"""autoplan's own sparse product, with its gradients: one kernel for CPUs and GPUs.

    spmm(row [K], column [K], weight [K] or None, dense [M, ...], rows N) -> [N, ...]
        row i: the sum over the entries k with row[k] == i of weight[k] * dense[column[k]]
    spmm_extreme(row, column, weight, dense [M, F], rows N, largest) -> ([N, F], [N, F])
        the largest (or smallest) of them, zero where there is none, and the entry that it is of (the first of equals; -1 where
        there is none)

Entries may come in any order and twice. In order of their rows (a CSR matrix, and its transposed one in backward) they are
multiplied by torch's own kernels; else row by row. Importing this module registers both.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from autoplan.program.torch_internals import pointers_of


@torch.library.custom_op("autoplan::spmm", mutates_args=())
def spmm(row: Tensor, column: Tensor, weight: Tensor | None, dense: Tensor, rows: int) -> Tensor:
    """The sums."""
    flat = dense.reshape(dense.size(0), -1)
    if weight is not None and weight.dtype != flat.dtype:
        weight = weight.to(flat.dtype)
    shape = (rows, dense.size(0))
    if ascends(row):
        found = _csr(row, column, weight, shape, flat) @ flat
    elif ascends(column):
        found = _csr(column, row, weight, (shape[1], shape[0]), flat).t().to_sparse_csr() @ flat
    else:
        messages = flat.index_select(0, column)
        if weight is not None:
            messages = messages * weight.unsqueeze(1)
        found = flat.new_zeros(rows, flat.size(1)).index_add_(0, row, messages)
    return found.reshape(rows, *dense.shape[1:])


def ascends(positions: Tensor) -> bool:
    """Whether no position is less than the one before it."""
    return bool((positions[1:] >= positions[:-1]).all())


def _csr(
    row: Tensor, column: Tensor, weight: Tensor | None, shape: tuple[int, int], like: Tensor
) -> Tensor:
    _note_once()
    values = like.new_ones(row.numel()) if weight is None else weight.contiguous()
    pointers = pointers_of(row, shape[0])
    return torch.sparse_csr_tensor(
        pointers, column.contiguous(), values, shape, check_invariants=False
    )


@functools.cache
def _note_once() -> None:
    """Torch says once in a process that its sparse matrices are new; not on the output of a worker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


@spmm.register_fake
def _(row: Tensor, column: Tensor, weight: Tensor | None, dense: Tensor, rows: int) -> Tensor:
    return dense.new_empty(rows, *dense.shape[1:])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    row, column, weight, dense, _ = inputs
    of_weight = weight is not None and weight.requires_grad
    ctx.save_for_backward(row, column, weight, dense if of_weight else None)
    ctx.columns = dense.size(0)


def _backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor | None, Tensor | None, None]:
    row, column, weight, dense = ctx.saved_tensors
    to_dense = to_weight = None
    if ctx.needs_input_grad[3]:
        to_dense = spmm(column, row, weight, gradient.contiguous(), ctx.columns)
    if ctx.needs_input_grad[2]:
        both = gradient.index_select(0, row) * dense.index_select(0, column)
        to_weight = both.reshape(row.numel(), -1).sum(1).to(weight.dtype)
    return None, None, to_weight, to_dense, None


spmm.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("autoplan::spmm_extreme", mutates_args=())
def spmm_extreme(
    row: Tensor, column: Tensor, weight: Tensor | None, dense: Tensor, rows: int, largest: bool
) -> tuple[Tensor, Tensor]:
    """The extremes, and their entries."""
    messages = dense.index_select(0, column)
    if weight is not None:
        messages = messages * weight.to(dense.dtype).unsqueeze(1)
    places = row.unsqueeze(1).expand_as(messages)
    found = dense.new_zeros(rows, dense.size(1))
    found = found.scatter_reduce(
        0, places, messages, "amax" if largest else "amin", include_self=False
    )
    entries = torch.arange(row.numel(), device=row.device).unsqueeze(1).expand_as(messages)
    none = row.numel()
    met = torch.where(messages == found.index_select(0, row), entries, none)
    first = torch.full((rows, dense.size(1)), none, device=row.device)
    first = first.scatter_reduce(0, places, met, "amin")
    return found, torch.where(first == none, -1, first)


@spmm_extreme.register_fake
def _(
    row: Tensor, column: Tensor, weight: Tensor | None, dense: Tensor, rows: int, largest: bool
) -> tuple[Tensor, Tensor]:
    made = dense.new_empty(rows, dense.size(1))
    return made, torch.empty_like(made, dtype=torch.int64)


def _keep_entries(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, column, weight, dense, _, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(column, weight, dense, output[1])


def _extreme_backward(
    ctx: Any, gradient: Tensor, _entries: Any
) -> tuple[None, None, Tensor | None, Tensor | None, None, None]:
    column, weight, dense, entries = ctx.saved_tensors
    to_dense = to_weight = None
    there = entries >= 0
    entry = entries[there]
    at = column.index_select(0, entry)
    feature = there.nonzero()[:, 1]
    given = gradient[there]
    if ctx.needs_input_grad[3]:
        shares = given if weight is None else given * weight.to(given.dtype).index_select(0, entry)
        to_dense = torch.zeros_like(dense).index_put((at, feature), shares, accumulate=True)
    if ctx.needs_input_grad[2]:
        to_weight = torch.zeros_like(weight).index_add(
            0, entry, (given * dense[at, feature]).to(weight.dtype)
        )
    return None, None, to_weight, to_dense, None, None


spmm_extreme.register_autograd(_extreme_backward, setup_context=_keep_entries)
