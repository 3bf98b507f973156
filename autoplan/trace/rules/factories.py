"""Tensors made from nothing. A shape argument that is an axis gives the rows of that axis, local or whole."""

from __future__ import annotations

from autoplan.opgraph import IndexInto, OpStrategy, State, Work
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dims
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.placement import ROW_STATES
from autoplan.trace.rules.registry import rule


@rule("factory", "zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty")
def filled(call: Call) -> Ruling:
    """Constant content: any rows will do. What a ``new_*`` op is called on gives dtype and device only."""
    wanted = tuple(call.numbers.dim(number) for number in call.arguments["size"])
    dims: Dims = tuple(dim for dim in wanted if dim is not None)
    forward, backward = _writing(call, call.matched())
    if len(dims) < len(wanted):
        return Ruling((Output(call.matched()),), forward, backward)
    zero = call.base in ("zeros", "new_zeros")
    strategies = (*_whole(call), *_made(call, dims), *(_zero_sum(call, dims) if zero else ()))
    return Ruling((Output(dims),), forward, backward, strategies, reads_positions=True)


@rule("factory", "zeros_like", "ones_like", "full_like", "empty_like")
def like(call: Call) -> Ruling:
    """Constant content in the shape of a tensor."""
    source = call.inputs[0]
    forward, backward = _writing(call, source.dims)
    cut = call.axes.sharded(source.dims)
    strategies: list[OpStrategy] = []
    if cut is not None:
        strategies.append(call.strategy("O", {source.name: "O"}, "O"))
        if call.axes.has_halo(cut.axis):
            strategies.append(call.strategy("H", {source.name: "H"}, "H"))
    return Ruling(
        (Output(source.dims),), forward, backward, tuple(strategies), reads_positions=True
    )


@rule("factory", "arange")
def positions(call: Call) -> Ruling:
    """``arange(rows of an axis)``: the positions along it, of owned rows only in O. Anything else is a list of numbers."""
    dims = call.matched()
    forward, backward = work.made(dims, call.dtypes[0])
    plain = Ruling((Output(dims),), forward, backward)
    if call.get("start", 0) != 0 or call.get("step", 1) != 1 or call.dtypes[0] != "int64":
        return plain
    axis = call.numbers.dim(call.arguments["end"])
    if not isinstance(axis, str) or call.axes.sharded((axis,)) is None:
        return plain
    strategy = call.strategy("O", {}, "O")
    output = Output((axis,), IndexInto((axis,), ("self",)))
    return Ruling((output,), forward, backward, (strategy,), reads_positions=True)


@rule("factory", "eye")
def identity(call: Call) -> Ruling:
    """Whole."""
    dims = call.matched()
    forward, backward = work.made(dims, call.dtypes[0])
    return Ruling((Output(dims),), forward, backward)


@rule("factory", "lift_fresh", "scalar_tensor", "lift", "lift_fresh_copy")
def lifted(call: Call) -> Ruling:
    """A tensor made from Python data, the same everywhere."""
    dims = call.matched()
    forward, backward = work.made(dims, call.dtypes[0])
    return Ruling((Output(dims),), forward, backward)


def _writing(call: Call, dims: Dims) -> tuple[Work, Work]:
    if "empty" in call.base:
        return work.NOTHING, work.NOTHING
    return work.made(dims, call.dtypes[0])


def _made(call: Call, dims: Dims) -> tuple[OpStrategy, ...]:
    """What a ``new_*`` op is called on is taken in O where it can be, only so that nothing has to be gathered for it."""
    cut = call.axes.sharded(dims)
    if cut is None:
        return ()
    states = _templates(call)
    return tuple(
        call.strategy(state, states, state)
        for state in ROW_STATES
        if state == "O" or call.axes.has_halo(cut.axis)
    )


def _whole(call: Call) -> tuple[OpStrategy, ...]:
    """A whole result beside a template of a derived axis, whose rows nothing could gather."""
    states = _templates(call)
    along = (call.axes.sharded(t.dims) for t in call.inputs if t.name in states)
    derived = any(cut is not None and call.axes.axes[cut.axis].kind != "base" for cut in along)
    return (call.strategy("whole", states, "R", rows="R"),) if derived else ()


def _zero_sum(call: Call, dims: Dims) -> tuple[OpStrategy, ...]:
    """Zeros on every rank add up to zeros: what rows of a shard are added to (pooling, centres of classes)."""
    return () if call.axes.cut_by_all(dims) else (call.strategy("S", _templates(call), "S"),)


def _templates(call: Call) -> dict[str, State]:
    return {
        template.name: "O"
        for template in call.inputs
        if call.axes.sharded(template.dims) is not None and "O" in template.states
    }
