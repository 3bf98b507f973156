"""Plain attributes that forward changes (counters, schedules, running values): from a trained copy back to the user's model (torch).

Only steps that plain PyTorch runs change any: a program that is recorded holds none.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from autoplan.program.torch_internals import MODULE_ATTRIBUTES

_SIMPLE = (bool, int, float, complex, str, bytes)
_CONTAINERS = (list, dict, set)

Attributes = dict[tuple[str, str], Any]
"""By module path and name, values of their own."""


def attributes_of(model: nn.Module) -> Attributes:
    """Numbers, texts, tensors that are no buffers, and containers of these, as they are now."""
    return {
        (path, name): _own(value)
        for path, module in model.named_modules()
        for name, value in _plain_ones(module)
    }


def bring_back(before: Attributes, trained: nn.Module, model: nn.Module) -> None:
    """Gives the user's model what training changed on its copy; lists, dicts and sets stay the objects they are.

    A tensor in the place of None is a cache of the copy's and stays there.

    Args:
        before: of the copy, before training.
        trained: the copy.
        model: the user's.
    """
    modules = dict(model.named_modules())
    for path, module in trained.named_modules():
        own = modules.get(path)
        if own is None:
            continue
        for name, value in _plain_ones(module):
            key = (path, name)
            if key in before and _same(before[key], value):
                continue
            old = vars(own).get(name)
            if old is None and _holds_tensors(value):
                continue
            _write(own, name, old, _own(value))


def _write(module: nn.Module, name: str, old: Any, value: Any) -> None:
    if isinstance(old, list) and isinstance(value, list):
        old[:] = value
    elif isinstance(old, dict | set) and type(old) is type(value):
        old.clear()
        old.update(value)
    else:
        setattr(module, name, value)


def _plain_ones(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if name not in MODULE_ATTRIBUTES and not name.startswith("__") and _is_plain(value):
            yield name, value


def _is_plain(value: Any) -> bool:
    if value is None or type(value) in _SIMPLE or type(value) is Tensor:
        return True
    if type(value) in (*_CONTAINERS, tuple):
        return all(map(_is_plain, _items(value)))
    return False


def _items(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)


def _holds_tensors(value: Any) -> bool:
    if type(value) in (*_CONTAINERS, tuple):
        return any(map(_holds_tensors, _items(value)))
    return isinstance(value, Tensor)


def _own(value: Any) -> Any:
    """A copy that shares nothing; tensors without their history."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(_own, value))
    return copy.copy(value)


def _same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)
