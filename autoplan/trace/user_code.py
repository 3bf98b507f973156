"""The user's own Python that a step reaches: functions, classes, and the variables that they read.

Torch's, PyG's and other libraries' code is taken as it is; what the user wrote may keep state.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

_LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "IPython",
    "_pytest",
    "matplotlib",
    "networkx",
    "numpy",
    "pandas",
    "pyg_lib",
    "pytest",
    "rich",
    "scipy",
    "sklearn",
    "torch",
    "torch_cluster",
    "torch_geometric",
    "torch_scatter",
    "torch_sparse",
    "tqdm",
}
_STEP_PARTS = frozenset({"trace", "cli"})
"""What of autoplan a step is made of, or its commands train; a plan that a user's global holds is no code of the user's."""

_DATA = (Tensor, bool, int, float, complex, str, bytes, type(None), types.ModuleType)


def is_library(module_name: str | None) -> bool:
    """Whether code of this module is a library's rather than the user's."""
    first, _, rest = (module_name or "builtins").partition(".")
    if first == "autoplan":
        return rest.partition(".")[0] not in _STEP_PARTS
    return first in _LIBRARIES


class UserCode:
    """Functions and classes reached from a module's classes and attributes.

    Attributes:
        functions: each once: methods, functions held as attributes, in closures, or named by another one.
        classes: user classes of the submodules and of objects that they hold.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.functions: list[types.FunctionType] = []
        self.classes: list[type] = []
        self._seen: set[int] = set()
        for submodule in module.modules():
            for cls in type(submodule).__mro__:
                self._visit(cls)
            for value in list(vars(submodule).values()):
                self._visit(value)

    def _visit(self, obj: Any) -> None:
        if isinstance(obj, _DATA) or id(obj) in self._seen:
            return
        self._seen.add(id(obj))
        for part in self._parts(obj):
            self._visit(part)

    def _parts(self, obj: Any) -> Iterable[Any]:
        """What to look at next; notes functions and classes on the way."""
        if isinstance(obj, types.FunctionType):
            if is_library(obj.__module__):
                return ()
            self.functions.append(obj)
            named = (value for _, _, value in variables(obj))
            return (*named, *own_values(obj).values())
        if isinstance(obj, types.MethodType):
            return (obj.__func__, obj.__self__)
        if hasattr(obj, "__wrapped__"):
            return (obj.__wrapped__,)
        if isinstance(obj, functools.partial):
            return (obj.func, *obj.args, *obj.keywords.values())
        if isinstance(obj, (staticmethod, classmethod)):
            return (obj.__func__,)
        if isinstance(obj, property):
            return (obj.fget, obj.fset)
        if isinstance(obj, type):
            if is_library(obj.__module__):
                return ()
            self.classes.append(obj)
            return list(vars(obj).values())
        if isinstance(obj, dict):
            return list(obj.values())
        if isinstance(obj, (list, tuple, set, frozenset)):
            return obj
        if is_library(type(obj).__module__):
            return ()
        return (*type(obj).__mro__, *vars(obj).values()) if hasattr(obj, "__dict__") else ()


def own_values(function: types.FunctionType) -> dict[str, Any]:
    """What a function itself keeps between calls: default arguments and attributes."""
    defaults = function.__defaults__ or ()
    found = {f"default {i}": value for i, value in enumerate(defaults)}
    return found | dict(function.__kwdefaults__ or {}) | vars(function)


def variables(function: types.FunctionType) -> Iterator[tuple[str, Any, Any]]:
    """What a function reads from outside: (name, cell or globals dictionary, value); unset names are left out."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell, cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
    names = _names(function.__code__)
    for name in names:
        if name in function.__globals__:
            yield name, function.__globals__, function.__globals__[name]
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType) and not is_library(value.__name__):
            for member in names:
                if member in vars(value):
                    yield f"{name}.{member}", vars(value), vars(value)[member]


def _names(code: types.CodeType) -> tuple[str, ...]:
    """Names that code and the functions defined inside it look up."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_names(constant)))
    return tuple(found)
