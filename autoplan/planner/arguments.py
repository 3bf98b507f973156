"""What a user may ask of a training run, held to its types before anything starts."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from autoplan.errors import PlanError


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """The argument as an int (NumPy's integers are welcome). Raises PlanError where it is none or less than ``least``."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise PlanError(f"{name} is {value!r}; it must be a whole number") from None
    if least is not None and number < least:
        raise PlanError(f"{name} is {number}; it must be at least {least}")
    return number


def check_metrics(metrics: object) -> None:
    """Raises PlanError where metrics are not functions by name."""
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        raise PlanError(
            f"metrics is a {type(metrics).__name__}; give functions by name: "
            "metrics={'accuracy': lambda out, graph: ...}"
        )
    for name, function in metrics.items():
        if not isinstance(name, str) or not callable(function):
            raise PlanError(
                f"metrics[{name!r}] is {function!r}; give a function metric(out, graph) by a name that is a string"
            )
