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

    A shard's tensors need not share storage as the recorded ones did, so every op that touches these runs in R.
    """
    alias = program.samples[0].alias
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
            if other != name and before and last_read.get(other, -1) > index:
                mixed.update(shared)
    return frozenset(mixed)
