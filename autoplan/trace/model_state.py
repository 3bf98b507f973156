"""What a forward pass may change: the module's tensors and attributes, and the Python state of the user's code."""

from __future__ import annotations

import copy
import hashlib
import pickle
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autoplan.program.torch_internals import MODULE_ATTRIBUTES
from autoplan.trace.numbers import plain
from autoplan.trace.user_code import UserCode, is_library, own_values, variables

_SIMPLE = (type(None), bool, int, float, complex, str, bytes)
_PICKLED = frozenset({"random", "itertools", "collections", "numpy"})
_DEPTH = 3


@dataclass(frozen=True, slots=True)
class SavedState:
    """A moment's state: tensors with their values, containers with shallow copies, variables with their bindings."""

    tensors: list[tuple[Tensor, Tensor]]
    containers: list[tuple[Any, Any]]
    variables: list[tuple[Any, str, Any]]


class ModelState:
    """Takes, puts back, perturbs and compares the state of one module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def _tensors(self) -> list[Tensor]:
        return [*self._module.parameters(), *self._module.buffers()]

    def take(self) -> SavedState:
        """The state now."""
        held = _Held()
        for submodule in self._module.modules():
            held.look(vars(submodule))
        # Tensors that only closures and globals hold stay out: a pass that meets one is refused before it writes it.
        tensors = [*self._tensors(), *held.tensors]
        bindings = self._look_at_code(held)
        saved = [(tensor, tensor.detach().clone()) for tensor in tensors]
        return SavedState(saved, list(held.containers.values()), bindings)

    def _look_at_code(self, held: _Held) -> list[tuple[Any, str, Any]]:
        """Notes what the user's code holds; the bindings of its plain variables."""
        code = UserCode(self._module)
        bindings: list[tuple[Any, str, Any]] = []
        for function in code.functions:
            for name, place, value in variables(function):
                if isinstance(value, _SIMPLE):
                    bindings.append((place, name.rpartition(".")[2], value))
                else:
                    held.look(value)
            held.look(vars(function))
            for value in own_values(function).values():
                held.look(value)
        for cls in code.classes:
            for name, value in vars(cls).items():
                if isinstance(value, _SIMPLE) and not name.startswith("__"):
                    bindings.append((cls, name, value))
        return bindings

    def put(self, saved: SavedState) -> None:
        """Puts a state back, bit for bit."""
        with torch.no_grad():
            for tensor, value in saved.tensors:
                tensor.copy_(value)
        for container, content in saved.containers:
            container.clear()
            container.extend(content) if isinstance(container, list) else container.update(content)
        for place, name, value in saved.variables:
            if isinstance(place, dict):
                place[name] = value
            elif isinstance(place, types.CellType):
                place.cell_contents = value
            elif vars(place).get(name) is not value:
                setattr(place, name, value)

    @contextmanager
    def kept(self) -> Iterator[SavedState]:
        """Puts back, at the end, the state at the beginning."""
        start = self.take()
        try:
            yield start
        finally:
            self.put(start)

    @contextmanager
    def code_kept(self) -> Iterator[None]:
        """Puts back, at the end, what the user's code holds outside the module; the module's own state stays as it becomes.

        Of tensors only those that were written are put back.
        """
        held = _Held()
        bindings = self._look_at_code(held)
        saved = [(tensor, tensor.detach().clone(), tensor._version) for tensor in held.tensors]
        try:
            yield
        finally:
            written = [(t, value) for t, value, version in saved if t._version != version]
            self.put(SavedState(written, list(held.containers.values()), bindings))

    def perturb(self, seed: int) -> None:
        """Moves parameters and buffers a little, so that no value of them looks like a constant.

        Positive values stay positive (running variances).
        """
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for tensor in self._tensors():
                if tensor.is_floating_point():
                    factor = 1 + 0.05 * torch.rand(tensor.shape, generator=generator)
                    offset = 1e-3 * torch.rand(tensor.shape, generator=generator)
                    tensor.mul_(factor.to(tensor.device)).add_(offset.to(tensor.device))

    def user_globals(self) -> list[dict[str, Any]]:
        """Globals of the modules that the user's functions were defined in, each once."""
        functions = UserCode(self._module).functions
        found = {id(function.__globals__): function.__globals__ for function in functions}
        return list(found.values())

    def python(self) -> dict[str, str]:
        """Text of every number and container that Python code may keep from pass to pass, by where it lives."""
        found: dict[str, str] = {}

        def look(where: str, items: Mapping[str, Any]) -> None:
            for name, value in list(items.items()):
                if not name.startswith("__"):
                    found[f"{where}.{name}" if where else name] = repr(_frozen(value))

        for path, submodule in self._module.named_modules():
            attributes = vars(submodule)
            look(path, {k: v for k, v in attributes.items() if k not in MODULE_ATTRIBUTES})
        code = UserCode(self._module)
        for cls in code.classes:
            look(cls.__qualname__, vars(cls))
        for function in code.functions:
            where = f"{function.__module__}.{function.__qualname__}"
            look(where, {name: value for name, _, value in variables(function)})
            look(where, own_values(function))
        return found


class _Held:
    """Plain tensors and plain containers found in objects, each once, with the containers' present content."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.containers: dict[int, tuple[Any, Any]] = {}

    def look(self, value: Any) -> None:
        """Notes ``value`` and what it holds."""
        if type(value) is Tensor:
            self.tensors.append(value)
        elif type(value) in (list, dict, set):
            if id(value) not in self.containers:
                self.containers[id(value)] = value, copy.copy(value)
                for item in list(value.values() if isinstance(value, dict) else value):
                    self.look(item)
        elif _is_user_object(value):
            self.look(vars(value))


def _is_user_object(value: Any) -> bool:
    if isinstance(value, (torch.nn.Module, Tensor, type, types.ModuleType, types.FunctionType)):
        return False
    return hasattr(value, "__dict__") and not is_library(type(value).__module__)


def _frozen(value: Any, depth: int = _DEPTH) -> Any:
    """A value as plain data that compares by content; what holds no state of its own, as its type's name."""
    value = plain(value)
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, np.ndarray):
        return value.shape, hashlib.blake2b(value.tobytes()).hexdigest()
    if depth and isinstance(value, (list, tuple, set)):
        return type(value).__name__, [_frozen(item, depth - 1) for item in value]
    if depth and isinstance(value, dict):
        return [(str(key), _frozen(item, depth - 1)) for key, item in value.items()]
    code = (Tensor, torch.nn.Module, type, types.ModuleType, types.FunctionType)
    if depth and hasattr(value, "__dict__") and not isinstance(value, code):
        return _frozen(vars(value), depth - 1)
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return frame and (frame.f_lasti, _frozen(frame.f_locals, min(depth, 1)))
    package = type(value).__module__.split(".")[0]
    if isinstance(value, Iterator) or (package in _PICKLED and not isinstance(value, type)):
        return _pickled(value)
    return type(value).__name__


def _pickled(value: Any) -> Any:
    """The content of an iterator or a generator of random numbers; its type's name where it cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pickling of itertools
        try:
            return pickle.dumps(value)
        except (TypeError, AttributeError, pickle.PicklingError):
            return type(value).__name__
