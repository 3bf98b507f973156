"""Which rule covers which operator."""

from __future__ import annotations

from collections.abc import Callable

from autoplan.trace.rules.call import Call, Ruling

Rule = Callable[[Call], Ruling | None]
"""Says how a call may run; None where the rule does not know this form of it."""

_RULES: dict[str, tuple[str, Rule]] = {}


def rule(family: str, *names: str) -> Callable[[Rule], Rule]:
    """Registers a rule under a family's name.

    Args:
        family: what `Op.rule` says.
        names: operators without ``aten.`` and overload; in-place variants (``relu_``) are covered with them.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"two rules for {name}: {_RULES[name][0]} and {family}")
            _RULES[name] = (family, function)
        return function

    return register


def find(base: str) -> tuple[str, Rule] | None:
    """The family and the rule of an operator, or None: it runs replicated and is listed as unknown."""
    return _RULES.get(base)


OWN = ("aten", "autoplan")
"""Namespaces of the operators that rules are about."""


def base_name(name: str) -> str:
    """``relu`` for ``aten.relu_.default``, also of autoplan's own operators; dunder names keep their underscores."""
    parts = name.split(".")
    base = parts[1] if parts[0] in OWN and len(parts) > 1 else name
    return base if base.endswith("__") else base.removesuffix("_")
