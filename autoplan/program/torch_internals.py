"""Every private name of torch that autoplan uses, one place, each with its reason. Checked against torch 2.13.

Nothing else in autoplan may touch an underscored name of torch; a new torch release is ported by making this file work.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import torch
import torch._functorch.apis as functorch_apis
import torch._functorch.eager_transforms as eager_transforms
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import register_pytree_node as register_pytree_node
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_unflatten as tree_unflatten

TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep
"""Where torch's own Python code lies; its frames are not the user's."""

MODULE_ATTRIBUTES = frozenset(vars(torch.nn.Module())) - {"training"}
"""What `nn.Module.__init__` sets: bookkeeping of torch, not state of the user."""

stored_entries: Callable[[Tensor], int] = Tensor._nnz
"""Number of stored entries of a sparse tensor."""

SPARSE_PRODUCT: Callable[..., Any] = torch._C._sparse._sparse_mm  # type: ignore[attr-defined]
"""`torch.sparse.mm`, as function modes see it."""

pointers_of: Callable[[Tensor, int], Tensor] = torch._convert_indices_from_coo_to_csr
"""Ascending row numbers and how many rows there are -> where each row's entries begin."""

STORED_ENTRIES = "_nnz()"
"""The same in generated source."""

METADATA_OPERATORS = frozenset(
    {
        torch.ops.aten._nnz.default,
        torch.ops.aten.sparse_dim.default,
        torch.ops.aten.dense_dim.default,
    }
)
"""Operators that only look at a tensor's description, issued by torch itself."""

READ_NUMBER = torch.ops.aten._local_scalar_dense.default
"""The operator below `.item()`."""

DISPENSABLE = frozenset(
    {READ_NUMBER, torch.ops.aten.detach.default, torch.ops.aten.empty.memory_format}
)
"""Operators that torch issues for its own ends and that do nothing when their result is not used."""

SLICE = torch.ops.aten.slice.Tensor
SPLIT = torch.ops.aten.split.Tensor

_DATA: Any = Tensor.data
_REQUIRES_GRAD: Any = Tensor.requires_grad
_GRAD: Any = Tensor.grad
_SHAPE: Any = Tensor.shape

READ_SHAPE: Callable[..., Any] = _SHAPE.__get__
READ_DATA: Callable[..., Any] = _DATA.__get__
READ_REQUIRES_GRAD: Callable[..., Any] = _REQUIRES_GRAD.__get__
"""Reading ``shape``, ``data`` and ``requires_grad``, as a function mode sees it."""

SET_OR_READ_GRADIENT: tuple[Callable[..., Any], ...] = (
    _DATA.__set__,
    _REQUIRES_GRAD.__set__,
    _GRAD.__get__,
    _GRAD.__set__,
)
"""Setting ``data``, ``requires_grad`` or ``grad``, and reading ``grad``."""

BYPASS_MODES: tuple[tuple[Any, str], ...] = (
    (torch.jit.ScriptFunction, "__call__"),
    (functorch_apis, "vmap_impl"),
    (eager_transforms, "grad_increment_nesting"),
    (eager_transforms, "jvp_increment_nesting"),
)
"""Entries to code that runs past function modes: TorchScript and `torch.func`."""

READS_CONTENT: dict[Callable[..., Any], int] = {
    torch.lstm: 1,
    torch.gru: 1,
    torch.rnn_tanh: 1,
    torch.rnn_relu: 1,
    torch._VF._pad_packed_sequence: 1,
    torch.tensor_split: 1,
    Tensor.tensor_split: 1,
    torch.sparse_coo_tensor: 0,
}
"""Functions whose C++ code reads the content of this argument past the dispatcher."""

FUNCTION_APPLY: Callable[..., Any] = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
"""`autograd.Function.apply` before it is bound to a class."""


OWN_BACKWARDS = "GeneratedBackwardFor_autoplan_"
"""How torch names the `autograd.Function` of an operator that autoplan registered: the operator is what workers can call."""


def override_checks() -> list[tuple[Any, str]]:
    """The tests by which `torch.nn.functional` hands a call to a function mode whole.

    Answered with False, its functions run their Python bodies, and a mode sees the calls inside them.
    """
    modules = (torch.nn.functional, torch.functional)
    return [(m, k) for m in modules for k in vars(m) if k.startswith("has_torch_function")]


def import_compiler() -> None:
    """Imports what torch imports on the first call of a compiler function, and which keeps references to torch's functions.

    Must come before any of them is replaced; workers never need it, and it takes a second.
    """
    importlib.import_module("torch._dynamo")


def storage_id(tensor: Tensor) -> int:
    """Identity of the memory a strided tensor lies in; equal for views, distinct for empty tensors too."""
    return int(tensor.untyped_storage()._cdata)


def is_operator(func: Any) -> TypeGuard[torch._ops.OpOverload]:
    """Whether it is an operator overload: one that torch, or a library registered with it, dispatches."""
    return isinstance(func, torch._ops.OpOverload)


def operator_name(func: Any) -> str | None:
    """``aten.mm.default`` for an operator overload, None for any other callable."""
    return str(func) if is_operator(func) else None


def callable_name(func: Any) -> str:
    """A name for a recorded callable: ``aten.mm.default``; ``python.Reversal.apply`` for a function of Python."""
    overload = operator_name(func)
    if overload is not None:
        return overload
    # `Function.apply` of a class is recorded as a partial call with the class
    owner = next((given for given in getattr(func, "args", ()) if isinstance(given, type)), None)
    if owner is not None:
        return f"python.{owner.__qualname__}.apply"
    return f"python.{getattr(func, '__qualname__', type(func).__name__)}"


def operator(name: str) -> Callable[..., Any]:
    """The callable behind an overload's name, as quick to call as torch allows (its Python wrapper costs a microsecond)."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found._op  # type: ignore[no-any-return]


def schema(func: Any) -> Any:
    """An overload's schema: ``name``, ``arguments`` (each with ``name``, ``type``, ``kwarg_only``, defaults), ``returns``."""
    return func._schema


_PLACES = frozenset({"dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "dimension", "axis"})
"""How operators' schemas call the places of dimensions."""


def may_hold_sizes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments of a call that are no places of dimensions; all of them where the callable has no schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return [*args, *kwargs.values()]
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}  # noqa: B905
    return [value for name, value in given.items() if name not in _PLACES]


def written_arguments(func: Any) -> tuple[bool, ...]:
    """Per argument of an operator's schema, whether the call writes it. Empty for other callables."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return ()
    return tuple(
        bool(argument.alias_info and argument.alias_info.is_write) for argument in schema.arguments
    )


def output_size_follows_content(func: Any) -> bool:
    """The operator's output shape depends on what its inputs hold (``nonzero``, a mask index)."""
    return torch.Tag.dynamic_output_shape in getattr(func, "tags", ())


def module_tensors(module: torch.nn.Module, kind: str) -> dict[str, Any]:
    """The dictionary in which a module keeps its own tensors of a kind: ``parameter``, ``buffer`` or ``attribute``."""
    if kind == "attribute":
        return vars(module)
    return module._parameters if kind == "parameter" else module._buffers


def has_backward_hooks(module: torch.nn.Module) -> bool:
    """The user registered a full or a legacy backward hook, or a backward pre-hook."""
    return bool(module._backward_hooks or module._backward_pre_hooks)


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    """The user registered a hook on the parameter's gradient."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def is_autocast_enabled(devices: Iterable[str] = ("cpu", "cuda")) -> tuple[bool, ...]:
    """Whether autocast is on, by device type."""
    return tuple(torch.is_autocast_enabled(device) for device in devices)
