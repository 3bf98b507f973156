"""Which sizes an op or a guard reads that are known only from a tensor that has them (torch)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from autoplan.program.ir import Expression, GuardStep, OpStep
from autoplan.program.torch_internals import schema, tree_leaves
from autoplan.trace import alias
from autoplan.trace.rules.axes import AxisTable, Dim
from autoplan.trace.rules.numbers import Numbers
from autoplan.trace.strategies import SizeRead
from autoplan.trace.tensors import TensorTable

_TENSOR = re.compile(r"v\d+")
_METADATA = re.compile(
    r"\bv\d+\.(?:dtype|layout|device|ndim|requires_grad|is_leaf|is_contiguous\(\)|is_coalesced\(\)|stride\(\d*\)|"
    r"storage_offset\(\)|size\(\d+\)|numel\(\))"
)
_SHAPES = ("aten.arange", "aten.eye", "aten.linspace", "aten.range")
"""Operators whose plain numbers say how many rows they make."""


def is_tensor(name: str) -> bool:
    """Whether this is the program's name of a tensor."""
    return _TENSOR.fullmatch(name) is not None


def size_reads(
    step: OpStep, numbers: Numbers, tensors: TensorTable, axes: AxisTable
) -> tuple[SizeRead, ...]:
    """The data-dependent sizes among an op's arguments, each once."""
    found: dict[SizeRead, None] = {}
    for number, as_value in _numbers(step):
        for value, dims in numbers.sizes(number.text).values():
            if any(axes.depends_on_data(dim) for dim in dims):
                name = tensors.current[value]
                # a shape is told by the tensor itself, unless that is positions, or a mere template
                made = str(step.func).startswith("aten.new_")
                told = as_value or made or tensors.metas[name].index is not None
                counting = _counting(name, dims, tensors, axes) if told else (name,)
                found.update((SizeRead(each, as_value), None) for each in counting)
    return tuple(found)


def _counting(
    name: str, dims: Iterable[Dim], tensors: TensorTable, axes: AxisTable
) -> tuple[str, ...]:
    """The tensors that a size is counted from.

    Rows of a ``select`` axis cannot be brought from one state to another, but the mask that chose them can where it lies along
    an axis of the graph.
    """
    masks = dict.fromkeys(mask for dim in dims for mask in axes.masks_of(dim))
    known = [tensors.metas[mask] for mask in masks]
    along = [dim for mask in known for dim in mask.dims]
    base = all(isinstance(dim, str) and axes.axes[dim].kind == "base" for dim in along)
    return tuple(masks) if base and masks else (name,)


def guard_reads(
    step: GuardStep,
    numbers: Numbers,
    tensors: TensorTable,
    axes: AxisTable,
    read_from: Mapping[str, str],
    given: Collection[str] = (),
) -> tuple[str, ...] | None:
    """The tensors that decide a guard; None where the rows of the graph's own axes do, or nothing can change it.

    Args:
        step: the guard.
        numbers: the program's.
        tensors: what is known of it so far.
        axes: likewise.
        read_from: number read from a tensor -> version name of that tensor.
        given: tensors of the graph and the model, whose sizes are known before the program runs.
    """
    test = step.test.text
    if step.held is not None and step.held not in given:
        # its rows could be others, whatever its dimensions say
        return (tensors.current[step.held],)
    if numbers.always(test, step.expected):
        return None
    found: dict[str, None] = {}
    decided = False
    for value, dims in numbers.sizes(test).values():
        if value not in given and any(axes.is_untold(dim) for dim in dims):
            found.update(dict.fromkeys(_counting(tensors.current[value], dims, tensors, axes)))
    for name in Expression(_METADATA.sub("", test)).names:
        if name.startswith("i"):
            decided = True
            if name in read_from:
                found[read_from[name]] = None
        elif name in tensors.current:
            found[tensors.current[name]] = None
        elif name.startswith("z"):
            found[tensors.current[f"v{name[1:]}"]] = None
    return tuple(found) if found or decided else None


def _numbers(step: OpStep) -> Iterator[tuple[Expression, bool]]:
    """The computed numbers among an op's arguments, and whether each is a value rather than part of a shape."""
    given = alias.arguments_of(step)
    if not given:
        yield from ((number, True) for number in _computed(list(step.args)))
        return
    shapes = str(step.func).startswith(_SHAPES)
    for argument in schema(step.func).arguments:
        kind = str(argument.type)
        # a plain number may stand where the schema has a tensor: h / x.size(0)
        is_value = not shapes and "int" not in kind.lower()
        for number in _computed(given.get(argument.name)):
            yield number, is_value


def _computed(arguments: Any) -> Iterator[Expression]:
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, Expression) and not is_tensor(leaf.text):
            yield leaf
