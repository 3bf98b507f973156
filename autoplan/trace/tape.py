"""The steps of one pass as they happen, and the names of the tensors in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from autoplan.program.ir import (
    ConstantStep,
    Expression,
    GuardStep,
    OpStep,
    StateSlot,
    Step,
)
from autoplan.program.structure import map_leaves
from autoplan.program.torch_internals import (
    module_tensors,
    tree_flatten,
    tree_leaves,
)
from autoplan.trace.numbers import TrackedNumber, is_tracked, plain, track
from autoplan.trace.places import refuse, where
from autoplan.trace.values import Values


@dataclass(frozen=True, slots=True)
class Scope:
    """What the torch call in progress was given: the only things its ops' numbers may follow from."""

    numbers: list[TrackedNumber]
    tensors: list[Tensor]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step and the tracked numbers and tensors that were at hand when it was made."""

    step: Step
    numbers: tuple[TrackedNumber, ...]
    tensors: tuple[Tensor, ...]


class Tape:
    """The steps of one pass over ``inputs``.

    Args:
        module: what runs; its parameters and buffers get names first.
        inputs: the call's arguments, private to this pass.
        shadows: globals of modules whose builtins are shadowed.
        lenient: record for sizes and costs only: numbers are not followed, a tensor of unknown origin is a constant.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        inputs: tuple[Any, ...],
        shadows: list[dict[str, Any]],
        *,
        lenient: bool = False,
    ) -> None:
        self.steps: list[Recorded] = []
        self.values = Values()
        self.state: list[StateSlot] = []
        self.input_names: list[str] = []
        self.input_paths: list[str] = []
        self.unread_numbers: dict[str, Any] = {}
        """Numbers that torch itself read, until Python or an argument accounts for them."""
        self.wanted_shadows: list[dict[str, Any]] = []
        self.caught: str | None = None
        """Set when a torch call raised: if the pass goes on, the user's code caught it, and decided something."""
        self.running: list[str] = [""]
        """Paths of the modules that are running, the innermost last."""
        self.thread = threading.get_ident()
        """The one that records: hooks and stand-ins are seen by all."""
        self.lenient = lenient
        self._shadows = shadows
        self.muted = 0
        self.scope: Scope | None = None
        self.asked_grad: bool | None = None
        """The grad mode around an operator of autoplan's own: torch runs it without, as its backward is outside of it."""
        self._attributes: dict[int, StateSlot] = {}
        self.paths = {id(submodule): path for path, submodule in module.named_modules()}
        self._name_state(module)
        self.inputs = map_leaves(inputs, self._name_input)
        self.given = len(self.values.tensors)

    # ---- names

    def _name_state(self, module: torch.nn.Module) -> None:
        for path, submodule in module.named_modules():
            for key, tensor in module_tensors(submodule, "attribute").items():
                if isinstance(tensor, Tensor):
                    self._attributes[id(tensor)] = StateSlot("", path, "attribute", key)
        for kind in ("parameter", "buffer"):
            for path, submodule in module.named_modules():
                for key, tensor in module_tensors(submodule, kind).items():
                    if tensor is not None and self.values.of_object(tensor) is None:
                        name = self.values.new(tensor)
                        self.state.append(StateSlot(name, path, kind, key))

    def _name_input(self, leaf: Any, path: str) -> Any:
        self.input_paths.append(path)
        if isinstance(leaf, Tensor):
            if type(leaf) not in (Tensor, torch.nn.Parameter):
                refuse(f"input{path} is a {type(leaf).__name__}")
            self.input_names.append(self.values.new(leaf))
            return leaf
        name = f"a{len(self.input_names)}"
        self.input_names.append(name)
        if type(leaf) in (int, float) and not self.lenient:
            return track(self, name, leaf)
        self.guard(name, leaf)
        return leaf

    def name(self, tensor: Tensor) -> str:
        """The value a tensor is.

        An unknown one either reached the pass from outside, or the torch call in progress made it from Python data.
        """
        name = self.values.find(tensor)
        if name is None:
            given = self.scope is None or any(tensor is t for t in self.scope.tensors)
            name = self._from_outside(tensor) if given else self._constant(tensor)
        if self.values.of_object(tensor) is None:
            self.values.remember(tensor, name)
        return name

    def _from_outside(self, tensor: Tensor) -> str:
        slot = self._attributes.get(id(tensor))
        if slot is None:
            if self.lenient:
                return self._constant(tensor)
            refuse(
                f"a tensor of shape {tuple(tensor.shape)} is no input, parameter, buffer or attribute of the model, nor "
                "made in this pass; put it on the graph, or register it as a buffer"
            )
        name = self.values.new(tensor)
        self.state.append(StateSlot(name, slot.module, slot.kind, slot.key))
        return name

    def _constant(self, tensor: Tensor) -> str:
        name = self.values.new(tensor)
        self.add(ConstantStep(name, tensor.detach().clone(), None, where()))
        return name

    # ---- steps

    def add(self, step: Step) -> None:
        scope = self.scope or Scope([], [])
        self.steps.append(Recorded(step, tuple(scope.numbers), tuple(scope.tensors)))

    def guard(self, text: str, value: Any) -> None:
        """Notes a decision: ``text`` evaluated to ``value``."""
        self.add(GuardStep(Expression(text), value, where()))

    def wants_shadow(self, module_globals: dict[str, Any]) -> None:
        """Notes a module that took a plain value and whose builtins are not shadowed yet."""
        if all(module_globals is not known for known in self._shadows):
            self.wanted_shadows.append(module_globals)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        self.muted += 1
        try:
            yield
        finally:
            self.muted -= 1

    def _operand(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return Expression(self.name(argument))
        return Expression(argument.text) if is_tracked(argument) else argument

    def operation(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        opaque: bool,
    ) -> Any:
        """One step: runs the call and names what it returns."""
        with self.quiet():
            flat, spec = tree_flatten((args, kwargs))
            operands = tuple(self._operand(argument) for argument in flat)
            grad = torch.is_grad_enabled() if self.asked_grad is None else self.asked_grad
            if opaque:
                args, kwargs = plain_arguments(args), plain_arguments(kwargs)
            result = function(*args, **kwargs)
            whole = function is Tensor.tolist
            outs: list[str] = []
            numbers: list[tuple[str, Any]] = []
            for item in [result] if whole else tree_leaves(result):
                if isinstance(item, Tensor):
                    outs.append(self.values.result(item))
                elif item is None:
                    outs.append("_")
                else:
                    outs.append(f"i{len(self.steps)}_{len(outs)}")
                    numbers.append((outs[-1], item))
            self.add(
                OpStep(
                    func=function,
                    args=operands,
                    spec=spec,
                    outs=tuple(outs),
                    sequence=type(result)
                    if isinstance(result, (list, tuple)) and not whole
                    else None,
                    grad=grad,
                    opaque=opaque,
                    module=self.running[-1],
                    where=where(),
                )
            )
            if not whole:
                for name, value in numbers:
                    self._number_read(name, value)
        return result

    def _number_read(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.guard(name, value)
            return
        self.unread_numbers[name] = value
        if self.scope is not None and not self.lenient:
            self.scope.numbers.append(track(self, name, value))


def plain_arguments(obj: Any) -> Any:
    """A structure of arguments with the values of its tracked numbers."""
    return map_leaves(obj, lambda leaf, _path: plain(leaf))
