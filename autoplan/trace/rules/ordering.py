"""Ops that depend on the order of rows, or make one: row by row along fixed dimensions, else whole."""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling, normal
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule


@rule("ordering", "sort", "argsort", "topk", "msort", "kthvalue", "cummax", "cummin")
def ordered(call: Call) -> Ruling:
    """Along ``dim``; within a row it is local."""
    source = call.inputs[0]
    dim = normal(call.get("dim", -1), len(source.dims))
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    forward = work.ordering(call, source, source.dims[dim : dim + 1])
    _, backward = work.moved(call, outputs[0].dims)
    mixed = not source.dims or dim in call.axes.cut(source.dims)
    kept = all(call.axes.cut(output.dims) == call.axes.cut(source.dims) for output in outputs)
    rows = by_rows(call, outputs[0].dims) if kept and not mixed else ()
    return Ruling(outputs, forward, backward, rows)


@rule("ordering", "roll")
def rolled(call: Call) -> Ruling:
    """Entries moved along dimensions."""
    source = call.inputs[0]
    given = call.get("dims") or []
    moved = {normal(dim, len(source.dims)) for dim in given}
    forward, backward = work.moved(call, source.dims)
    mixed = not given or bool(moved & set(call.axes.cut(source.dims)))
    rows = () if mixed else by_rows(call, source.dims)
    return Ruling((Output(source.dims),), forward, backward, rows)


@rule(
    "ordering",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "searchsorted",
    "_convert_indices_from_coo_to_csr",
)
def counted(call: Call) -> Ruling:
    """Distinct values and counts of a whole tensor."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    source = call.inputs[0]
    forward = work.ordering(call, source, source.dims)
    return Ruling(outputs, forward, work.NOTHING)
