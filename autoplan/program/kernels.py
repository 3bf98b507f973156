"""Kernels that run an op on a shard where calling the recorded op on local rows would not do.

An `OpStrategy` names its kernel; every kernel has the signature ``kernel(context, info, *args, **kwargs)`` with the recorded
op's own arguments, local ones. They are built from differentiable primitives (torch's ops and `exchange`), so their
adjoints follow. States in brackets are those of the arguments and results.

    local                the recorded op itself
    local_rows           the same, its numbers being counts of this rank's rows
    mean_over_rows       mean over a sharded dimension [O -> S]: local sum / global count
    mean_loss            elementwise losses with reduction mean [O -> S]: local sum / global count
    nll_loss             nll_loss_forward, mean or sum [O -> R]; one all-reduce of two numbers
    nll_loss_counted     the same [scores O, targets R -> S, R]: local sum / total weight of the whole list of targets
    mean_loss_counted    mean_loss [input O, target R -> S], counting the whole target
    sync_batch_norm      batch norm over rows [O -> O, R, R]; two all-reduces of a row each in training
    batch_norm_by_part   batch norm over the rows of one micro-batch [O -> O, R, R]; lossy
    share_self           an addition or subtraction of two numbers [R, S -> S]: each rank adds its share of the whole one
    share_other          the same [S, R -> S]
    last_graph           the highest number in ``batch`` [O -> R]: the number of all graphs, less one
    add_to_sources       rows added at source ends [target, index, rows O -> O]; halo rows travel to their owners
    keyed_bernoulli      dropout's mask, one draw per global row [any]
    seeded_random        any other random op, whole on every rank [R]

Where the rows are a derived axis (``select``, ``concat``), whose global number no rank knows, the kernels that divide by it
first all-reduce one int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from autoplan.opgraph import GRAPH
from autoplan.program import noise
from autoplan.program.aten import bound_arguments, resolve
from autoplan.program.context import RankContext
from autoplan.program.exchange import all_reduce, halo_sum
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.kernel_info import Kernel, KernelInfo, call_overload, global_rows, sharded_dim
from autoplan.program.losses import mean_loss, mean_loss_counted, nll_loss, nll_loss_counted
from autoplan.program.torch_internals import schema


def local(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """The recorded op on local tensors."""
    return resolve(info.func)(*args, **kwargs)


def local_rows(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """The recorded op; the program that calls it gives it local numbers."""
    return local(context, info, *args, **kwargs)


def mean_over_rows(
    context: RankContext,
    info: KernelInfo,
    tensor: torch.Tensor,
    dim: int | list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``aten.mean`` over dimensions of which one is sharded: this rank's part of the mean."""
    sharded = sharded_dim(info)
    given = [dim] if isinstance(dim, int) else list(dim or range(tensor.dim()))
    reduced = [d % tensor.dim() for d in given]
    count = global_rows(context, info, tensor, sharded)
    for position in reduced:
        if position != sharded:
            count = count * tensor.size(position)
    part: torch.Tensor = tensor.sum(reduced, keepdim, dtype=dtype) / count
    return part


