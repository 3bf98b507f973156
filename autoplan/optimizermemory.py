"""What the optimizers of `torch.optim` keep and need of memory, as data. No torch."""

from __future__ import annotations

from collections.abc import Mapping

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

_UNKNOWN_STATES = 2.0
"""Of an optimizer that is not listed: as many as Adam."""


def optimizer_states(optimizer: str) -> float:
    """State tensors of the parameter's size that an optimizer keeps; of an unknown one two, as Adam."""
    return OPTIMIZER_STATES.get(optimizer.lower(), _UNKNOWN_STATES)
