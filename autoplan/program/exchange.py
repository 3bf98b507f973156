"""The transitions between states (see `autoplan.states`) on tensors, each with its true adjoint.

Convention: what is differentiated is the sum of all ranks' losses. An exchange is a linear map over all ranks together;
its backward is the transposed map:

    halo_exchange   owned rows -> owned and halo rows     adjoint: halo rows add to their owners' rows
    all_gather      owned rows -> all rows, global order  adjoint: sum over ranks, keep the owned rows (reduce-scatter)
    all_reduce      sum over ranks                        adjoint: sum over ranks

Each pair of adjoints is a pair of `torch.autograd.Function`s whose backwards call each other, so second derivatives are
right too. Slices (R -> O, R -> H, H -> O) are plain indexing: torch's own backward pads with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from autoplan.errors import PlanError
from autoplan.opgraph import State
from autoplan.program.context import AxisRows, RankContext

Along = str | tuple[str, ...]
"""An axis; or of nodes of several types that are joined, the axis of each part: what is exchanged, is so part by part."""


def halo_exchange(
    context: RankContext, tensor: torch.Tensor, axis: Along, dim: int = 0
) -> torch.Tensor:
    """O -> H: appends the halo rows, fetched from their owners; of a closed partition there are none, and nothing is sent.

    ``tensor`` has this rank's owned nodes of the type that ``axis`` counts along ``dim``.
    """
    if isinstance(axis, tuple):
        whole = context.closed
        return tensor if whole else _by_parts(halo_exchange, "O", context, tensor, axis, dim)
    _check_rows(f"halo exchange along '{axis}'", tensor, dim, context.axes[axis].owned)
    if context.closed:
        return tensor
    return _apply(_HaloExchange, context, tensor, dim, axis)


def halo_sum(context: RankContext, tensor: torch.Tensor, axis: str, dim: int = 0) -> torch.Tensor:
    """Owned and halo rows, the halo's still to be added to their owners' -> O: the adjoint of a halo exchange."""
    _check_rows(f"halo sum along '{axis}'", tensor, dim, context.axes[axis].ids.numel())
    return _apply(_HaloReturn, context, tensor, dim, axis)


def all_gather(
    context: RankContext, tensor: torch.Tensor, axis: Along, dim: int = 0
) -> torch.Tensor:
    """O -> R: all ranks' rows of ``axis`` along ``dim``, in global order."""
    if isinstance(axis, tuple):
        return _by_parts(all_gather, "O", context, tensor, axis, dim)
    _check_rows(f"all-gather along '{axis}'", tensor, dim, context.axes[axis].owned)
    return _apply(_AllGather, context, tensor, dim, axis)


def all_reduce(context: RankContext, tensor: torch.Tensor) -> torch.Tensor:
    """S -> R: the sum over all ranks."""
    return _call(_AllReduce, tensor, context)


def own_rows(context: RankContext, tensor: torch.Tensor, axis: Along, dim: int = 0) -> torch.Tensor:
    """R -> O: this rank's owned rows of ``axis``."""
    if isinstance(axis, tuple):
        return _by_parts(own_rows, "R", context, tensor, axis, dim)
    rows = context.axes[axis]
    return tensor.index_select(dim, rows.ids[: rows.owned])


def local_rows(
    context: RankContext, tensor: torch.Tensor, axis: Along, dim: int = 0
) -> torch.Tensor:
    """R -> H: this rank's owned rows, then its halo rows."""
    if isinstance(axis, tuple):
        return _by_parts(local_rows, "R", context, tensor, axis, dim)
    return tensor.index_select(dim, context.axes[axis].ids)


def drop_halo(
    context: RankContext, tensor: torch.Tensor, axis: Along, dim: int = 0
) -> torch.Tensor:
    """H -> O: the owned rows; along the first dimension a view, where no data moves."""
    if isinstance(axis, tuple):
        return _by_parts(drop_halo, "H", context, tensor, axis, dim)
    owned = tensor.narrow(dim, 0, context.axes[axis].owned)
    return owned if dim == 0 else owned.contiguous()


def _by_parts(
    function: Callable[[RankContext, torch.Tensor, str, int], torch.Tensor],
    state: State,
    context: RankContext,
    tensor: torch.Tensor,
    axes: Sequence[str],
    dim: int,
) -> torch.Tensor:
    """A transition of rows of several axes, which lie one after the other in the state that it starts from."""
    sizes = [context.rows(axis, state) for axis in axes]
    parts = zip(torch.split(tensor, sizes, dim), axes, strict=True)
    return torch.cat([function(context, part, axis, dim) for part, axis in parts], dim)


def _check_rows(what: str, tensor: torch.Tensor, dim: int, rows: int) -> None:
    if tensor.size(dim) != rows:
        raise PlanError(
            f"{what}: the tensor has {tensor.size(dim)} rows along dimension {dim}, this rank owns {rows}; "
            "the shard is not the one that the plan was bound to"
        )