def sync_batch_norm(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """Batch normalisation over the rows of all ranks, as ``aten.native_batch_norm`` and its variants.

    Two passes: the global mean, then the global mean of squared distances from it. Running statistics, where given, are
    updated in place, equally on every rank.

    Returns:
        As many tensors as the recorded op: (output, mean, 1 / standard deviation, ...); what only its own backward
        would read is empty.
    """
    operator = resolve(info.func)
    given = bound_arguments(operator, args, kwargs)
    if not given.get("training", True):
        return operator(*args, **kwargs)
    values = given["input"]
    others = [d for d in range(values.dim()) if d != 1]
    count = global_rows(context, info, values, 0)
    for position in others[1:]:
        count = count * values.size(position)

    def over_channels(statistic: torch.Tensor) -> torch.Tensor:
        return statistic.view(1, -1, *(1,) * (values.dim() - 2))

    mean = all_reduce(context, values.sum(others)) / count
    centred = values - over_channels(mean)
    variance = all_reduce(context, centred.square().sum(others)) / count
    epsilon: float = given["eps"] if "eps" in given else given["epsilon"]
    scale = torch.rsqrt(variance + epsilon)
    output = centred * over_channels(scale)
    if given.get("weight") is not None:
        output = output * over_channels(given["weight"])
    if given.get("bias") is not None:
        output = output + over_channels(given["bias"])
    _update_running(given, mean.detach(), variance.detach(), count)
    results: list[torch.Tensor] = [output, mean.detach(), scale.detach()]
    while len(results) < len(schema(operator).returns):
        results.append(torch.empty(0, dtype=torch.uint8, device=values.device))
    return tuple(results[: len(schema(operator).returns)])


def share_self(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """``self + other`` where ``self`` is whole and ``other`` a partial sum."""
    return _with_share(context, info, "self", args, kwargs)


def share_other(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """``self + other`` where ``other`` is whole and ``self`` a partial sum."""
    return _with_share(context, info, "other", args, kwargs)


def _with_share(
    context: RankContext, info: KernelInfo, whole: str, args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """A share is the value over the number of parts, so that all of them add up to it; its adjoint is the same division."""
    operator = resolve(info.func)
    arguments = bound_arguments(operator, args, kwargs)
    arguments[whole] = arguments[whole] / context.shares
    return call_overload(operator, arguments)


def last_graph(context: RankContext, info: KernelInfo, batch: torch.Tensor) -> torch.Tensor:
    """``batch.max()`` over all ranks, which every rank knows; it may own no node."""
    return torch.tensor(context.axes[GRAPH].total - 1, dtype=batch.dtype, device=batch.device)


def add_to_sources(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """``scatter_add`` and the like where positions are source ends: owned rows or halo rows.

    What is added to halo rows is sent to their owners, and added there.
    """
    operator = resolve(info.func)
    arguments = bound_arguments(operator, args, kwargs)
    target: torch.Tensor = arguments["self"]
    assert info.axis is not None
    dim = sharded_dim(info)
    halo = list(target.shape)
    halo[dim] = context.axes[info.axis].ids.numel() - context.axes[info.axis].owned
    arguments["self"] = torch.cat([target, target.new_zeros(halo)], dim)
    return halo_sum(context, call_overload(operator, arguments), info.axis, dim)


def batch_norm_by_part(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """Batch normalisation over this part's rows alone (not one device's numbers).

    One row has no variance to move a running one by, so that running statistics stay as they are.
    """
    operator = resolve(info.func)
    given = bound_arguments(operator, args, kwargs)
    values = given["input"]
    if values.numel() == values.size(1) and given.get("running_var") is not None:
        given["running_mean"] = given["running_mean"].clone()
        given["running_var"] = given["running_var"].clone()
    return call_overload(operator, given)


def _update_running(
    given: Mapping[str, Any],
    mean: torch.Tensor,
    variance: torch.Tensor,
    count: int | torch.Tensor,
) -> None:
    """Running statistics move towards the batch's; the variance by n - 1, as torch does it."""
    momentum = given.get("momentum", given.get("exponential_average_factor"))
    unbiased = variance * count / (count - 1)
    with torch.no_grad():
        for name, value in (("running_mean", mean), ("running_var", unbiased)):
            running = given.get(name)
            if running is not None:
                running.mul_(1 - momentum).add_(momentum * value)


def keyed_bernoulli(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """``bernoulli_`` and ``bernoulli`` with one draw per global row: equal for any number of ranks and in any state.

    ``p`` may be a number or a tensor; ``bernoulli.default`` takes its argument as probabilities.
    """
    operator = resolve(info.func)
    given = bound_arguments(operator, args, kwargs)
    tensor = given["self"]
    in_place = schema(operator).name.endswith("_")
    probability = given.get("p", tensor)
    # a tensor without a sharded dimension has a first dimension, or one cell
    shape = tensor.shape if tensor.dim() else torch.Size([1])
    dim = info.dim or 0
    keys = info.keys
    if keys is None:
        keys = torch.arange(shape[dim], device=tensor.device)
    key = noise.stream(context.seed, context.step, info.op)
    if isinstance(probability, torch.Tensor):
        draws = noise.uniform(key, keys, shape, dim, torch.float64).view(tensor.shape)
        kept = draws < probability
    else:
        kept = noise.keep(key, keys, shape, dim, float(probability)).view(tensor.shape)
    return tensor.copy_(kept) if in_place else kept.to(tensor.dtype)


def seeded_random(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """A random op run whole on every rank, from a generator seeded by (seed, step, op).

    Where the op has an overload that takes a generator, it is given one; else torch's own generator is seeded for the call
    and put back.
    """
    operator = resolve(info.func)
    with_generator = _generator_overload(operator)
    device = context.device
    if with_generator is not None:
        made = noise.generator(context.seed, context.step, info.op, device)
        return with_generator(*args, **{**kwargs, "generator": made})
    devices = [device] if device.type == "cuda" else []
    # ranks that are threads share torch's generator
    with EXCLUSIVE, torch.random.fork_rng(devices):
        torch.manual_seed(noise.stream(context.seed, context.step, info.op) >> 1)
        return operator(*args, **kwargs)


def _generator_overload(operator: Any) -> Any:
    """The operator itself or its sibling overload with the same arguments and a generator, or None."""
    names = [argument.name for argument in schema(operator).arguments]
    if "generator" in names:
        return operator
    packet = operator.overloadpacket
    for overload in packet.overloads():
        sibling = getattr(packet, overload)
        other = [argument.name for argument in schema(sibling).arguments]
        if "generator" in other and [n for n in other if n != "generator"] == names:
            return sibling
    return None


KERNELS: Mapping[str, Kernel] = {
    kernel.__name__: kernel
    for kernel in (
        local,
        local_rows,
        mean_over_rows,
        mean_loss,
        nll_loss,
        nll_loss_counted,
        mean_loss_counted,
        sync_batch_norm,
        batch_norm_by_part,
        last_graph,
        share_self,
        share_other,
        add_to_sources,
        keyed_bernoulli,
        seeded_random,
    )
}
"""By the name that `autoplan.opgraph.OpStrategy.kernel` gives."""

COUNTING = frozenset({"mean_over_rows", "mean_loss", "sync_batch_norm"})
"""Kernels that read `KernelInfo.rows`."""
