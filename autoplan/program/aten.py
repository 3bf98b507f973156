"""ATen operators by name, and their arguments by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from autoplan.errors import PlanError
from autoplan.program.torch_internals import schema


@functools.cache
def resolve(name: str) -> Any:
    """The overload of a qualified name: ``aten.mm.default``.

    Raises:
        PlanError: this torch does not have it.
    """
    namespace, packet, overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except (AttributeError, RuntimeError) as error:
        raise PlanError(
            f"this torch ({torch.__version__}) has no operator {name}, which the plan's program calls; make the plan again with "
            "this torch"
        ) from error


def bound_arguments(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """All arguments of a call by name, with the schema's defaults for those not given."""
    bound: dict[str, Any] = {}
    for position, argument in enumerate(schema(operator).arguments):
        if position < len(args) and not argument.kwarg_only:
            bound[argument.name] = args[position]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
    return bound
