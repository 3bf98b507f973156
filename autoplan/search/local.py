"""Strategies that let every part of a closed partition be computed by itself: what a pipeline of micro-batches runs.

A closed partition cuts no edge, so that an op in O needs nothing of other parts, and halo rows do not exist (O -> H moves
nothing). What is left to refuse: gathering rows, adding partial sums, and kernels that do either. The one sum that remains
is that of the loss: each part returns its share, and the gradients of the shares add up to the gradient of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autoplan.opgraph import Op, OpGraph, OpStrategy, State, TensorMeta
from autoplan.states import Transition, sharded_axis, transitions, way

HEAVY = ("dense", "gather", "scatter", "spmm")
"""Kinds of work that must be shared out: no part computes them for the whole batch."""
_PREFERRED: tuple[State, ...] = ("O", "H", "S", "R")


class NotLocal(Exception):  # noqa: N818  (an answer, not an error of the user)
    """An op that no part can compute by itself; the message names it."""


def local_transitions(graph: OpGraph, name: str) -> tuple[Transition, ...]:
    """The transitions of a tensor that need no other part, and the last sum of the loss."""
    loss = graph.outputs[0] if graph.has_loss else None
    return tuple(
        step
        for step in transitions(graph.tensors[name], graph.axes)
        if step.exchange in ("none", "halo_exchange")
        or (step.exchange == "all_reduce" and name == loss)
    )


def local_strategies(
    graph: OpGraph, denied: Mapping[int, frozenset[str]], *, lossy: bool = False
) -> dict[int, OpStrategy]:
    """A strategy for every op, without any exchange; ops on rows run on a part of them wherever they can.

    Args:
        graph: the program.
        denied: op index -> names of strategies that a check has rejected.
        lossy: where no other will do, also strategies whose numbers differ from one device's by design.

    Raises:
        NotLocal: some op needs rows of other parts.
    """
    moves = {name: local_transitions(graph, name) for name in graph.tensors}
    usable = _usable(graph, moves, denied, lossy)
    needs: dict[str, dict[State, None]] = {name: {} for name in graph.tensors}
    # the loss is what parts have shares of; whatever else is returned is whole, or has a part's own rows
    whole = {name for name in graph.outputs if not _is_loss(graph, name)}
    needs.update({name: {"R": None} for name in graph.outputs if name not in whole})
    chosen: dict[int, OpStrategy] = {}
    for op in reversed(graph.ops):
        for strategy in usable[op.index]:
            if all(
                way(moves[name], state, needs[name]) is not None
                and not (state == "S" and name in whole)
                for name, state in zip(op.outputs, strategy.outputs, strict=True)
            ):
                break
        else:
            raise NotLocal(_whole(graph, op))
        chosen[op.index] = strategy
        for name, state in zip(op.inputs, strategy.inputs, strict=True):
            if name in needs:
                needs[name][state] = None
    _loadable(graph, needs)
    return {op.index: chosen[op.index] for op in graph.ops}


def _usable(
    graph: OpGraph,
    moves: Mapping[str, Collection[Transition]],
    denied: Mapping[int, frozenset[str]],
    lossy: bool,
) -> dict[int, tuple[OpStrategy, ...]]:
    """Per op, the strategies whose inputs can each be had, the preferred ones first."""
    present: dict[str, dict[State, None]] = {
        name: dict.fromkeys(tensor.states)
        for name, tensor in graph.tensors.items()
        if tensor.origin != "op"
    }
    found: dict[int, tuple[OpStrategy, ...]] = {}
    for op in graph.ops:
        usable = [
            strategy
            for strategy in _offered(graph, op)
            if strategy.name not in denied.get(op.index, frozenset())
            and not strategy.collectives
            and strategy.runs_on(closed=True)
            and (lossy or strategy.lossy is None)
            and all(
                name not in graph.tensors or state in present.get(name, {})
                for name, state in zip(op.inputs, strategy.inputs, strict=True)
            )
        ]
        if not usable:
            raise NotLocal(_whole(graph, op))
        found[op.index] = tuple(sorted(usable, key=_rank))
        for place, name in enumerate(op.outputs):
            made = dict.fromkeys(strategy.outputs[place] for strategy in usable)
            targets: tuple[State, ...] = ("R", "O", "H", "S")
            present[name] = dict.fromkeys(
                target
                for target in targets
                if any(way(moves[name], state, (target,)) is not None for state in made)
            )
    return found


def _offered(graph: OpGraph, op: Op) -> tuple[OpStrategy, ...]:
    """The op's strategies on closed partitions; of heavy work on rows only those that share it out."""
    offered = tuple(strategy for strategy in op.strategies if strategy.runs_on(closed=True))
    on_rows = any(_has_rows(graph, n) for n in (*op.inputs, *op.outputs))
    if op.forward.kind not in HEAVY or not on_rows or _picks_labels(graph, op):
        return offered
    return tuple(strategy for strategy in offered if strategy.rows != "R")


def _picks_labels(graph: OpGraph, op: Op) -> bool:
    """Whether it picks entries of a list or rows of an attribute (``y[mask]``): every part can afford to do it for all."""
    read = [graph.tensors[name] for name in op.inputs if name in graph.tensors]
    light = all(len(tensor.dims) < 2 or tensor.origin == "input" for tensor in read)
    return op.forward.kind == "gather" and not op.differentiates and light


def _rank(strategy: OpStrategy) -> tuple[bool, bool, int]:
    """Exact before lossy, part of the rows before all of them, owned rows before owned and halo rows (the same here)."""
    made = strategy.outputs[0] if strategy.outputs else strategy.rows
    whole = strategy.rows == "R" and made != "S"
    return (strategy.lossy is not None, whole, _PREFERRED.index(made))


def _has_rows(graph: OpGraph, name: str) -> bool:
    tensor = graph.tensors.get(name)
    return tensor is not None and sharded_axis(tensor, graph.axes) is not None


def _is_loss(graph: OpGraph, name: str) -> bool:
    return graph.has_loss and name == graph.outputs[0]


def _loadable(graph: OpGraph, needs: Mapping[str, Mapping[State, None]]) -> None:
    for name, states in needs.items():
        tensor: TensorMeta = graph.tensors[name]
        if tensor.origin != "op" and any(state not in tensor.states for state in states):
            raise NotLocal(f"{tensor.source or name} is needed in states it cannot be loaded in")


def lossy_notes(graph: OpGraph, strategies: Mapping[int, OpStrategy]) -> tuple[str, ...]:
    """Per op that is not one device's, where it is and how it differs."""
    return tuple(
        f"{op.module or 'the model'} ({op.name}): {strategies[op.index].lossy}"
        for op in graph.ops
        if strategies[op.index].lossy is not None
    )


def _whole(graph: OpGraph, op: Op) -> str:
    """Which op it is and what to do; the name of the last part of a module says more than its path."""
    where = f", {op.where}" if op.where else ""
    lossy = any(strategy.lossy is not None for strategy in op.strategies)
    return (
        f"{op.module or 'the model'} ({op.name}{where}) needs all rows of the batch at once, so a pipeline has one "
        f"micro-batch; use strategy='model'{', or exact=False' if lossy else ''}"
    )
