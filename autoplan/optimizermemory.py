"""What the optimizers of `torch.optim` keep and need of memory, as data. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OPTIMIZER_STATES: Mapping[str, float] = {
    "sgd": 0,
    "sgd_momentum": 1,
    "asgd": 1,
    "adam": 2,
    "adamw": 2,
    "nadam": 2,
    "radam": 2,
    "adamax": 2,
    "rmsprop": 1,
    "adagrad": 1,
    "adadelta": 2,
    "none": 0,
}
"""State tensors of the parameter's size that an optimizer keeps (torch.optim, default arguments)."""


@dataclass(frozen=True, slots=True)
class Update:
    """Temporary tensors of an optimizer's step, each of a parameter's size.

    Attributes:
        current: of the parameter that is being updated, where a loop updates one after the other.
        previous: of the one before, whose last temporary the loop's variable keeps alive meanwhile.
        together: of every parameter, where all are updated in one call (torch's ``foreach``).
    """

    current: int
    previous: int
    together: int


OPTIMIZER_UPDATES: Mapping[str, Update] = {
    "sgd": Update(0, 0, 0),
    "sgd_momentum": Update(0, 0, 0),
    "asgd": Update(0, 0, 1),
    "adam": Update(2, 1, 1),
    "adamw": Update(2, 1, 1),
    "nadam": Update(2, 1, 1),
    "radam": Update(2, 0, 1),
    "adamax": Update(1, 0, 1),
    "rmsprop": Update(1, 1, 1),
    "adagrad": Update(1, 1, 2),
    "adadelta": Update(2, 1, 2),
    "none": Update(0, 0, 0),
}
"""Measured: allocation events of one step of torch 2.13 with default arguments, ``foreach`` False and True, on a CPU."""

_UNKNOWN_STATES = 2.0
"""Of an optimizer that is not listed: as many as Adam."""


def optimizer_states(optimizer: str) -> float:
    """State tensors of the parameter's size that an optimizer keeps; of an unknown one two, as Adam."""
    return OPTIMIZER_STATES.get(optimizer.lower(), _UNKNOWN_STATES)


def optimizer_update(optimizer: str) -> Update:
    """Temporaries of an optimizer's step; of an unknown one those of Adam."""
    return OPTIMIZER_UPDATES.get(optimizer.lower(), OPTIMIZER_UPDATES["adam"])


def updates_together(kind: str) -> bool:
    """Whether torch updates all parameters in one call on a kind of device, by default: everywhere but on CPUs."""
    return kind != "cpu"


def update_bytes(optimizer: str, sizes: Iterable[float], *, kind: str) -> float:
    """The most bytes of temporaries that an optimizer's step has at one time, in whatever order it updates.

    Args:
        optimizer: its name; with torch's default arguments (``weight_decay`` takes one more temporary, except adamw's).
        sizes: bytes of each parameter that gets a gradient.
        kind: of the device: CPUs update in a loop, the others everything in one call.
    """
    update = optimizer_update(optimizer)
    largest = sorted(sizes, reverse=True)
    if updates_together(kind):
        return update.together * float(sum(largest))
    return float(
        sum(n * size for n, size in zip((update.current, update.previous), largest, strict=False))
    )
