"""Torch functions that a recorder treats apart from ordinary ones, by what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from autoplan.program.torch_internals import (
    READ_DATA,
    READ_REQUIRES_GRAD,
    READ_SHAPE,
    READS_CONTENT,
    SET_OR_READ_GRADIENT,
    stored_entries,
)

Function = Callable[..., Any]

COUNTS: dict[Function, Literal["numel", "nnz"]] = {
    Tensor.numel: "numel",
    Tensor.nelement: "numel",
    torch.numel: "numel",
    stored_entries: "nnz",
}
"""Return one number that describes the tensor."""

SIZES: frozenset[Function] = frozenset({Tensor.size, READ_SHAPE, Tensor.__len__, *COUNTS})
"""Return sizes, which are followed."""

PROPERTIES: dict[Function, str] = {
    READ_REQUIRES_GRAD: "requires_grad",
    Tensor.is_contiguous: "is_contiguous",
    Tensor.stride: "stride",
    Tensor.storage_offset: "storage_offset",
    Tensor.is_coalesced: "is_coalesced",
}
"""Return what could differ between inputs of one shape: each answer is a guard."""

CONTENT: frozenset[Function] = frozenset(
    {
        Tensor.numpy,
        Tensor.__array__,
        Tensor.untyped_storage,
        Tensor.storage,
        Tensor.data_ptr,
        Tensor.__reduce_ex__,
        Tensor.__dlpack__,
        Tensor.__repr__,
        Tensor.__format__,
    }
)
"""Hand the whole content to code that is not torch's: a guard on all of it."""

OPAQUE: frozenset[Function] = frozenset(
    {torch.autograd.grad, Tensor.requires_grad_, READ_DATA, Tensor.tolist}
)
"""One step, as Python called it: their ops below autograd would not say what they mean."""

REVERSIBLE = ("torch_geometric.nn.models.rev_gnn", "InvertibleFunction")
"""A custom function that is its forward in value and gradient; only what it keeps in memory differs."""

FORBIDDEN: frozenset[Function] = frozenset(
    {
        Tensor.register_hook,
        Tensor.register_post_accumulate_grad_hook,
        Tensor.backward,
        torch.autograd.backward,
        *SET_OR_READ_GRADIENT,
        Tensor.set_,
        Tensor.apply_,
        Tensor.map_,
    }
)
"""No program can repeat what they do."""

READS: dict[Function, str] = {
    Tensor.item: "item",
    Tensor.__bool__: "bool",
    Tensor.__int__: "int",
    Tensor.__index__: "int",
    Tensor.__float__: "float",
}
"""Read one number from a tensor; the conversion that Python asks for."""


def content_read_in_c(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor | None:
    """The integer tensor whose content the function's C++ code reads past the dispatcher, if it does here."""
    if function not in READS_CONTENT:
        return None
    if function is torch.sparse_coo_tensor and (len(args) > 2 or "size" in kwargs):
        return None
    position = READS_CONTENT[function]
    if len(args) <= position:
        return None
    argument = args[position]
    if isinstance(argument, Tensor) and not argument.is_floating_point():
        return argument
    return None


def number_of_classes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The width that ``one_hot`` is asked for; -1 where it is to follow the labels."""
    return kwargs.get("num_classes", args[1] if len(args) > 1 else -1)


def writes_rows(function: Function, args: tuple[Any, ...]) -> bool:
    """Whether the call is ``tensor[index] = rows``, all tensors, which is ``index_put_``.

    Left to torch, it adds a view where there happens to be one row, and samples with one and with more rows would part.
    """
    if function is not Tensor.__setitem__ or not all(isinstance(a, Tensor) for a in args):
        return False
    index = args[1]
    return index.dim() > 0 and index.dtype in (torch.bool, torch.int64)
