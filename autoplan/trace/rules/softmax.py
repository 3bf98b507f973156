"""Softmax over a fixed dimension is row by row; over the rows of a shard it runs whole."""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule


@rule("softmax", "_softmax", "_log_softmax", "_safe_softmax")
def softmax(call: Call) -> Ruling:
    """Exponentials, their sum, a division."""
    return along(call, 10.0)


@rule("softmax", "glu", "cumsum", "cumprod", "logcumsumexp")
def running(call: Call) -> Ruling:
    """Ops along one dimension that mix its entries."""
    return along(call, 1.0)


def along(call: Call, flops: float) -> Ruling:
    """An op that mixes the entries along ``dim`` and nothing else."""
    source = call.inputs[0]
    dim = normal(call.arguments["dim"], len(source.dims))
    dims = source.dims
    seen = call.seen(0)
    if dims and not call.axes.agrees(dims[dim], seen[dim]):
        dims = (*dims[:dim], call.axes.match(seen[dim]), *dims[dim + 1 :])
    forward, backward = work.elementwise(call, dims, flops)
    mixed = dim in call.axes.cut(source.dims)
    return Ruling((Output(dims),), forward, backward, () if mixed else by_rows(call, dims))
