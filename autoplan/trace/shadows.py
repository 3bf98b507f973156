"""Builtins that would lose a tracked number, and stand-ins that keep it.

``int(n)``, ``float(n)``, ``len(x)`` and ``math.*`` must return plain values, and ``type(n)`` cannot be told a lie; modules
that use them on tracked values get these stand-ins in their globals while a pass is recorded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import Any

from torch import Tensor

from autoplan.trace.numbers import apply, is_tracked


class _LikeBuiltin(type):
    """Metaclass of a subclass of a builtin that answers type tests as the builtin does."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, cls.__mro__[1])

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__mro__[1])

    def __eq__(cls, other: object) -> bool:
        return other is cls.__mro__[1] or type.__eq__(cls, other)

    def __hash__(cls) -> int:
        return hash(cls.__mro__[1])


def _conversion(builtin: type) -> type:
    def new(cls: type, obj: Any = 0, *rest: Any) -> Any:
        if isinstance(obj, Tensor):
            obj = obj.item()
        return apply(builtin.__name__, builtin, obj) if is_tracked(obj) else builtin(obj, *rest)

    return _LikeBuiltin(builtin.__name__, (builtin,), {"__new__": new})


_INT = _conversion(int)
_FLOAT = _conversion(float)


def _type(cls: type, obj: Any, *rest: Any) -> Any:
    found = obj.__class__ if is_tracked(obj) else type(obj, *rest)
    if found is int:
        return _INT
    return _FLOAT if found is float else found


def _len(obj: Any) -> Any:
    return obj.size(0) if isinstance(obj, Tensor) and obj.dim() else len(obj)


BUILTINS: Mapping[str, Any] = {
    "int": _INT,
    "float": _FLOAT,
    "type": _LikeBuiltin("type", (type,), {"__new__": _type}),
    "len": _len,
}
"""Put into the globals of modules that take plain values."""

_FOLLOWED = ("sqrt", "log", "log2", "exp", "ceil", "floor", "isnan", "isinf", "isfinite")
_MATH: Mapping[Any, Any] = {
    getattr(math, name): functools.partial(apply, f"math.{name}", getattr(math, name))
    for name in _FOLLOWED
}
"""Function of `math` -> its stand-in."""

Replacement = tuple[Any, str, Any]
"""Dictionary or object, name in it, stand-in."""


def stand_ins(shadows: Iterable[dict[str, Any]]) -> list[Replacement]:
    """The builtins in the globals of ``shadows``, `math` itself, and what these modules imported from it."""
    found: list[Replacement] = [(math, name, _MATH[getattr(math, name)]) for name in _FOLLOWED]
    for namespace in shadows:
        found += [(namespace, name, stand_in) for name, stand_in in BUILTINS.items()]
        for name, value in namespace.items():
            if type(value) is BuiltinFunctionType and value in _MATH:
                found.append((namespace, name, _MATH[value]))
    return found


_MISSING = object()


@contextmanager
def patched(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Names in dictionaries and on objects replaced, and put back in reverse order."""
    old: list[Replacement] = []
    try:
        for target, name, value in replacements:
            namespace = target if isinstance(target, dict) else vars(target)
            old.append((target, name, namespace.get(name, _MISSING)))
            _put(target, name, value)
        yield
    finally:
        for target, name, value in reversed(old):
            if value is not _MISSING:
                _put(target, name, value)
            elif isinstance(target, dict):
                del target[name]
            else:
                delattr(target, name)


def _put(target: Any, name: str, value: Any) -> None:
    if isinstance(target, dict):
        target[name] = value
    else:
        setattr(target, name, value)
