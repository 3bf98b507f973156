"""What is known only from the loss backwards: where its gradient goes, and what that costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autoplan.opgraph import Op, OpStrategy, TensorMeta, Work
from autoplan.trace.tensors import TensorTable


@dataclass(frozen=True, slots=True)
class OpFlow:
    """An op before its backward is known.

    Attributes:
        op: with the work and saved tensors that it has where a gradient passes through it.
        backward: that work.
        reaches: the inputs that a gradient of its results flows to.
    """

    op: Op
    backward: Work
    reaches: frozenset[str]


def with_gradients(
    flows: Sequence[OpFlow],
    tensors: TensorTable,
    loss: str | None,
    alias: Mapping[str, str],
    shared: Collection[str],
) -> tuple[tuple[Op, ...], dict[str, TensorMeta]]:
    """Ops and tensors with their backward settled.

    Args:
        flows: the ops in program order.
        tensors: all tensors.
        loss: what is differentiated, or None.
        alias: value -> the value whose storage it shares.
        shared: values that are written under one name and read under another: what reaches one reaches all.
    """
    groups: dict[str, set[str]] = {}
    for name, value in tensors.values.items():
        if value in shared:
            groups.setdefault(alias[value], set()).add(name)
    reached: set[str] = {loss} if loss is not None else set()
    before = -1
    while before != len(reached):
        before = len(reached)
        for flow in reversed(flows):
            if reached.intersection(flow.op.outputs):
                reached |= flow.reaches
        for group in groups.values():
            if group & reached:
                reached |= group
    metas = {
        name: replace(meta, reaches_loss=meta.requires_grad and name in reached)
        for name, meta in tensors.metas.items()
    }
    return tuple(_settled(flow, reached) for flow in flows), metas


def _settled(flow: OpFlow, reached: Collection[str]) -> Op:
    passes = bool(set(reached).intersection(flow.op.outputs)) and bool(flow.reaches)
    if passes:
        through = tuple(name for name in dict.fromkeys(flow.op.inputs) if name in flow.reaches)
        return replace(flow.op, backward=flow.backward, differentiates=through)
    return replace(
        flow.op,
        backward=None,
        saved=(),
        strategies=tuple(_forward_only(strategy) for strategy in flow.op.strategies),
    )


def _forward_only(strategy: OpStrategy) -> OpStrategy:
    collectives = tuple(replace(each, backward=0) for each in strategy.collectives)
    return replace(strategy, collectives=collectives)
