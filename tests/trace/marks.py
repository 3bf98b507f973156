"""Everything about a user's objects that tracing could change, as text by path (torch)."""

from __future__ import annotations

import builtins
import hashlib
import math
import random
import types
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_ATOMS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_NAMESPACES = (builtins, math, random, torch, torch.nn.functional, Tensor, torch.autograd.Function)
_HOOKS = nn.modules.module


class Marks:
    """The state of objects, of random generators and of what all code shares, at the moment that it is made.

    Told of every object inside: which object it is, what it holds and its type; of a tensor also where its memory is, its
    content to the bit, whether it was written, its gradient and where it comes from.
    """

    def __init__(self, **objects: Any) -> None:
        self.found: dict[str, Any] = {}
        self._seen: dict[int, Any] = {}
        for name, value in objects.items():
            self._look(name, value)
        self._generators()
        self._shared()

    def changes(self, **objects: Any) -> list[str]:
        """What is no longer as it was, by path."""
        now = Marks(**objects).found
        paths = [*self.found, *(path for path in now if path not in self.found)]
        return [
            f"{path}: {self.found.get(path)} -> {now.get(path)}"
            for path in paths
            if self.found.get(path) != now.get(path)
        ]

    def _generators(self) -> None:
        name, keys, *rest = np.random.get_state()
        self.found["torch's generator"] = _digest(torch.get_rng_state())
        self.found["NumPy's generator"] = (name, keys.tobytes(), *rest)
        self.found["Python's generator"] = random.getstate()

    def _shared(self) -> None:
        self.found["modes"] = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.mkldnn.enabled,
            torch.backends.mha.get_fastpath_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
            torch.get_num_threads(),
        )
        for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
            self.found[name] = list(getattr(_HOOKS, name))
        for space in _NAMESPACES:
            for name, value in vars(space).items():
                self.found[f"{space.__name__}.{name}"] = id(value)

    def _look(self, path: str, value: Any) -> None:
        if isinstance(value, _ATOMS):
            self.found[path] = repr(value)
            return
        self.found[path] = (type(value).__name__, id(value))
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # kept alive: nothing else gets its id
        if isinstance(value, Tensor):
            self._tensor(path, value)
        for name, part in _parts(value):
            self._look(f"{path}{name}", part)

    def _tensor(self, path: str, value: Tensor) -> None:
        form = (value.dtype, value.device, value.layout, value.requires_grad, value.is_leaf)
        self.found[f"{path}: form"] = (*form, id(value.grad_fn), value._version)
        if nn.parameter.is_lazy(value):
            return
        if value.layout == torch.strided:
            memory = (value.data_ptr(), tuple(value.shape), value.stride())
            self.found[f"{path}: memory"] = memory
        self.found[f"{path}: content"] = _digest(value)
        if value.is_leaf:
            self._look(f"{path}.grad", value.grad)


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    """What an object holds, by name."""
    if isinstance(value, dict):
        # by place, too: order is part of it
        yield from ((f"[{key!r}]", item) for key, item in value.items())
        yield ": order", repr([str(key) for key in value])
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{place}]", item) for place, item in enumerate(value))
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f".{name}", cell.cell_contents
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    if hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
        yield from ((f".{name}", item) for name, item in vars(value).items())
        yield ".__dict__: order", repr([*vars(value)])


def _digest(tensor: Tensor) -> str:
    dense = tensor.detach()
    if dense.layout != torch.strided:
        dense = dense.to_dense()
    dense = dense.resolve_conj().resolve_neg().contiguous().cpu()
    return hashlib.blake2b(dense.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
