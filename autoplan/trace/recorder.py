"""What Python code asks of tensors while a pass is recorded: calls, sizes, reads, properties.

Every number that Python takes is tracked, every decision is a guard.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from autoplan.program.ir import OpStep, SizeStep
from autoplan.program.structure import leaves
from autoplan.program.torch_internals import (
    FUNCTION_APPLY,
    METADATA_OPERATORS,
    OWN_BACKWARDS,
    stored_entries,
    tree_leaves,
)
from autoplan.trace.calls import (
    CONTENT,
    COUNTS,
    FORBIDDEN,
    OPAQUE,
    PROPERTIES,
    READS,
    REVERSIBLE,
    SIZES,
    content_read_in_c,
    number_of_classes,
    writes_rows,
)
from autoplan.trace.numbers import is_tracked, plain, track
from autoplan.trace.places import refuse, where
from autoplan.trace.sparse import UNANSWERED, SparseTensors
from autoplan.trace.tape import Scope, Tape, plain_arguments


class Recorder(Tape):
    """A tape that answers torch's modes: a function mode's calls and a dispatch mode's operators."""

    def __init__(
        self,
        module: torch.nn.Module,
        inputs: tuple[Any, ...],
        shadows: list[dict[str, Any]],
        *,
        lenient: bool = False,
    ) -> None:
        super().__init__(module, inputs, shadows, lenient=lenient)
        self._sizes: set[str] = set()
        self._marked_leaves: set[str] = set()
        self.sparse = SparseTensors(self)

    def operator(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """One ATen op, from the dispatch mode."""
        if self.muted or function in METADATA_OPERATORS:
            return function(*args, **kwargs)
        return self.operation(function, args, kwargs, opaque=False)

    def apply(self, cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        """A custom autograd.Function: one opaque step, so that its backward is kept."""
        if self.muted or self.lenient:
            return FUNCTION_APPLY(cls, *args, **kwargs)
        if (cls.__module__, cls.__name__) == REVERSIBLE:
            return _forward_of_reversible(*args)
        if cls.__name__.startswith(OWN_BACKWARDS):
            self.asked_grad = torch.is_grad_enabled()
            try:
                return FUNCTION_APPLY(cls, *args, **kwargs)
            finally:
                self.asked_grad = None
        code = (torch.nn.Module, types.FunctionType, types.MethodType)
        if any(isinstance(argument, code) for argument in tree_leaves((args, kwargs))):
            refuse(f"{cls.__name__}.apply is given Python code")
        return self.operation(_apply_of(cls), args, kwargs, opaque=True)

    # ---- what Python asks of tensors

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """One torch call made by Python code, from the function mode."""
        if self.muted:
            return function(*args, **kwargs)
        answer = self.sparse.answer(function, args, kwargs)
        if answer is not UNANSWERED:
            return answer
        if function in SIZES:
            return self._size(function, args[0], args[1:] or tuple(kwargs.values()))
        if function in FORBIDDEN:
            refuse(f"{function.__qualname__} inside forward")
        if function in CONTENT:
            with self.quiet():
                self.guard(self.name(args[0]), args[0].detach().clone())
                return function(*args, **kwargs)
        if function in PROPERTIES:
            self._property(function, args, kwargs)
        with self.quiet():
            read = content_read_in_c(function, args, kwargs)
            if read is not None:
                self.guard(self.name(read), read.detach().clone())
        if writes_rows(function, args):
            self.call(Tensor.index_put_, (args[0], (args[1],), args[2]), {})
            return None
        if function is one_hot and (plain(number_of_classes(args, kwargs)) or -1) > 0:
            return self._one_hot(args[0], plain(number_of_classes(args, kwargs)))
        given = leaves((args, kwargs))
        if any(is_tracked(leaf) and leaf.log is not self for leaf in given):
            refuse("a number kept from an earlier pass")
        if function in OPAQUE:
            result = self.operation(function, args, kwargs, opaque=True)
            return (
                self._nested(self._last_output(), result) if function is Tensor.tolist else result
            )
        return self._ordinary(function, args, kwargs, given)

    def ordinary(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that needs nothing but to be recorded."""
        return self._ordinary(function, args, kwargs, leaves((args, kwargs)))

    def _ordinary(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: list[Any],
    ) -> Any:
        outer = self.scope
        self.scope = Scope(
            numbers=[leaf for leaf in given if is_tracked(leaf)],
            tensors=[leaf for leaf in given if isinstance(leaf, Tensor)],
        )
        try:
            result = function(*plain_arguments(args), **plain_arguments(kwargs))
            if function is Tensor.__iter__:
                result = list(result)
            self._bind(function, result)
        except Exception as error:
            self.caught = f"{where()}: forward catches {type(error).__name__} of a torch call"
            raise
        finally:
            self.scope = outer
        if function in READS and isinstance(self.steps[-1].step, OpStep):
            result = self._read(READS[function], result)
        return iter(result) if function is Tensor.__iter__ else result

    def _one_hot(self, labels: Tensor, classes: int) -> Any:
        """``one_hot`` of a given width as comparisons: torch's own reads the labels' range past what can be recorded."""
        inside = self.call(
            Tensor.logical_and,
            (self.call(Tensor.ge, (labels, 0), {}), self.call(Tensor.lt, (labels, classes), {})),
            {},
        )
        if not self.call(Tensor.__bool__, (self.call(Tensor.all, (inside,), {}),), {}):
            return one_hot(labels, classes)  # raises
        column = self.call(Tensor.unsqueeze, (labels, -1), {})
        names = self.call(torch.arange, (classes,), {"device": labels.device})
        return self.call(Tensor.to, (self.call(Tensor.eq, (column, names), {}), torch.int64), {})

    def _read(self, conversion: str, value: Any) -> Any:
        """Python reads the one number that the last op returned; a bool is a guard already."""
        name = self._last_output()
        del self.unread_numbers[name]
        if conversion == "bool":
            self.guard(f"bool({name})", value)
            return value
        if conversion == "item":
            return track(self, name, value)
        return track(self, f"{conversion}({name})", value).escape()

    def _last_output(self) -> str:
        step = self.steps[-1].step
        assert isinstance(step, OpStep)
        return step.outs[0]

    def _property(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        text = f"{self.name(args[0])}.{PROPERTIES[function]}"
        if PROPERTIES[function] == "requires_grad":
            self.guard(text, args[0].requires_grad)
            return
        rest = [repr(plain(argument)) for argument in args[1:]]
        rest += [f"{key}={plain(argument)!r}" for key, argument in kwargs.items()]
        with self.quiet():
            self.guard(
                f"{text}({', '.join(rest)})",
                function(*plain_arguments(args), **plain_arguments(kwargs)),
            )

    def _size(self, function: Callable[..., Any], tensor: Tensor, dims: tuple[Any, ...]) -> Any:
        name = self.name(tensor)
        rank = tensor.dim()
        if function in COUNTS:
            what = COUNTS[function]
            value = stored_entries(tensor) if what == "nnz" else tensor.numel()
            prefix = "z" if what == "nnz" else "n"
            return self._size_number(
                SizeStep(f"{prefix}{name[1:]}", name, None, what, where()), value
            )

        def along(dim: int) -> Any:
            place = dim % rank if rank else dim
            step = SizeStep(f"s{name[1:]}_{place}", name, place, "size", where())
            return self._size_number(step, tensor.size(dim))

        if function is Tensor.__len__:
            return along(0).escape() if rank else len(tensor)
        if dims:
            return along(plain(dims[0]))
        return torch.Size([along(dim) for dim in range(rank)])

    def _size_number(self, step: SizeStep, value: int) -> Any:
        if step.name not in self._sizes:
            self._sizes.add(step.name)
            self.add(step)
        return track(self, step.name, value)

    def _nested(self, text: str, value: Any) -> Any:
        """A list of numbers that Python got from a tensor, each one tracked."""
        if not isinstance(value, list):
            return track(self, text, value)
        self.guard(f"len({text})", len(value))
        return [self._nested(f"{text}[{i}]", item) for i, item in enumerate(value)]

    def _bind(self, function: Callable[..., Any], result: Any) -> None:
        """Names what a torch call returned: its ops' outputs, or tensors made from Python data."""
        for tensor in leaves(result):
            if isinstance(tensor, Tensor):
                self._bind_tensor(function, tensor)

    def _bind_tensor(self, function: Callable[..., Any], tensor: Tensor) -> None:
        with self.quiet():
            unknown = self.values.find(tensor) is None
            if unknown and self.scope is not None and self.scope.tensors:
                refuse(f"a tensor of unknown origin from {function}")
            name = self.name(tensor)
            made_here = int(name[1:]) >= self.given and name not in self._marked_leaves
            new_leaf = made_here and tensor.is_leaf and tensor.requires_grad
        if new_leaf:  # torch.zeros(..., requires_grad=True)
            self._marked_leaves.add(name)
            self.operation(Tensor.requires_grad_, (tensor,), {}, opaque=True)


def _forward_of_reversible(
    forward: Callable[..., Any], _inverse: Any, _passes: int, inputs: int, *given: Any
) -> tuple[Any, ...]:
    """What PyG's `InvertibleFunction` computes: it differs from its forward function in the memory it keeps."""
    outputs = forward(*given[:inputs])
    return outputs if isinstance(outputs, tuple) else (outputs,)


@functools.cache
def _apply_of(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    return functools.partial(FUNCTION_APPLY, cls)
