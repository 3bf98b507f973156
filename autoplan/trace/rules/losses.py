"""Losses: a mean or a sum over the rows of all ranks, by the true global counts.

What the sum is divided by (a count of rows, a sum of class weights) no rank knows from its own rows alone. It is added up
over the ranks, or, where micro-batches that never talk must know it, counted in the whole list of targets (``counted``).
"""

from __future__ import annotations

from autoplan.opgraph import Collective, OpStrategy, State, TensorMeta
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
    return Ruling(outputs, forward, backward, (strategy, *_counted(call, scores, target, 2)))


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
    strategies = _averaged(call, reduction == _MEAN)
    if any(strategy.collectives for strategy in strategies):
        strategies += _counted(call, source, call.tensor("target"), 1)
    return Ruling((Output(()),), forward, backward, strategies)


def _counted(
    call: Call, scores: TensorMeta, target: TensorMeta, outputs: int
) -> tuple[OpStrategy, ...]:
    """This rank's part of the loss, divided by what the targets of all rows say; only a closed partition has use for it."""
    along = [tensor for tensor in call.inputs if call.axes.cut(tensor.dims)]
    if call.get("reduction") == _NONE or {tensor.name for tensor in along} != {
        scores.name,
        target.name,
    }:
        return ()
    states: tuple[State, ...] = ("S", "R")
    return (
        call.strategy(
            "counted",
            {scores.name: "O"},
            states[:outputs],
            rows="O",
            kernel="nll_loss_counted" if outputs > 1 else "mean_loss_counted",
            closed=True,
        ),
    )


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
