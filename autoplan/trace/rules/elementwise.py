"""Elementwise ops: rows stay where they are; the linear ones pass partial sums on.

Positions are numbers of another kind: only copies keep them, and only ``==`` and ``!=`` between positions along one axis
mean the same in local numbering (see `comparisons`). Arithmetic on them runs in R.
"""

from __future__ import annotations

from autoplan.opgraph import OpStrategy, TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.placement import broadcast, by_rows, linear
from autoplan.trace.rules.registry import rule
from autoplan.trace.rules.shifts import rows_added, shifted

CHEAP = [
    "neg",
    "positive",
    "abs",
    "sign",
    "relu",
    "clamp",
    "clamp_min",
    "clamp_max",
    "hardtanh",
    "threshold",
    "floor",
    "ceil",
    "round",
    "trunc",
    "nan_to_num",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "__and__",
    "__or__",
    "__xor__",
    "isnan",
    "isinf",
    "isfinite",
    "minimum",
    "maximum",
    "fmin",
    "fmax",
    "fmod",
    "remainder",
    "floor_divide",
    "square",
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "where",
    "masked_fill",
    "copy",
    "fill",
    "zero",
    "relu6",
    "lerp",
    "addcmul",
    "addcdiv",
    "leaky_relu",
    "_prelu_kernel",
    "hardswish",
    "hardsigmoid",
    "heaviside",
    "frac",
    "deg2rad",
    "rad2deg",
    "linalg_cross",
]

COSTLY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "pow",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "sigmoid",
    "elu",
    "celu",
    "selu",
    "gelu",
    "silu",
    "mish",
    "softplus",
    "logit",
    "xlogy",
    "hypot",
    "softshrink",
    "hardshrink",
    "logaddexp",
    "sinc",
    "lgamma",
    "digamma",
]
"""A few operations each on most devices; priced as this many."""

_COSTLY_FLOPS = 8.0


def _moved(call: Call) -> Ruling | None:
    """Positions plus a sum of axes' rows: those of one node type, moved past the rows of others."""
    source = call.inputs[0]
    plain = call.base == "add" and len(call.inputs) == 1 and call.get("alpha", 1) == 1
    if not plain or source.index is None:
        return None
    before = call.numbers.counted(call.get("other"))
    index = None if before is None else shifted(call.axes, source.index, sorted(before.elements()))
    if index is None:
        return None
    forward, backward = work.elementwise(call, source.dims, 1.0)
    output = Output(source.dims, index)
    strategy = call.strategy(
        "O", {source.name: "O"}, "O", rows=rows_added(index.ends[0]), kernel="local_rows"
    )
    return Ruling((output,), forward, backward, (strategy,), reads_positions=True)


def _ruling(call: Call, flops: float) -> Ruling:
    # an in-place op keeps the shape of what it writes, which may not be fewer dimensions than the result
    dims = broadcast(call, call.inputs)
    if dims is None or len(dims) != len(call.seen(0)):
        # rows that are equally many meet, but nothing says that they are the same: whole
        dims = call.matched()
        return Ruling((Output(dims),), *work.elementwise(call, dims, flops))
    forward, backward = work.elementwise(call, dims, flops)
    strategies = (*by_rows(call, dims), *_partial(call), *_shared(call))
    return Ruling((Output(dims),), forward, backward, strategies)


@rule("elementwise", *CHEAP)
def cheap(call: Call) -> Ruling:
    """About one operation an element."""
    ruling = _moved(call) or _ruling(call, 1.0)
    if call.base not in ("bitwise_not", "logical_not"):
        return ruling
    known = call.owned_where.get(call.inputs[0].name, {})
    inverse = {not outcome: identities for outcome, identities in known.items()}
    (output,) = ruling.outputs
    return Ruling(
        (Output(output.dims, owned_where=inverse),),
        ruling.forward,
        ruling.backward,
        ruling.strategies,
    )


@rule("elementwise", *COSTLY)
def costly(call: Call) -> Ruling:
    """Transcendental and the like."""
    return _ruling(call, _COSTLY_FLOPS)


@rule("elementwise", "log_sigmoid_forward")
def log_sigmoid(call: Call) -> Ruling:
    """Two results: the value, and a buffer for backward that some kernels leave empty."""
    dims = call.inputs[0].dims
    forward, backward = work.elementwise(call, dims, _COSTLY_FLOPS)
    buffer = call.matched(1)
    same = buffer == dims
    strategies = by_rows(call, dims) if same else _first_by_rows(call)
    return Ruling((Output(dims), Output(buffer)), forward, backward, strategies)


@rule("elementwise", "clone", "_to_copy", "contiguous")
def copied(call: Call) -> Ruling:
    """A copy, perhaps of another dtype. Positions stay positions in an integer dtype."""
    source = call.inputs[0]
    forward, backward = work.moved(call, source.dims)
    integer = call.dtypes[0] in ("int64", "int32")
    index = source.index if integer else None
    if source.index is not None and index is None:
        return Ruling((Output(source.dims),), forward, backward)
    # a sum of rounded or truncated parts is not the rounded sum
    exact = call.dtypes[0] == source.dtype
    return Ruling(
        (Output(source.dims, index, call.identity(source) if exact else ""),),
        forward,
        backward,
        (*by_rows(call, source.dims), *(linear(call, [source]) if exact else ())),
        reads_positions=True,
    )


def _partial(call: Call) -> tuple[OpStrategy, ...]:
    """Which operands a call is linear in, where nothing is cut."""
    first = call.inputs[0]
    if call.base in ("neg", "positive"):
        return linear(call, [first])
    operands = [call.get("self"), call.get("other")]
    both = [operand for operand in operands if isinstance(operand, TensorMeta)]
    if call.base in ("add", "sub", "rsub") and len(both) == 2:
        return linear(call, both)
    if call.base == "mul" and len(both) == 2 and both[0].name != both[1].name:
        return linear(call, [both[0]], [both[1]])
    if call.base == "mul" and len(both) == 1:
        return linear(call, both)
    exact = call.base == "div" and call.get("rounding_mode") is None
    if exact and isinstance(operands[0], TensorMeta) and not _same(operands):
        return linear(call, [operands[0]])
    return ()


def _shared(call: Call) -> tuple[OpStrategy, ...]:
    """A partial sum and a whole number (the parts of a loss and its penalty) are a partial sum: each rank adds its share."""
    operands = [call.get("self"), call.get("other")]
    both = [operand for operand in operands if isinstance(operand, TensorMeta)]
    if call.base not in ("add", "sub") or len(both) != 2 or _same(operands):
        return ()
    if any(operand.dims or operand.dtype != call.dtypes[0] for operand in both):
        return ()
    if not call.dtypes[0].startswith(("float", "bfloat", "complex")):
        return ()
    first, second = both
    found = [call.strategy("share other", {first.name: "S"}, "S", kernel="share_other")]
    if not call.name.split(".")[1].endswith("_"):
        found.append(call.strategy("share self", {second.name: "S"}, "S", kernel="share_self"))
    return tuple(found)


def _same(operands: list[object]) -> bool:
    names = [operand.name for operand in operands if isinstance(operand, TensorMeta)]
    return len(set(names)) < len(names)


def _first_by_rows(call: Call) -> tuple[OpStrategy, ...]:
    cut = call.sharded(call.inputs[0])
    if cut is None:
        return ()
    return (call.strategy("O", {call.inputs[0].name: "O"}, ("O", "R")),)
