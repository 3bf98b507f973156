"""Who writes whose storage: in-place ops, and tensors that share storage with what is written (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoplan.program.aten import bound_arguments
from autoplan.program.ir import ConstantStep, Expression, GuardStep, OpStep, Program
from autoplan.program.torch_internals import operator_name, schema, tree_leaves, tree_unflatten

_HIDDEN: Mapping[str, tuple[str, ...]] = {
    "aten.native_batch_norm.default": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm.default": ("running_mean", "running_var"),
    "aten.miopen_batch_norm.default": ("running_mean", "running_var"),
}
"""Operators whose schema does not say that they write, in training, to these arguments."""

_SPLITS = frozenset(
    {
        "split.Tensor",
        "split_with_sizes.default",
        "chunk.default",
        "unbind.int",
        "unsafe_split.Tensor",
        "unsafe_split_with_sizes.default",
        "unsafe_chunk.default",
    }
)
"""Operators that return views without a common element."""


def arguments_of(step: OpStep) -> dict[str, Any]:
    """The arguments of an ATen call by name, defaults filled in; an opaque step has none."""
    if step.opaque or operator_name(step.func) is None:
        return {}
    args, kwargs = tree_unflatten(list(step.args), step.spec)
    return bound_arguments(step.func, args, kwargs)


def written(step: OpStep) -> tuple[str, ...]:
    """Names of the values whose content a step changes."""
    if step.opaque or operator_name(step.func) is None:
        return ()
    given = arguments_of(step)
    names = [
        argument.name
        for argument in schema(step.func).arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    hidden = _HIDDEN.get(str(step.func), ())
    if given.get("training", given.get("train")):
        names += hidden
    found: list[str] = []
    for name in names:
        for value in tree_leaves(given.get(name)):
            if isinstance(value, Expression) and value.text.startswith("v"):
                found.append(value.text)
    return tuple(dict.fromkeys(found))


def whole_only(program: Program) -> frozenset[str]:
    """Values that share storage with one that is written while another of them is read later.

    A shard's tensors need not share storage as the recorded ones did, so every op that touches these runs in R. Pieces of
    one split share storage, but no element of it (a GRU cell writes to one while the others wait).
    """
    alias = program.samples[0].alias
    pieces = _pieces(program)
    created: dict[str, int] = {}
    last_read: dict[str, int] = {}
    writes: list[tuple[int, str]] = []
    for index, step in enumerate(program.steps):
        if isinstance(step, OpStep):
            for name in step.outs:
                created.setdefault(name, index)
            last_read.update((name, index) for name in step.reads)
            writes.extend((index, name) for name in written(step))
        elif isinstance(step, ConstantStep):
            created.setdefault(step.name, index)
        elif isinstance(step, GuardStep):
            last_read.update((name, index) for name in step.test.names)
    for output in program.outputs:
        if isinstance(output, Expression):
            last_read.update((name, len(program.steps)) for name in output.names)
    members: dict[str, list[str]] = {}
    for name, root in alias.items():
        members.setdefault(root, []).append(name)
    mixed: set[str] = set()
    for index, name in writes:
        shared = members.get(alias.get(name, name), [name])
        for other in shared:
            before = created.get(other, -1) < index
            apart = _apart(pieces.get(other, ()), pieces.get(name, ()))
            if other != name and not apart and before and last_read.get(other, -1) > index:
                mixed.update(shared)
    return frozenset(mixed)


_Piece = tuple[tuple[int, int], ...]
"""Which pieces of which splits (index of the step, position among its results) a view lies in, the outermost first."""


def _pieces(program: Program) -> dict[str, _Piece]:
    """By value, for views that lie within a piece of a split."""
    found: dict[str, _Piece] = {}
    alias = program.samples[0].alias
    strides = program.samples[0].strides
    for index, step in enumerate(program.steps):
        if not isinstance(step, OpStep) or step.opaque or not step.reads:
            continue
        source = step.reads[0]
        views = [name for name in step.outs if name in alias and name not in found]
        if not views or any(alias[name] != alias.get(source) for name in views):
            continue
        outer = found.get(source, ())
        # where a dimension has no stride, pieces along it are the same memory
        splits = str(step.func).removeprefix("aten.") in _SPLITS and 0 not in strides[source]
        for position, name in enumerate(views):
            found[name] = (*outer, (index, position)) if splits else outer
    return found


def _apart(first: _Piece, second: _Piece) -> bool:
    """Whether two views lie in different pieces of one split, and so have no element in common."""
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            return mine[0] == theirs[0]
    return False
