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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autoplan.opgraph import Axis, State, TensorMeta

Exchange = Literal["none", "halo_exchange", "all_gather", "all_reduce"]


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
    order in a shard is not that of the whole).
    """
    axis = sharded_axis(tensor, axes)
    if axis is None:
        return _PARTIAL if "S" in tensor.states else ()
    if tensor.index is not None or axes[axis].kind != "base":
        return ()
    return _NODE if axes[axis].role == "node" else _EDGE
