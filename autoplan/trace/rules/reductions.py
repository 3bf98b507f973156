"""Reductions. Over fixed dimensions they are row by row; a sum over the rows of a shard is a partial sum."""

from __future__ import annotations

from autoplan.opgraph import OpStrategy
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dim, Dims
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.losses import counting
from autoplan.trace.rules.placement import by_rows, linear
from autoplan.trace.rules.reads import last_position, number_of
from autoplan.trace.rules.registry import rule

_NAMES = [
    "sum",
    "mean",
    "nansum",
    "prod",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "logsumexp",
    "linalg_vector_norm",
    "norm",
    "count_nonzero",
    "median",
    "mode",
    "nanmedian",
    "aminmax",
]


@rule("reduction", *_NAMES)
def reduced(call: Call) -> Ruling | None:
    """Any reduction; ``max`` of two tensors is elementwise and not meant here."""
    source = call.inputs[0]
    if len(call.inputs) > 1:
        return None
    if _is_highest_number(call):
        return _highest_number(call)
    over = reduced_dims(call)
    if over is None:
        return None
    dims = _left(call, source.dims, over)
    # a mask's sum is the number of rows that it selects
    mask = call.name == "aten.sum.default" and source.dtype == "bool" and len(source.dims) == 1
    identity = number_of(f"select({call.first_of(source)})") if mask else ""
    outputs = tuple(Output(dims, identity=identity) for _ in call.shapes)
    forward, backward = work.reduction(call, dims)
    mixed = set(over) & set(call.axes.cut(source.dims))
    strategies = _over_rows(call) if mixed else by_rows(call, dims)
    if call.base in ("sum", "mean") and call.get("dtype") is None and _adds(call):
        strategies += linear(call, [source])
    return Ruling(outputs, forward, backward, strategies)


def _is_highest_number(call: Call) -> bool:
    """Whether it is the maximum over the graph's own list of positions along the graph axis, which names the last one."""
    source = call.inputs[0]
    axis = None if source.index is None else source.index.axis
    numbers = axis is not None and call.axes.counts_graphs(axis)
    return call.name == "aten.max.default" and call.is_given(source) and numbers


def _highest_number(call: Call) -> Ruling:
    """Every rank knows how many graphs there are; one that owns none has no maximum to take."""
    source = call.inputs[0]
    assert source.index is not None
    (axis,) = set(source.index.axes)
    forward, backward = work.reduction(call, ())
    output = Output((), identity=last_position(axis))
    strategy = call.strategy("O", {source.name: "O"}, "R", kernel="last_graph")
    return Ruling((output,), forward, backward, (strategy,), reads_positions=True)


def reduced_dims(call: Call) -> tuple[int, ...] | None:
    """The dimensions that are reduced, counted from the front."""
    count = len(call.inputs[0].dims)
    given = call.get("dim")
    if given is None or given == []:
        return tuple(range(count))
    many = [given] if isinstance(given, int) else list(given)
    if not all(isinstance(dim, int) for dim in many):
        return None
    return tuple(sorted(normal(dim, count) for dim in many))


def _left(call: Call, dims: Dims, over: tuple[int, ...]) -> Dims:
    kept: list[Dim] = []
    for position, dim in enumerate(dims):
        if position not in over:
            kept.append(dim)
        elif call.get("keepdim", False):
            kept.append(1)
    return tuple(kept)


def _over_rows(call: Call) -> tuple[OpStrategy, ...]:
    """The cut axis is among the reduced dimensions: what adds gives a partial sum, anything else runs whole."""
    source = call.inputs[0]
    cut = call.sharded(source)
    if cut is None or call.base not in ("sum", "mean"):
        return ()
    mean = call.base == "mean"
    return (
        call.strategy(
            "O",
            {source.name: "O"},
            "S",
            kernel="mean_over_rows" if mean else "local",
            collectives=counting(call, cut.axis) if mean else (),
        ),
    )


def _adds(call: Call) -> bool:
    """Whether the result has the dtype of what it adds: a sum of rounded parts is not the rounded sum."""
    return call.dtypes[0] == call.inputs[0].dtype
