"""Comparisons. Between positions along one axis, ``==`` and ``!=`` hold in any numbering; order does not."""

from __future__ import annotations

from autoplan.opgraph import TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.placement import broadcast, by_rows
from autoplan.trace.rules.registry import rule


@rule("comparison", "eq", "ne")
def equality(call: Call) -> Ruling | None:
    """Rows stay; an equality of positions tells which of them are owned rows."""
    dims = broadcast(call, call.inputs)
    if dims is None:
        return None
    forward, backward = work.elementwise(call, dims)
    operands = [call.get("self"), call.get("other")]
    tensors = [operand for operand in operands if isinstance(operand, TensorMeta)]
    if not call.positions:
        return Ruling((Output(dims),), forward, backward, by_rows(call, dims))
    indices = [tensor.index for tensor in tensors if tensor.index is not None]
    if len(indices) < 2 or indices[0].axis != indices[1].axis:
        return Ruling((Output(dims),), forward, backward)
    owned: dict[bool, frozenset[str]] = {}
    if any(call.axes.is_whole(index) for index in indices):
        owned = {call.base == "eq": frozenset(call.identity(tensor) for tensor in tensors)}
    output = Output(dims, owned_where=owned)
    return Ruling((output,), forward, backward, by_rows(call, dims), reads_positions=True)


@rule("comparison", "lt", "le", "gt", "ge", "isclose")
def order(call: Call) -> Ruling | None:
    """Rows stay."""
    dims = broadcast(call, call.inputs)
    if dims is None:
        return None
    forward, backward = work.elementwise(call, dims)
    return Ruling((Output(dims),), forward, backward, by_rows(call, dims))
