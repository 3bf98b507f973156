"""Numbers that Python reads from tensors, followed.

Arithmetic on such a number builds a formula, a comparison logs a guard on its outcome, and any other use (list index,
range, text, NumPy, C code) is a guard on the value itself.

The mixin sits on `torch.SymInt` and `torch.SymFloat`: torch's argument parser takes those, and, unlike a subclass of int,
they make every C consumer call back (``__index__``, ``__int__``, ``__float__``). ``isinstance(n, int)`` holds through
``__class__``; ``type(n) is int`` does not, for which `autoplan.trace.shadows` stands in.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch

from autoplan.program.torch_internals import TORCH_DIRECTORY
from autoplan.trace.places import caller

_TORCH_PYTHON_OF_TENSORS = frozenset(
    TORCH_DIRECTORY + name for name in ("overrides.py", "_tensor.py")
)


class NumberLog(Protocol):
    """What a number tells its recorder."""

    def guard(self, text: str, value: Any) -> None:
        """A decision: ``text`` evaluated to ``value``."""

    def wants_shadow(self, module_globals: dict[str, Any]) -> None:
        """Code of this module took a plain value; int(), float(), len() and type() there could be shadowed."""


class TrackedNumber:
    """A number that knows its recorder, its formula and its value here."""

    def __init__(self, log: NumberLog, text: str, value: float) -> None:
        self.log = log
        self.text = text
        self.value = value

    def escape(self, *_: Any) -> Any:
        """Python takes the plain value, which so becomes a guard."""
        frame = caller(lambda file: file in _TORCH_PYTHON_OF_TENSORS)
        self.log.wants_shadow(frame.f_globals)
        self.log.guard(self.text, self.value)
        return self.value

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self.__class__, name):
            raise AttributeError(name)
        return getattr(self.escape(), name)

    def __bool__(self) -> bool:
        self.log.guard(f"bool({self.text})", bool(self.value))
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.escape())

    def __float__(self) -> float:
        return float(self.escape())

    def __hash__(self) -> int:
        return hash(self.escape())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.escape(), dtype)

    def __format__(self, spec: str) -> str:
        return format(self.escape(), spec)

    def __repr__(self) -> str:
        return repr(self.escape())

    def __str__(self) -> str:
        return repr(self.escape())

    def __copy__(self) -> TrackedNumber:
        return self

    def __deepcopy__(self, memo: Any) -> TrackedNumber:
        return self

    def __round__(self, digits: int | None = None) -> Any:
        return (
            apply("round", round, self) if digits is None else apply("round", round, self, digits)
        )

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        left: Any = self
        return left // other, left % other


class TrackedInt(TrackedNumber, torch.SymInt):
    """A tracked int, to Python and to torch."""

    __class__ = property(lambda self: int)
    __index__ = TrackedNumber.escape


class TrackedFloat(TrackedNumber, torch.SymFloat):
    """A tracked float, to Python and to torch."""

    __class__ = property(lambda self: float)


def is_tracked(obj: Any) -> TypeGuard[TrackedNumber]:
    """Whether the object is a tracked number (``isinstance`` cannot tell: it sees int or float)."""
    return type(obj) in (TrackedInt, TrackedFloat)


def plain(obj: Any) -> Any:
    """The value of a tracked number; anything else as it is."""
    return obj.value if is_tracked(obj) else obj


def formula(number: Any) -> str:
    """The text of a number in a formula: a tracked one's own, a plain one's literal; in parentheses where negative."""
    if is_tracked(number):
        text = number.text
    elif isinstance(number, float):
        text = repr(float(number))
    else:
        text = repr(int(number))
    return f"({text})" if text.startswith("-") else text


def track(log: NumberLog, text: str, value: Any) -> Any:
    """The tracked form of ``value`` with formula ``text``. A bool is a decision: guarded, and plain."""
    if isinstance(value, bool):
        log.guard(text, value)
        return value
    kind = TrackedInt if isinstance(value, int) else TrackedFloat
    return kind(log, text, value)


def apply(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``; tracked, as ``name(...)``, where an argument is."""
    log = next((argument.log for argument in arguments if is_tracked(argument)), None)
    if log is None:
        return function(*arguments)
    text = f"{name}({', '.join(formula(argument) for argument in arguments)})"
    return track(log, text, function(*(plain(argument) for argument in arguments)))


def _binary(symbol: str, function: Callable[[Any, Any], Any], swapped: bool) -> Any:
    def method(self: TrackedNumber, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        text = f"({formula(left)} {symbol} {formula(right)})"
        return track(self.log, text, function(plain(left), plain(right)))

    return method


def _unary(name: str, function: Callable[[Any], Any]) -> Any:
    def method(self: TrackedNumber) -> Any:
        return apply(name, function, self)

    return method


_ARITHMETIC = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "neg": ("-", operator.neg),
    "pos": ("+", operator.pos),
    "abs": ("abs", abs),
    "invert": ("~", operator.invert),
    "ceil": ("math.ceil", math.ceil),
    "floor": ("math.floor", math.floor),
    "trunc": ("int", int),
}

for _name, _symbol in _ARITHMETIC.items():
    _function = getattr(operator, _name)
    _bare = _name.strip("_")
    setattr(TrackedNumber, f"__{_bare}__", _binary(_symbol, _function, swapped=False))
    setattr(TrackedNumber, f"__r{_bare}__", _binary(_symbol, _function, swapped=True))
for _name, _symbol in _COMPARISONS.items():
    _function = getattr(operator, _name)
    setattr(TrackedNumber, f"__{_name}__", _binary(_symbol, _function, swapped=False))
for _name, (_text, _function) in _UNARY.items():
    setattr(TrackedNumber, f"__{_name}__", _unary(_text, _function))
