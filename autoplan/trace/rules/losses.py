"""Losses: a mean or a sum over the rows of all ranks, by the true global counts."""

from __future__ import annotations

from autoplan.opgraph import Collective, OpStrategy
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.placement import broadcast, by_rows
from autoplan.trace.rules.registry import rule

_NONE, _MEAN, _SUM = 0, 1, 2
"""ATen's numbers for a reduction."""

_POINTWISE = [
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "soft_margin_loss",
    "l1_loss",
]


def counting(call: Call, axis: str) -> tuple[Collective, ...]:
    """The all-reduce of a row count, where no rank knows how many rows all of them have."""
    derived = call.axes.axes[axis].kind not in ("base", "index")
    return (Collective(1, "int64"),) if derived else ()


@rule("loss", "nll_loss_forward")
def negative_log_likelihood(call: Call) -> Ruling | None:
    """Scores [rows, classes], targets [rows], perhaps class weights; returns (loss, total weight)."""
    scores, target = call.tensor("self"), call.tensor("target")
    reduction = call.arguments["reduction"]
    forward, backward = work.reduction(call, ())
    if len(scores.dims) != 2 or scores.dims[0] != target.dims[0]:
        return None
    outputs = (Output(target.dims if reduction == _NONE else ()), Output(()))
    cut = call.sharded(scores)
    if cut is None or cut.position != 0 or call.sharded(target) is None:
        return Ruling(outputs, forward, backward)
    states = {scores.name: "O", target.name: "O"}
    if reduction == _NONE:
        strategy = call.strategy("O", dict.fromkeys(states, "O"), ("O", "R"))
    else:
        strategy = call.strategy(
            "O",
            dict.fromkeys(states, "O"),
            "R",
            kernel="nll_loss",
            collectives=(Collective(2, scores.dtype, forward=1, backward=1),),
        )
    return Ruling(outputs, forward, backward, (strategy,))


@rule("loss", *_POINTWISE)
def pointwise(call: Call) -> Ruling | None:
    """An elementwise loss, then nothing, a mean or a sum."""
    dims = broadcast(call, call.inputs)
    source = call.inputs[0]
    if dims is None or dims != source.dims:
        return None
    reduction = call.arguments["reduction"]
    if reduction == _NONE:
        forward, backward = work.elementwise(call, dims, 4.0)
        return Ruling((Output(dims),), forward, backward, by_rows(call, dims))
    forward, backward = work.reduction(call, ())
    return Ruling((Output(()),), forward, backward, _averaged(call, reduction == _MEAN))


def _averaged(call: Call, mean: bool) -> tuple[OpStrategy, ...]:
    source = call.inputs[0]
    cut = call.sharded(source)
    if cut is None:
        return ()
    rows = by_rows(call, source.dims, states=("O",))
    return tuple(
        OpStrategy(
            row.name,
            row.inputs,
            ("S",),
            row.rows,
            "mean_loss" if mean else "local",
            counting(call, cut.axis) if mean else (),
        )
        for row in rows
    )