def _apply(
    function: type[torch.autograd.Function],
    context: RankContext,
    tensor: torch.Tensor,
    dim: int,
    axis: str,
) -> torch.Tensor:
    """Runs a function of rows with the rows' dimension in front and put back."""
    if dim == 0:
        return _call(function, tensor, context, axis)
    moved = _call(function, tensor.movedim(dim, 0), context, axis).movedim(0, dim)
    # a recorded view may need the strides of a fresh tensor
    return moved.contiguous()


def _call(function: type[torch.autograd.Function], *args: object) -> torch.Tensor:
    result: torch.Tensor = function.apply(*args)  # type: ignore[no-untyped-call]
    return result


def _send(
    context: RankContext,
    rows: torch.Tensor,
    send_counts: Sequence[int],
    recv_counts: Sequence[int],
) -> torch.Tensor:
    """One all_to_all of rows. Booleans travel as bytes: not every backend moves them."""
    # a cotangent may be an expanded scalar, which backends send as garbage (pytorch issue 120582)
    buffer = rows.contiguous()
    if buffer.dtype == torch.bool:
        received = context.communicator.all_to_all(
            buffer.view(torch.uint8), send_counts, recv_counts
        )
        return received.view(torch.bool)
    return context.communicator.all_to_all(buffer, send_counts, recv_counts)


class _HaloExchange(torch.autograd.Function):
    """[owned, ...] -> [owned + halo, ...]."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, context: RankContext, axis: str) -> torch.Tensor:
        ctx.context, ctx.axis = context, axis
        halo = context.halos[axis]
        requested = rows.index_select(0, halo.send_rows)
        received = _send(context, requested, halo.send_counts, halo.recv_counts)
        return torch.cat([rows, received])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _call(_HaloReturn, cotangents[0], ctx.context, ctx.axis), None, None


class _HaloReturn(torch.autograd.Function):
    """[owned + halo, ...] -> [owned, ...]: every halo row is added to its owner's row."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, context: RankContext, axis: str) -> torch.Tensor:
        ctx.context, ctx.axis = context, axis
        halo = context.halos[axis]
        owned = context.axes[axis].owned
        returned = _send(context, rows[owned:], halo.recv_counts, halo.send_counts)
        return rows[:owned].index_add(0, halo.send_rows, returned)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _call(_HaloExchange, cotangents[0], ctx.context, ctx.axis), None, None


class _AllGather(torch.autograd.Function):
    """[owned, ...] -> [total, ...] in global order."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, context: RankContext, axis: str) -> torch.Tensor:
        ctx.context, ctx.axis = context, axis
        along = context.axes[axis]
        _, positions = _order(along)
        rank, size = context.communicator.rank, context.communicator.size
        received = _send(
            context,
            torch.cat([rows] * (size - 1)) if size > 1 else rows[:0],
            _others(rank, (along.owned,) * size),
            _others(rank, along.owned_counts),
        )
        before = sum(along.owned_counts[:rank])
        in_rank_order = torch.cat([received[:before], rows, received[before:]])
        return in_rank_order.index_select(0, positions)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _call(_ReduceScatter, cotangents[0], ctx.context, ctx.axis), None, None


class _ReduceScatter(torch.autograd.Function):
    """[total, ...] in global order -> [owned, ...]: the sum over ranks of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, context: RankContext, axis: str) -> torch.Tensor:
        ctx.context, ctx.axis = context, axis
        along = context.axes[axis]
        ids, _ = _order(along)
        rank, size = context.communicator.rank, context.communicator.size
        before = sum(along.owned_counts[:rank])
        others = torch.cat([ids[:before], ids[before + along.owned :]])
        received = _send(
            context,
            rows.index_select(0, others),
            _others(rank, along.owned_counts),
            _others(rank, (along.owned,) * size),
        )
        total = rows.index_select(0, along.ids[: along.owned])
        # one after the other in rank order: the same sum, to the bit, in every run
        for part in received.view(size - 1, *total.shape).unbind(0):
            total += part
        return total

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _call(_AllGather, cotangents[0], ctx.context, ctx.axis), None, None


class _AllReduce(torch.autograd.Function):
    """The sum over ranks; its own adjoint."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, context: RankContext) -> torch.Tensor:
        ctx.context = context
        return context.communicator.all_reduce(tensor.contiguous())

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _call(_AllReduce, cotangents[0], ctx.context), None


def _others(rank: int, counts: Sequence[int]) -> tuple[int, ...]:
    """The counts with this rank's own set to zero: its own rows do not travel."""
    return tuple(0 if other == rank else count for other, count in enumerate(counts))


def _order(along: AxisRows) -> tuple[torch.Tensor, torch.Tensor]:
    if along.gathered_ids is None or along.gathered_positions is None:
        raise PlanError(
            f"an all-gather along '{along.name}' needs the order of all ranks' rows; call RankContext.prepare(('{along.name}',)) "
            "on every rank before the first step"
        )
    return along.gathered_ids, along.gathered_positions
