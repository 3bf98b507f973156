"""The common ways to place a call's tensors: row by row along one axis, and linear in a partial sum."""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.opgraph import OpStrategy, State, TensorMeta
from autoplan.trace.rules.axes import Dim, Dims
from autoplan.trace.rules.call import Call

ROW_STATES: tuple[State, ...] = ("O", "H")


def broadcast(call: Call, tensors: Sequence[TensorMeta]) -> Dims | None:
    """The dimensions of an elementwise result; None when two that meet count different things."""
    length = max((len(tensor.dims) for tensor in tensors), default=0)
    dims: list[Dim] = [1] * length
    for tensor in tensors:
        offset = length - len(tensor.dims)
        for position, dim in enumerate(tensor.dims, offset):
            if dim == 1 or dim == dims[position]:
                continue
            if dims[position] != 1:
                return None
            dims[position] = dim
    return tuple(dims)


def by_rows(
    call: Call,
    dims: Dims,
    *,
    kernel: str = "local",
    states: Sequence[State] = ROW_STATES,
) -> tuple[OpStrategy, ...]:
    """Strategies that run the call on some rows of the one axis that its result is cut along.

    Sound only for calls whose output row depends on the same row of every input along that axis, and otherwise on
    inputs that do not have the axis.

    Args:
        call: the call.
        dims: of its (first) output.
        kernel: what runs it.
        states: O, H or both; H only along an axis that has a halo.
    """
    cut = call.axes.sharded(dims)
    if cut is None:
        return ()
    placed: dict[str, Sequence[int]] = {}
    for tensor in call.inputs:
        at = call.axes.cut(tensor.dims)
        if not at:
            continue
        if len(at) > 1 or tensor.dims[at[0]] != cut.axis:
            return ()
        placed[tensor.name] = at
    return tuple(
        call.strategy(state, dict.fromkeys(placed, state), state, kernel=kernel)
        for state in states
        if state == "O" or call.axes.has_halo(cut.axis)
    )


def linear(call: Call, *groups: Sequence[TensorMeta]) -> tuple[OpStrategy, ...]:
    """Strategies that run the call on partial sums: it is linear in each group of inputs, the others in R.

    Only where no input has a dimension that every partition cuts.
    """
    if any(call.axes.cut_by_all(tensor.dims) for tensor in call.inputs):
        return ()
    found: list[OpStrategy] = []
    for group in groups:
        states: dict[str, State] = {tensor.name: "S" for tensor in group}
        if states:
            name = "S" if not found else f"S{len(found)}"
            found.append(call.strategy(name, states, "S"))
    return tuple(found)
