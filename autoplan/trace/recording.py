"""One pass recorded: the modes and stand-ins around it, and what is kept of it."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from autoplan.program.ir import Expression, StateSlot
from autoplan.program.modes import portable
from autoplan.program.records import flatten
from autoplan.program.structure import clone_tensors
from autoplan.program.torch_internals import (
    BYPASS_MODES,
    FUNCTION_APPLY,
    TorchDispatchMode,
    module_tensors,
    override_checks,
)
from autoplan.trace.model_state import ModelState
from autoplan.trace.numbers import is_tracked
from autoplan.trace.places import RefusalError, refuse
from autoplan.trace.recorder import Recorder
from autoplan.trace.shadows import Replacement, patched, stand_ins
from autoplan.trace.sparse_forms import sparse_forms
from autoplan.trace.tape import Recorded
from autoplan.trace.typed_layers import whole_forms
from autoplan.trace.values import Values


@dataclass(frozen=True, slots=True)
class Recording:
    """One pass.

    Attributes:
        steps: in order; input_names, input_paths, state: as in `Program`; values: names, tensors and shapes.
        outputs, out_spec: as in `Program`; unread_numbers: numbers that torch read itself and Python never took.
    """

    steps: tuple[Recorded, ...]
    input_names: tuple[str, ...]
    input_paths: tuple[str, ...]
    state: tuple[StateSlot, ...]
    values: Values
    outputs: tuple[Any, ...]
    out_spec: Any
    unread_numbers: dict[str, Any]


def record(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    shadows: list[dict[str, Any]],
    state: ModelState,
) -> Recording:
    """Runs ``module`` once on a copy of ``inputs``.

    Where plain values were taken from tracked numbers, builtins are shadowed in the calling module (added to
    ``shadows``) and the pass is recorded again from the same state.

    Raises:
        RefusalError: the pass does what no program can repeat.
    """
    while True:
        recorder = Recorder(module, clone_tensors(inputs), shadows)
        before = state.take()
        generators = _python_generators()
        with (
            patched(_stand_ins(recorder, shadows)),
            portable(),
            _module_paths(recorder),
            Operators(recorder),
            FunctionCalls(recorder),
        ):
            result = module(*recorder.inputs)
        if _python_generators() != generators:
            raise RefusalError("forward draws from Python's or NumPy's random generator")
        if recorder.caught:
            raise RefusalError(recorder.caught)
        if not recorder.wanted_shadows:
            return _finish(module, recorder, result)
        for wanted in recorder.wanted_shadows:
            if all(wanted is not known for known in shadows):
                shadows.append(wanted)
        state.put(before)


def record_leniently(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Recording:
    """One pass with plain numbers, whatever the model does: good for sizes and costs, not for running."""
    recorder = Recorder(module, clone_tensors(inputs), [], lenient=True)
    with portable(), _module_paths(recorder), Operators(recorder):
        result = module(*recorder.inputs)
    return _finish(module, recorder, result, lenient=True)


def _finish(
    module: torch.nn.Module, recorder: Recorder, result: Any, *, lenient: bool = False
) -> Recording:
    for slot in recorder.state:
        owner = module.get_submodule(slot.module)
        now = module_tensors(owner, slot.kind).get(slot.key)
        if not lenient and (now is None or recorder.values.of_object(now) != slot.name):
            raise RefusalError(f"forward rebinds {slot.path}")
    flat, out_spec = flatten(result)
    allowed = (Tensor, int, float, str, type(None))
    unknown = [item for item in flat if not isinstance(item, allowed)]
    if unknown and not lenient:
        raise RefusalError(f"forward returns a {type(unknown[0]).__name__}")
    return Recording(
        steps=tuple(recorder.steps),
        input_names=tuple(recorder.input_names),
        input_paths=tuple(recorder.input_paths),
        state=tuple(recorder.state),
        values=recorder.values,
        outputs=tuple(_output(recorder, item) for item in flat),
        out_spec=out_spec,
        unread_numbers=recorder.unread_numbers,
    )


def _output(recorder: Recorder, item: Any) -> Any:
    if isinstance(item, Tensor):
        return Expression(recorder.name(item))
    return Expression(item.text) if is_tracked(item) else item


def _python_generators() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()  # the program must not draw from it
    return random.getstate(), name, np.asarray(keys).tobytes(), *rest


def _stand_ins(recorder: Recorder, shadows: list[dict[str, Any]]) -> list[Replacement]:
    """What is replaced while a pass is recorded."""
    found = stand_ins(shadows)
    found += [(owner, name, lambda *_: False) for owner, name in override_checks()]
    found += [
        (owner, name, _here(recorder, _refusing(name), getattr(owner, name)))
        for owner, name in BYPASS_MODES
    ]
    from_numpy = functools.partial(_call_recorded, recorder, torch.from_numpy)
    found.append((torch, "from_numpy", _here(recorder, from_numpy, torch.from_numpy)))

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        function = _here(recorder, recorder.apply, FUNCTION_APPLY)
        return function(cls, *args, **kwargs)

    found.append((torch.autograd.Function, "apply", classmethod(apply)))
    standing = functools.partial(_here, recorder)
    found += [*whole_forms(standing), *sparse_forms(recorder, standing)]
    return found


def _here(
    recorder: Recorder, stand_in: Callable[..., Any], original: Callable[..., Any]
) -> Callable[..., Any]:
    """The stand-in for the thread that records; the others go on with the original."""

    def call(*args: Any, **kwargs: Any) -> Any:
        own = recorder.thread == threading.get_ident()
        return (stand_in if own else original)(*args, **kwargs)

    return call


def _call_recorded(recorder: Recorder, function: Callable[..., Any], *args: Any) -> Any:
    return recorder.call(function, args, {})


def _refusing(name: str) -> Callable[..., Any]:
    def stand_in(*_args: Any, **_kwargs: Any) -> Any:
        refuse(f"{name} inside forward")

    return stand_in


@contextmanager
def _module_paths(recorder: Recorder) -> Iterator[None]:
    """Keeps ``recorder.running`` up to date through hooks that every module's call passes."""

    def enter(module: torch.nn.Module, _args: Any) -> None:
        if recorder.thread == threading.get_ident():
            recorder.running.append(recorder.paths.get(id(module), recorder.running[-1]))

    def leave(_module: torch.nn.Module, _args: Any, _result: Any) -> None:
        if recorder.thread == threading.get_ident():
            recorder.running.pop()

    entering = register_module_forward_pre_hook(enter)
    leaving = register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()


class FunctionCalls(TorchFunctionMode):
    """Hands Python's torch calls to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self._recorder.call(func, args, kwargs or {})


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands ATen ops to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self._recorder.operator(func, args, kwargs or {})
