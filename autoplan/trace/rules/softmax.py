"""Softmax over a fixed dimension is row by row; over the rows of a shard it runs whole."""

from __future__ import annotations

from autoplan.opgraph import Work
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dims
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule


@rule("softmax", "_softmax", "_log_softmax", "_safe_softmax")
def softmax(call: Call) -> Ruling:
    """Exponentials, their sum, a division."""
    dims, dim = mixed(call)
    forward, backward = work.softmax(call, dims, dims[dim : dim + 1], log="log" in call.base)
    return ruled(call, dims, dim, forward, backward)


@rule("softmax", "glu", "cumsum", "cumprod", "logcumsumexp")
def running(call: Call) -> Ruling:
    """Ops along one dimension that mix its entries."""
    dims, dim = mixed(call)
    forward, backward = work.mixing(call, dims, dims[dim : dim + 1])
    return ruled(call, dims, dim, forward, backward)


def mixed(call: Call) -> tuple[Dims, int]:
    """Dimensions of the result, and the one along which entries are mixed."""
    source = call.inputs[0]
    dim = normal(call.arguments["dim"], len(source.dims))
    dims = source.dims
    seen = call.seen(0)
    if dims and not call.axes.agrees(dims[dim], seen[dim]):
        dims = (*dims[:dim], call.axes.match(seen[dim]), *dims[dim + 1 :])
    return dims, dim


def ruled(call: Call, dims: Dims, dim: int, forward: Work, backward: Work) -> Ruling:
    """An op that mixes the entries along ``dim`` and nothing else."""
    whole = dim in call.axes.cut(call.inputs[0].dims)
    return Ruling((Output(dims),), forward, backward, () if whole else by_rows(call, dims))
