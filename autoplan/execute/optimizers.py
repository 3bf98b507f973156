"""Optimizers by name with plain arguments, so that a worker can build them without the user's code."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from autoplan.errors import PlanError

OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}

# every optimizer takes every finite one from zero
_PLAIN = frozenset({"lr", "weight_decay"})

Argument = bool | int | float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """An optimizer of `torch.optim`.

    Attributes:
        name: in lower case, a key of `OPTIMIZERS`.
        arguments: keyword arguments (``lr``, ``weight_decay``, ...); torch's defaults for the rest.

    Raises:
        PlanError: a name or an argument that does not exist, or values with which torch makes no step: told here, in the caller's
            process, not by a worker.
    """

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise PlanError(
                f"optimizer is {self.name!r}; give a name, one of {', '.join(OPTIMIZERS)}"
            )
        if self.name not in OPTIMIZERS:
            close = difflib.get_close_matches(self.name.lower(), OPTIMIZERS, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise PlanError(f"no optimizer '{self.name}'; {hint}there are {', '.join(OPTIMIZERS)}")
        accepted = list(inspect.signature(OPTIMIZERS[self.name]).parameters)[1:]
        unknown = [argument for argument in self.arguments if argument not in accepted]
        if unknown:
            raise PlanError(
                f"optimizer '{self.name}' has no argument '{unknown[0]}'; it takes {', '.join(accepted)}"
            )
        for argument, value in self.arguments.items():
            if not all(map(_is_finite, value if isinstance(value, tuple) else (value,))):
                raise PlanError(
                    f"optimizer '{self.name}': {argument} is {value}; it must be finite"
                )
        # torch's first optimizer takes a second to import what these need not be tried for
        if not all(
            argument in _PLAIN and isinstance(value, int | float) and value >= 0
            for argument, value in self.arguments.items()
        ):
            self._try()

    def _try(self) -> None:
        """One step on one number: some values are refused by the optimizer, others by its first step. Raises PlanError."""
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.zeros(1)
        optimizer = self.build([weight])
        try:
            optimizer.step()
        # torch's own checks raise whatever they like; nothing but the arguments can be the reason
        except Exception as error:
            given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
            raise PlanError(
                f"optimizer '{self.name}' makes no step with {given}: {type(error).__name__}: {error}"
            ) from error

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer over these parameters.

        Raises:
            PlanError: a value that torch refuses, such as a negative learning rate.
        """
        arguments: dict[str, Any] = dict(self.arguments)
        try:
            return OPTIMIZERS[self.name](parameters, **arguments)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise PlanError(f"optimizer '{self.name}': {error}") from error


def _is_finite(value: object) -> bool:
    """Whether it is no number, or neither infinite nor NaN."""
    if isinstance(value, torch.Tensor):
        return bool(torch.isfinite(value).all())
    return not isinstance(value, float) or math.isfinite(value)
