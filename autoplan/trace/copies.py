"""A private copy of the user's model to record, and the promise that nothing of the user's is touched (torch)."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from autoplan.errors import TraceError


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put torch's (of the CPU, where copies live), NumPy's and Python's global random state back at the end."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
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
    _refuse_wrappers(model)
    memo: dict[int, object] = {}
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


def _refuse_wrappers(model: nn.Module) -> None:
    wrapped = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    if wrapped or hasattr(model, "_orig_mod"):
        inner = "module" if wrapped else "_orig_mod"
        raise TraceError(
            f"the model is wrapped in {type(model).__name__}; give the model itself (model.{inner})"
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
