"""Normalisation: layer and group norm row by row; batch norm over the rows of all ranks."""

from __future__ import annotations

from dataclasses import replace

from autoplan.opgraph import Collective, OpStrategy, State
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.losses import counting
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule

_FLOPS = 8.0


@rule("normalisation", "native_layer_norm")
def layer_norm(call: Call) -> Ruling:
    """Over the last dimensions; returns (output, mean, 1 / standard deviation)."""
    source = call.tensor("input")
    kept = len(source.dims) - len(call.arguments["normalized_shape"])
    statistics = source.dims[:kept] + (1,) * (len(source.dims) - kept)
    forward, backward = work.mixing(call, source.dims, source.dims[kept:], _FLOPS)
    outputs = (Output(source.dims), Output(statistics), Output(statistics))
    cut = call.axes.cut(source.dims)
    rows = by_rows(call, source.dims) if cut and cut[0] < kept else ()
    return Ruling(outputs, forward, backward, rows)


@rule("normalisation", "native_group_norm")
def group_norm(call: Call) -> Ruling:
    """Over groups of the second dimension, row by row; returns (output, mean, 1 / standard deviation)."""
    source = call.tensor("input")
    statistics = (source.dims[0], *call.matched(1)[1:])
    forward, backward = work.mixing(call, source.dims, source.dims[1:], _FLOPS)
    outputs = (Output(source.dims), Output(statistics), Output(statistics))
    rows = by_rows(call, source.dims) if call.axes.cut(source.dims) == (0,) else ()
    return Ruling(outputs, forward, backward, rows)


@rule("normalisation", "_weight_norm_interface")
def weight_norm(call: Call) -> Ruling:
    """Of a weight: whole."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    forward, backward = work.mixing(call, outputs[0].dims, outputs[0].dims, _FLOPS)
    return Ruling(outputs, forward, backward)


@rule(
    "normalisation", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
    "cudnn_batch_norm", "_native_batch_norm_legit_no_training",
)  # fmt: skip
def batch_norm(call: Call) -> Ruling | None:
    """Over all dimensions but the second; with running statistics it is row by row."""
    source = call.tensor("input")
    mixed = (*source.dims[:1], *source.dims[2:])
    forward, backward = work.mixing(call, source.dims, mixed, _FLOPS)
    outputs = (Output(source.dims), *(Output(call.matched(k)) for k in range(1, len(call.shapes))))
    cut = call.sharded(source)
    if cut is None or cut.position == 1 or any(call.axes.cut(out.dims) for out in outputs[1:]):
        return Ruling(outputs, forward, backward)
    rest: tuple[State, ...] = tuple("R" for _ in outputs[1:])
    training = "no_training" not in call.base and bool(call.get("training", True))
    if not training:
        rows = tuple(
            call.strategy(row.name, {source.name: row.rows}, (row.rows, *rest))
            for row in by_rows(call, source.dims)
        )
        return Ruling(outputs, forward, backward, rows)
    if cut.position != 0:
        return Ruling(outputs, forward, backward)
    strategies = (_synchronised(call, cut.axis, rest), _by_part(call, rest))
    return Ruling(outputs, forward, backward, strategies)


def _by_part(call: Call, rest: tuple[State, ...]) -> OpStrategy:
    """Each part by its own rows, as pipelines of other frameworks do (GPipe, section 2.2): not one device's numbers."""
    by_part = call.strategy(
        "by_part",
        {call.tensor("input").name: "O"},
        ("O", *rest),
        rows="O",
        kernel="batch_norm_by_part",
    )
    return replace(
        by_part,
        lossy="each micro-batch is normalised by its own mean and variance; running statistics follow the first of a step",
    )


def _synchronised(call: Call, axis: str, rest: tuple[State, ...]) -> OpStrategy:
    """Mean, then variance: an all-reduce of a row each; their adjoints where the input asks for a gradient."""
    source = call.tensor("input")
    channels = source.dims[1]
    assert isinstance(channels, int)
    rows = Collective(channels, source.dtype, forward=2, backward=2 if source.requires_grad else 0)
    return call.strategy(
        "O",
        {source.name: "O"},
        ("O", *rest),
        kernel="sync_batch_norm",
        collectives=(rows, *counting(call, axis)),
    )
