"""Kernels that run an op on a shard where calling the recorded op on local rows would not do.

An `OpStrategy` names its kernel; every kernel has the signature ``kernel(context, info, *args, **kwargs)`` with the recorded
op's own arguments, local ones. They are built from differentiable primitives (torch's ops and `exchange`), so their
adjoints follow. States in brackets are those of the arguments and results.

    local                the recorded op itself
    mean_over_rows       mean over a sharded dimension [O -> S]: local sum / global count
    mean_loss            elementwise losses with reduction mean [O -> S]: local sum / global count
    nll_loss             nll_loss_forward, mean or sum [O -> R]; one all-reduce of two numbers
    sync_batch_norm      batch norm over rows [O -> O, R, R]; two all-reduces of a row each in training
    keyed_bernoulli      dropout's mask, one draw per global row [any]
    seeded_random        any other random op, whole on every rank [R]

Where the rows are a derived axis (``select``, ``concat``), whose global number no rank knows, the kernels that divide by it
first all-reduce one int64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.program import noise
from autoplan.program.aten import bound_arguments, resolve
from autoplan.program.context import RankContext
from autoplan.program.exchange import all_reduce
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.torch_internals import schema

_MEAN, _SUM = 1, 2
"""ATen's numbers for the reductions of a loss."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelInfo:
    """What a kernel knows of its op beyond its arguments.

    Attributes:
        op: its index among the program's steps: what its random draws are keyed by.
        func: qualified name of the recorded op.
        dim: the sharded dimension of the first tensor argument, or None.
        rows: global rows of that dimension's axis; None where it is a derived axis in a sharded state.
        keys: global keys of the local rows along ``dim``, for kernels that draw.
    """

    op: int
    func: str
    dim: int | None
    rows: int | None = None
    keys: torch.Tensor | None = None

    def at(self, rows: int | None = None, keys: torch.Tensor | None = None) -> KernelInfo:
        """The same op with the numbers of this run."""
        return KernelInfo(self.op, self.func, self.dim, rows, keys)


Kernel = Callable[..., Any]


def local(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """The recorded op on local tensors."""
    return resolve(info.func)(*args, **kwargs)


def global_rows(
    context: RankContext, info: KernelInfo, tensor: torch.Tensor, dim: int
) -> int | torch.Tensor:
    """Rows of all ranks along ``dim``: known, or the sum of what every rank has (a 0-dimensional int64 tensor)."""
    if info.rows is not None:
        return info.rows
    return all_reduce(context, torch.tensor(tensor.size(dim), device=tensor.device))


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
    sharded = _sharded(info)
    given = [dim] if isinstance(dim, int) else list(dim or range(tensor.dim()))
    reduced = [d % tensor.dim() for d in given]
    count = global_rows(context, info, tensor, sharded)
    for position in reduced:
        if position != sharded:
            count = count * tensor.size(position)
    part: torch.Tensor = tensor.sum(reduced, keepdim, dtype=dtype) / count
    return part


def mean_loss(context: RankContext, info: KernelInfo, *args: Any, **kwargs: Any) -> Any:
    """An elementwise loss (mse, binary cross-entropy, smooth l1, ...) with reduction mean: this rank's part of it.

    A rank without rows contributes zero.
    """
    operator = resolve(info.func)
    arguments = bound_arguments(operator, args, kwargs)
    if arguments["reduction"] != _MEAN:
        return _call(operator, arguments)
    sharded = _sharded(info)
    values = args[0]
    count = global_rows(context, info, values, sharded)
    for position, size in enumerate(values.shape):
        if position != sharded:
            count = count * size
    arguments["reduction"] = _SUM
    return _call(operator, arguments) / count


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


def _sharded(info: KernelInfo) -> int:
    """The sharded dimension; kernels over rows are only named in strategies of ops that have one."""
    assert info.dim is not None
    return info.dim


def _call(operator: Any, arguments: Mapping[str, Any]) -> Any:
    """Calls an overload with all arguments by name; ``self`` among them."""
    positional = [arguments[a.name] for a in schema(operator).arguments if not a.kwarg_only]
    named = {a.name: arguments[a.name] for a in schema(operator).arguments if a.kwarg_only}
    return operator(*positional, **named)


KERNELS: Mapping[str, Kernel] = {
    kernel.__name__: kernel
    for kernel in (
        local,
        mean_over_rows,
        mean_loss,
        nll_loss,
        sync_batch_norm,
        keyed_bernoulli,
        seeded_random,
    )
}
"""By the name that `autoplan.opgraph.OpStrategy.kernel` gives."""

COUNTING = frozenset({"mean_over_rows", "mean_loss", "sync_batch_norm"})
"""Kernels that read `KernelInfo.rows`."""
