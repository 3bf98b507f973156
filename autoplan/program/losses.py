"""Kernels of losses over the rows of all ranks (see `program.kernels`)."""

from __future__ import annotations

from typing import Any

import torch

from autoplan.program.aten import bound_arguments, resolve
from autoplan.program.context import RankContext
from autoplan.program.exchange import all_reduce
from autoplan.program.kernel_info import KernelInfo, call_overload, global_rows, sharded_dim

_MEAN, _SUM = 1, 2
"""ATen's numbers for the reductions of a loss."""


def mean_loss(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """An elementwise loss (mse, binary cross-entropy, smooth l1, ...) with reduction mean: this rank's part of it.

    A rank without rows contributes zero.
    """
    operator = resolve(info.func)
    arguments = bound_arguments(operator, args, kwargs)
    if arguments["reduction"] != _MEAN:
        return call_overload(operator, arguments)
    sharded = sharded_dim(info)
    values = args[0]
    count = global_rows(context, info, values, sharded)
    for position, size in enumerate(values.shape):
        if position != sharded:
            count = count * size
    arguments["reduction"] = _SUM
    return call_overload(operator, arguments) / count


def nll_loss(
    context: RankContext,
    info: KernelInfo,
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten.nll_loss_forward`` with reduction mean or sum: (loss, total weight), both whole.

    A rank without labels contributes zero to both; without any label at all the mean is NaN, as torch's is.
    """
    operator = torch.ops.aten.nll_loss_forward.default
    if reduction not in (_MEAN, _SUM):
        return operator(scores, target, weight, reduction, ignore_index)  # type: ignore[no-any-return]
    loss, total_weight = operator(scores, target, weight, _SUM, ignore_index)
    loss, total_weight = all_reduce(context, torch.stack([loss, total_weight])).unbind(0)
    return (loss / total_weight if reduction == _MEAN else loss), total_weight.detach()


def nll_loss_counted(
    context: RankContext,
    info: KernelInfo,
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`nll_loss` of local scores where the targets of all rows are at hand: this rank's part, without a collective."""
    operator = torch.ops.aten.nll_loss_forward.default
    mine = target.index_select(0, _own_rows(info))
    loss, _ = operator(scores, mine, weight, _SUM, ignore_index)
    meant = target[target != ignore_index]
    total = meant.new_ones(meant.shape) if weight is None else weight.index_select(0, meant)
    total_weight = total.sum().to(scores.dtype)
    return (loss / total_weight if reduction == _MEAN else loss), total_weight


def mean_loss_counted(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """`mean_loss` where the whole target is at hand: it says how many elements there are."""
    operator = resolve(info.func)
    arguments = bound_arguments(operator, args, kwargs)
    whole = arguments["target"]
    arguments["target"] = whole.index_select(sharded_dim(info), _own_rows(info))
    arguments["reduction"] = _SUM
    return call_overload(operator, arguments) / whole.numel()


def _own_rows(info: KernelInfo) -> torch.Tensor:
    """Where this rank's rows are among all rows."""
    assert info.keys is not None
    assert info.whole_keys is not None
    return torch.searchsorted(info.whole_keys, info.keys)
