"""autoplan's own operator for rows that each have a weight matrix of their type, with its gradients of any order.

    typed_matmul(x [N, I], kind [N], weight [T, I, O]) -> [N, O]     row n: x[n] @ weight[kind[n]]
    typed_outer(x [N, I], y [N, O], kind [N], types T) -> [T, I, O]  type t: the sum over its rows of x[n]^T y[n]

Each one's gradients are made of the two. What a row gives depends on the row alone, whatever the order of the types, which
the loops over slices of sorted rows that it stands for do not show. Importing this module registers both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("autoplan::typed_matmul", mutates_args=())
def typed_matmul(x: Tensor, kind: Tensor, weight: Tensor) -> Tensor:
    """Every row times the matrix of its type; rows of no type are zero."""
    result = x.new_zeros(x.size(0), weight.size(2))
    for number, rows in _rows_of_types(kind, weight.size(0)):
        result[rows] = x[rows] @ weight[number]
    return result


@torch.library.custom_op("autoplan::typed_outer", mutates_args=())
def typed_outer(x: Tensor, y: Tensor, kind: Tensor, types: int) -> Tensor:
    """By type, the sum of its rows' outer products."""
    result = x.new_zeros(types, x.size(1), y.size(1))
    for number, rows in _rows_of_types(kind, types):
        result[number] = x[rows].t() @ y[rows]
    return result


def _rows_of_types(kind: Tensor, types: int) -> Iterator[tuple[int, slice | Tensor]]:
    """The rows of each type that has any: a slice where types ascend."""
    if bool((kind[1:] >= kind[:-1]).all()):
        numbers = torch.arange(types + 1, device=kind.device, dtype=kind.dtype)
        bounds = torch.searchsorted(kind.contiguous(), numbers).tolist()
        spans = itertools.pairwise(bounds)
        yield from ((t, slice(a, b)) for t, (a, b) in enumerate(spans) if b > a)
        return
    for number in range(types):
        rows = (kind == number).nonzero().squeeze(1)
        if rows.numel():
            yield number, rows


@typed_matmul.register_fake
def _(x: Tensor, kind: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.size(0), weight.size(2))


@typed_outer.register_fake
def _(x: Tensor, y: Tensor, kind: Tensor, types: int) -> Tensor:
    return x.new_empty(types, x.size(1), y.size(1))


def _keep_matmul(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
    x, kind, weight = ctx.saved_tensors
    to_x, _, to_weight = ctx.needs_input_grad
    return (
        typed_matmul(gradient, kind, weight.transpose(1, 2)) if to_x else None,
        None,
        typed_outer(x, gradient, kind, weight.size(0)) if to_weight else None,
    )


def _keep_outer(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _outer_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    x, y, kind = ctx.saved_tensors
    return (
        typed_matmul(y, kind, gradient.transpose(1, 2)) if ctx.needs_input_grad[0] else None,
        typed_matmul(x, kind, gradient) if ctx.needs_input_grad[1] else None,
        None,
        None,
    )


typed_matmul.register_autograd(_matmul_backward, setup_context=_keep_matmul)
typed_outer.register_autograd(_outer_backward, setup_context=_keep_outer)
