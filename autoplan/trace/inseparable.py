"""What keeps ops of a program on one device: storage that is written, and numbers that only another op can tell (torch)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from autoplan.opgraph import Axis, Op, TensorMeta
from autoplan.program.ir import ConstantStep, Expression, GuardStep, OpStep, Program, Step
from autoplan.trace import alias

_SIZE_OF = re.compile(r"\b[snz](\d+)(?:_\d+)?\b|\bv(\d+)\.(?:size\(\d+\)|numel\(\))")
_LAYOUT = ("aten.as_strided",)
"""Ops whose result depends on how their argument lies in memory, which is not kept where a tensor is sent."""


def numbers_read(program: Program) -> dict[int, tuple[int, ...]]:
    """By step index, the earlier ops whose numbers (``.item()``) it reads, directly or to read another; in order.

    A constant made from a number counts for the ops that read the constant.
    """
    made_by: dict[str, int] = {}
    found: dict[int, set[int]] = {}
    of_constants: dict[str, set[int]] = {}
    for index, step in enumerate(program.steps):
        read = [made_by[name] for name in _names(step) if name in made_by]
        numbers = set(read).union(*(found[number] for number in read))
        numbers.update(*(of_constants.get(name, ()) for name in _names(step)))
        found[index] = numbers
        if isinstance(step, ConstantStep):
            of_constants[step.name] = numbers
        elif isinstance(step, OpStep):
            made_by.update((name, index) for name in step.outs if name.startswith("i"))
            # from here on it is what the op returned
            _forget(of_constants, step.outs)
    return {index: tuple(sorted(numbers)) for index, numbers in found.items() if numbers}


def inseparable(
    program: Program,
    ops: Sequence[Op],
    tensors: Mapping[str, TensorMeta],
    axes: Mapping[str, Axis],
    shared: Collection[str],
) -> tuple[tuple[int, ...], ...]:
    """Groups of ops that must run on one device, by index; groups may overlap.

    Args:
        program: the traced program.
        ops: its ops, `Op.numbers` filled in.
        tensors: what they read and make.
        axes: of the tensors' dimensions.
        shared: values that are written under one name and read under another (`alias.whole_only`).
    """
    groups = [*_written_storage(program, shared), *_layouts(program)]
    groups += sizes_told(program, ops, tensors, axes)
    made_by = {index: step for index, step in enumerate(program.steps) if isinstance(step, OpStep)}
    root = program.samples[0].alias
    last_write = _last_writes(program)
    for op in ops:
        for number in op.numbers:
            step = made_by[number]
            # a number is read again elsewhere, unless that would make tensors anew or find what it reads overwritten
            makes = any(name.startswith("v") for name in step.outs)
            written = any(last_write.get(root.get(name, name), -1) > number for name in step.reads)
            if makes or written:
                groups.append((number, op.index))
    known = {op.index for op in ops}
    merged = (tuple(sorted(known.intersection(group))) for group in groups)
    return tuple(dict.fromkeys(group for group in merged if len(group) > 1))


def _written_storage(program: Program, shared: Collection[str]) -> Iterable[tuple[int, ...]]:
    """Per storage that an op writes, the ops that touch it until the last write; all where another view is read later."""
    root = program.samples[0].alias
    touched: dict[str, list[int]] = {}
    for index, step in enumerate(program.steps):
        names = {root.get(name, name) for name in _values(step)}
        for name in names:
            touched.setdefault(name, []).append(index)
    whole = {root.get(name, name) for name in shared}
    for name, last in _last_writes(program).items():
        yield tuple(index for index in touched[name] if index <= last or name in whole)


def _last_writes(program: Program) -> dict[str, int]:
    """By storage (the value that first held it), the last step that writes it."""
    root = program.samples[0].alias
    found: dict[str, int] = {}
    for index, step in enumerate(program.steps):
        if isinstance(step, OpStep):
            found.update((root.get(name, name), index) for name in alias.written(step))
    return found


def _layouts(program: Program) -> Iterable[tuple[int, ...]]:
    """Ops that read how a tensor lies in memory, with all that share that memory; makers and readers of sparse tensors."""
    sample = program.samples[0]
    root = sample.alias
    sparse: dict[str, list[int]] = {}
    for index, step in enumerate(program.steps):
        for name in _values(step):
            # a sparse tensor has no strides
            if name in root and len(sample.strides[name]) < len(sample.shapes[name]):
                sparse.setdefault(name, []).append(index)
        if not isinstance(step, OpStep) or not str(step.func).startswith(_LAYOUT):
            continue
        shares = {root[name] for name in step.reads if name in root}
        yield tuple(
            other
            for other, earlier in enumerate(program.steps[: index + 1])
            if any(root.get(name) in shares for name in _values(earlier))
        )
    yield from map(tuple, sparse.values())


def sizes_told(
    program: Program,
    ops: Sequence[Op],
    tensors: Mapping[str, TensorMeta],
    axes: Mapping[str, Axis],
) -> Iterable[tuple[int, int]]:
    """Makers of tensors with the ops that read their sizes (maker, reader), where nothing else tells these sizes.

    Sizes of base axes and of what follows from them are known everywhere; those of ``select`` axes come with a tensor
    among the op's inputs, unless a constant reads them.
    """
    maker = {name: op.index for op in ops for name in op.outputs}
    of_constants: dict[str, set[str]] = {}
    by_index = {op.index: op for op in ops}
    for index, step in enumerate(program.steps):
        read = {
            f"v{first or second}"
            for text in _texts(step)
            for first, second in _SIZE_OF.findall(text)
        }
        if isinstance(step, ConstantStep):
            of_constants[step.name] = read
            continue
        op = by_index.get(index)
        if op is None:
            continue
        needed = {name for name in read if name not in op.inputs and _untold(name, tensors, axes)}
        for name in _values(step):
            needed |= {n for n in of_constants.get(name, ()) if _unknown(n, tensors, axes)}
        for name in needed:
            if name in maker:
                yield maker[name], index
        if isinstance(step, OpStep):
            _forget(of_constants, step.outs)


def _forget(of_constants: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        of_constants.pop(name, None)


def _untold(name: str, tensors: Mapping[str, TensorMeta], axes: Mapping[str, Axis]) -> bool:
    """Whether a tensor has a dimension along an ``other`` axis."""
    return _has(name, tensors, axes, ("other",))


def _unknown(name: str, tensors: Mapping[str, TensorMeta], axes: Mapping[str, Axis]) -> bool:
    """Whether a tensor has a dimension whose rows only a tensor tells."""
    return _has(name, tensors, axes, ("other", "select"))


def _has(
    name: str, tensors: Mapping[str, TensorMeta], axes: Mapping[str, Axis], kinds: Sequence[str]
) -> bool:
    def involved(axis: str) -> bool:
        return axes[axis].kind in kinds or any(map(involved, axes[axis].parts))

    meta = tensors.get(name)
    return meta is not None and any(isinstance(dim, str) and involved(dim) for dim in meta.dims)


def _names(step: Step) -> tuple[str, ...]:
    """All names that a step reads."""
    if isinstance(step, OpStep):
        return step.reads
    if isinstance(step, GuardStep):
        return step.test.names
    if isinstance(step, ConstantStep) and step.expression is not None:
        return step.expression.names
    return ()


def _values(step: Step) -> set[str]:
    """The tensors that a step reads or makes; those whose stored entries it counts."""
    made = step.outs if isinstance(step, OpStep) else ()
    counted = [f"v{name[1:]}" for name in _names(step) if name.startswith("z")]
    return {name for name in (*_names(step), *made, *counted) if name.startswith("v")}


def _texts(step: Step) -> tuple[str, ...]:
    """The formulas that a step evaluates."""
    if isinstance(step, OpStep):
        return tuple(argument.text for argument in step.args if isinstance(argument, Expression))
    if isinstance(step, GuardStep):
        return (step.test.text,)
    if isinstance(step, ConstantStep) and step.expression is not None:
        return (step.expression.text,)
    return ()
