"""Comparisons. Between positions along one axis, ``==`` and ``!=`` hold in any numbering; order does not."""

from __future__ import annotations

from autoplan.opgraph import TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.placement import broadcast, by_rows
from autoplan.trace.rules.registry import rule


@rule("comparison", "eq", "ne")
def equality(call: Call) -> Ruling:
    """Rows stay; an equality of positions tells which of them are owned rows."""
    dims = broadcast(call, call.inputs)
    if dims is None:
        return _whole(call)
    forward, backward = work.elementwise(call, dims)
    operands = [call.get("self"), call.get("other")]
    tensors = [operand for operand in operands if isinstance(operand, TensorMeta)]
    if not call.positions:
        output = Output(dims, identity=_identity(call))
        return Ruling((output,), forward, backward, by_rows(call, dims))
    indices = [tensor.index for tensor in tensors if tensor.index is not None]
    if len(indices) < 2 or indices[0].axis != indices[1].axis:
        return Ruling((Output(dims),), forward, backward)
    owned: dict[bool, frozenset[str]] = {}
    if any(call.axes.is_whole(index) for index in indices):
        owned = {call.base == "eq": frozenset(call.identity(tensor) for tensor in tensors)}
    output = Output(dims, identity=_identity(call), owned_where=owned)
    return Ruling((output,), forward, backward, by_rows(call, dims), reads_positions=True)


@rule("comparison", "lt", "le", "gt", "ge", "isclose")
def order(call: Call) -> Ruling:
    """Rows stay."""
    dims = broadcast(call, call.inputs)
    if dims is None:
        return _whole(call)
    forward, backward = work.elementwise(call, dims)
    return Ruling((Output(dims),), forward, backward, by_rows(call, dims))


def _whole(call: Call) -> Ruling:
    """Rows that are equally many meet, but nothing says that they are the same."""
    dims = call.matched()
    return Ruling((Output(dims),), *work.elementwise(call, dims))


def _identity(call: Call) -> str:
    """Comparisons of the same two tensors hold the same values."""
    operands = [call.get("self"), call.get("other")]
    tensors = [operand for operand in operands if isinstance(operand, TensorMeta)]
    return f"{call.base}({','.join(map(call.identity, tensors))})" if len(tensors) == 2 else ""
