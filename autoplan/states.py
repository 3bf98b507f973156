"""The state algebra (DESIGN 4) as data: which state reaches which, by what exchange, and what its adjoint is.

A tensor has at most one axis that a partition cuts (a second one makes it R only). Every transition uses its true
adjoint, so that the sum of all ranks' losses is differentiated:

    transition   exchange        forward                        adjoint
    R -> O       none            keep the owned rows            zero-pad
    R -> H       none            keep owned and halo rows       zero-pad
    H -> O       none            drop the halo rows             zero-pad
    O -> H       halo_exchange   owners send requested rows     halo rows add to their owners
    O -> R       all_gather      every rank gets every row      sum over ranks, keep own rows
    S -> R       all_reduce      sum over ranks                 sum over ranks

A whole number becomes a partial sum only where it is added to one (the penalty of a loss): each rank adds its share, the
value over the number of ranks, in the kernels ``share_self`` and ``share_other``; their adjoint divides by that number, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from autoplan.errors import PlanError
from autoplan.opgraph import Axis, State, TensorMeta

Exchange = Literal["none", "halo_exchange", "all_gather", "all_reduce"]

STATE_WORDS: Mapping[State, str] = {
    "O": "owned rows",
    "H": "owned and halo rows",
    "R": "everything",
    "S": "partial sums",
}
"""What each state is, for people."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step from a state to another; longer ways are chains of these."""

    source: State
    target: State
    exchange: Exchange


_NODE = (
    Transition("R", "O", "none"),
    Transition("R", "H", "none"),
    Transition("H", "O", "none"),
    Transition("O", "H", "halo_exchange"),
    Transition("O", "R", "all_gather"),
)
_EDGE = (Transition("R", "O", "none"), Transition("O", "R", "all_gather"))
_PARTIAL = (Transition("S", "R", "all_reduce"),)
_GRAPH = (*_EDGE, *_PARTIAL)
"""Per-graph rows: O on a closed partition, partial sums (pooling across parts) on any other; never both in one plan."""


def has_halo(axes: Mapping[str, Axis], name: str) -> bool:
    """Whether tensors along an axis may lie in H: nodes of one type, or of several, joined (each part: owned, then halo)."""
    axis = axes[name]
    if axis.kind == "concat":
        return all(has_halo(axes, part) for part in axis.parts)
    return axis.kind == "base" and axis.role == "node"


def parts_of(axes: Mapping[str, Axis], name: str) -> tuple[str, ...]:
    """The axes that an exchange along an axis goes over, one after the other: itself, or of joined nodes every part."""
    axis = axes[name]
    if axis.kind != "concat":
        return (name,)
    return tuple(each for part in axis.parts for each in parts_of(axes, part))


def sharded_axis(tensor: TensorMeta, axes: Mapping[str, Axis]) -> str | None:
    """The one axis of the tensor that a partition cuts; None when it has none or more than one."""
    found = [
        dim
        for dim in tensor.dims
        if isinstance(dim, str)
        and axes[dim].kind != "other"
        and axes[dim].role in ("node", "edge", "graph")
    ]
    return found[0] if len(found) == 1 else None


def transitions(tensor: TensorMeta, axes: Mapping[str, Axis]) -> tuple[Transition, ...]:
    """The transitions an op's output may take.

    Positions into an axis have no transition (global and local numbering differ), nor have rows of derived axes (their
    order in a shard is not that of the whole), but for nodes of several types that are joined: each part has its own.
    """
    axis = sharded_axis(tensor, axes)
    if axis is None:
        return _PARTIAL if "S" in tensor.states else ()
    if tensor.index is not None:
        return ()
    if axes[axis].kind != "base":
        return _NODE if has_halo(axes, axis) else ()
    if axes[axis].role == "graph":
        return _GRAPH if "S" in tensor.states else _EDGE
    return _NODE if axes[axis].role == "node" else _EDGE


def route(
    tensor: TensorMeta, axes: Mapping[str, Axis], produced: State, needed: Collection[State]
) -> tuple[Transition, ...]:
    """The transitions that bring a tensor from the state it is produced in to all states that are needed, in order.

    The one way that plans price and programs take (see `way`).

    Raises:
        PlanError: a needed state that cannot be reached.
    """
    found = way(transitions(tensor, axes), produced, needed)
    if found is None:
        raise PlanError(
            f"tensor {tensor.name} is produced in state {produced} and needed in {', '.join(sorted(needed))}, which no "
            "exchange reaches; choose another strategy for the op that makes it"
        )
    return found


def way(
    allowed: Collection[Transition], produced: State, needed: Collection[State]
) -> tuple[Transition, ...] | None:
    """The transitions, of those allowed, that lead from the produced state to all needed ones, in order; None: no way.

    With R among the needed, O and H are cut from it, so that nothing is exchanged twice. Each transition's source is
    ``produced`` or the target of an earlier one.
    """
    have: set[State] = {produced}
    steps: list[Transition] = []

    def bring(target: State) -> bool:
        """Adds the one transition, or O on the way, that leads to the target."""
        if target in have:
            return True
        step = _first(allowed, have, target)
        if step is None:
            return target != "O" and "O" not in have and bring("O") and bring(target)
        steps.append(step)
        have.add(target)
        return True

    order: tuple[State, ...] = ("R", "H", "O", "S")
    if all(bring(target) for target in order if target in needed):
        return tuple(steps)
    return None


def _first(
    allowed: Collection[Transition], have: Collection[State], target: State
) -> Transition | None:
    """A transition to the target from what there is: one without an exchange, and a view before a copy."""
    found = [step for step in allowed if step.target == target and step.source in have]
    return min(found, key=lambda step: (step.exchange != "none", step.source != "H"), default=None)
