"""Convolutions over time or space: each entry of the batch by itself, and each place that no kernel reaches past."""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling, product
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule


@rule("convolution", "convolution")
def convolution(call: Call) -> Ruling | None:
    """Input [batch, channels, ...places], weight [out, in / groups, ...kernel]; rows may be the batch or a place."""
    source, weight = call.tensor("input"), call.tensor("weight")
    cut = call.axes.cut(source.dims)
    if len(source.dims) != len(call.seen(0)):
        return None
    dims = call.matched()
    for position in cut:
        if position == 0 or _keeps(call, position):
            dims = (*dims[:position], source.dims[position], *dims[position + 1 :])
    # each entry of the result meets a kernel; transposed, each entry of the input does
    entries = source.dims if call.get("transposed") else dims
    multiplied = product(entries) * product(weight.dims[1:])
    kernel, spread = product(weight.dims[1:]), product((weight.dims[0], *weight.dims[2:]))
    added = (kernel, spread, product((*entries[:1], *entries[2:])))
    forward, backward = work.product_of(call, multiplied, dims, (source, weight), added)
    output = Output(dims)
    if len(cut) != 1 or call.axes.cut(dims) != cut or dims[cut[0]] != source.dims[cut[0]]:
        return Ruling((output,), forward, backward)
    kept = cut[0] == 0 or _keeps(call, cut[0])
    return Ruling((output,), forward, backward, by_rows(call, dims) if kept else ())


def _keeps(call: Call, position: int) -> bool:
    """Whether the kernel is one entry wide along a place and leaves no gaps there."""
    if position < 2 or call.get("transposed"):
        return False
    place = position - 2
    # a single number stands for all places
    stride, padding = (
        values[place] if len(values) > place else values[0]
        for values in (call.arguments["stride"], call.arguments["padding"])
    )
    return call.tensor("weight").dims[position] == 1 and stride == 1 and padding == 0
