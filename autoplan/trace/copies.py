"""A private copy of the user's model to record, and the promise that nothing of the user's is touched (torch)."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

from autoplan.errors import TraceError
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.torch_internals import has_gradient_hooks


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put torch's (of the CPU, where copies live), NumPy's and Python's global random state back at the end."""
    with EXCLUSIVE, python_generators_kept(), torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def python_generators_kept() -> Iterator[None]:
    """Put NumPy's and Python's global random state back at the end: packages may draw from them when they are imported."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def copy_model(model: nn.Module, *, training: bool) -> nn.Module:
    """A deep copy on the CPU, in the wanted mode, without caches of cached convolutions.

    In training, submodules that the user froze with ``eval()`` stay so where the model as a whole is in training mode.

    Raises:
        TraceError: the model is wrapped or compiled, or cannot be copied.
    """
    check_model(model)
    memo: dict[int, object] = {}
    for buffer in model.buffers():
        # torch copies parameters without a size, but not buffers
        if is_lazy(buffer):
            data = buffer.data
            empty = UninitializedBuffer(device=data.device, dtype=data.dtype)  # type: ignore[call-arg]
            memo[id(buffer)] = empty
    for module in model.modules():
        for value in vars(module).values():
            # Activations that a forward pass left on the model are no leaves, which deepcopy refuses.
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        copied = copy.deepcopy(model, memo)
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}), and planning works on a copy; "
            "remove what copy.deepcopy cannot copy from the model"
        ) from error
    copied.cpu()
    if not training:
        copied.eval()
    elif not copied.training:
        copied.train()
    _clear_caches(copied)
    return copied


def lazy_parameters(model: nn.Module) -> tuple[str, ...]:
    """Names of parameters and buffers whose shape the first forward pass decides."""
    named = (*model.named_parameters(), *model.named_buffers())
    return tuple(name for name, value in named if is_lazy(value))


def size_lazy(model: nn.Module, sized: nn.Module) -> None:
    """Gives lazy layers of a model the sizes and values that they have in a copy of it, as a first forward would.

    Parameters stay the same objects, so that an optimizer which holds them goes on working.

    Args:
        model: the user's, changed in place.
        sized: a copy from `copy_model` that has run.
    """
    for path, module in model.named_modules():
        twin = sized.get_submodule(path)
        own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        lazy = [(name, value) for name, value in own if is_lazy(value)]
        if not lazy or any(is_lazy(getattr(twin, name)) for name, _ in lazy):
            continue
        for name, value in lazy:
            wanted = getattr(twin, name).detach()
            value.materialize(wanted.shape, dtype=wanted.dtype)
            with torch.no_grad():
                value.copy_(wanted)
        _become(module, twin)


def _become(module: nn.Module, twin: nn.Module) -> None:
    """What a first forward changes on a lazy layer: its class, its sizes, and the hooks that waited for it."""
    for name, value in list(vars(module).items()):
        if name not in vars(twin):
            if hasattr(value, "remove"):
                value.remove()
            delattr(module, name)
        elif isinstance(vars(twin)[name], int) and name != "training":
            vars(module)[name] = vars(twin)[name]
    module.__class__ = type(twin)


def unwrapped(model: nn.Module, *, tell: bool = False) -> nn.Module:
    """The model inside `DistributedDataParallel` or `DataParallel`; any other as it is.

    Args:
        model: the user's.
        tell: warn that the wrapper is left out, as plans share the work out themselves.
    """
    wrappers: list[str] = []
    while isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        wrappers.append(type(model).__name__)
        model = model.module
    if wrappers and tell:
        warnings.warn(
            f"the model is wrapped in {' and '.join(wrappers)}; autoplan plans for the model inside and shares its work out "
            "itself",
            stacklevel=3,
        )
    return model


def check_model(model: nn.Module) -> None:
    """Raises TraceError where the model is none, is wrapped or compiled, or has what a copy would lose."""
    if not isinstance(model, nn.Module):
        given = (
            f"the class {model.__name__}"
            if isinstance(model, type)
            else f"a {type(model).__name__}"
        )
        raise TraceError(f"the model is {given}; give an instance of a torch.nn.Module")
    wrapped = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    if wrapped or hasattr(model, "_orig_mod"):
        inner = "module" if wrapped else "_orig_mod"
        raise TraceError(
            f"the model is wrapped in {type(model).__name__}; give the model itself (model.{inner})"
        )
    for name, parameter in model.named_parameters():
        if not is_lazy(parameter) and has_gradient_hooks(parameter):
            raise TraceError(
                f"{name!r} has a hook on its gradient, which copies of the model do not have; remove the hook, "
                "or change the gradient in the model or the loss"
            )
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise TraceError(
                f"{name or 'the model'} is a TorchScript module, which cannot be recorded; give the Python module"
            )


def _clear_caches(model: nn.Module) -> None:
    """Make cached convolutions compute what they would cache: on one graph that is the same function."""
    for module in model.modules():
        if isinstance(getattr(module, "cached", None), bool):
            vars(module)["cached"] = False
            for name in vars(module):
                if name.startswith("_cached_"):
                    vars(module)[name] = None
