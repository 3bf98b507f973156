"""Formulas for numbers that differ between recordings.

Candidates are the tracked numbers and the tensor dimensions that the torch call in progress was given; nothing else can have
decided what its ops were told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from autoplan.program.ir import Expression, OpStep
from autoplan.program.torch_internals import may_hold_sizes, tree_leaves, tree_unflatten
from autoplan.trace.recording import Recording
from autoplan.trace.tape import Recorded

Guard = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A formula and its value in each recording."""

    text: str
    column: tuple[Any, ...]


def explain(
    column: Sequence[Any], row: Sequence[Recorded], runs: Sequence[Recording], guard: Guard
) -> Expression | None:
    """A formula for a column of numbers, one entry per recording, or None.

    Tried in order: one candidate; a candidate plus a constant; a candidate, or a product of two, times a whole number
    or divided by one. Where several candidates fit, ``guard`` notes that they must agree.
    """
    varied = [c for c in _candidates(row, runs) if len(set(c.column)) > 1]
    target = tuple(column)
    matching = [c for c in varied if c.column == target]
    if matching:
        first = matching[0]
        for other in matching[1:]:
            guard(f"({first.text} == {other.text})", True)
        if type(first.column[0]) is type(target[0]):
            return Expression(first.text)
        return Expression(f"{type(target[0]).__name__}({first.text})")
    if not isinstance(target[0], int):
        return None
    return _offset(target, varied) or _multiple(target, varied)


def may_be_told(size: int, step: OpStep, recorded: Recorded, run: Recording) -> bool:
    """Whether an op's plain numbers may hold the size of a dimension that its call could see.

    Args:
        size: the size, equal in all recordings.
        step: the op; places of dimensions (``dim=0``) are no sizes.
        recorded: the op as one recording has it, with what the call in progress was given.
        run: that recording.
    """
    args, kwargs = tree_unflatten(list(step.args), step.spec)
    told = tree_leaves((args, kwargs) if step.opaque else may_hold_sizes(step.func, args, kwargs))
    if not any(type(number) in (int, float) and number == size for number in told):
        return False
    return any(size in run.values.shapes[name] for name in _tensor_names(recorded, run))


def _candidates(row: Sequence[Recorded], runs: Sequence[Recording]) -> list[Candidate]:
    found: dict[str, tuple[Any, ...]] = {}
    for numbers in zip(*(recorded.numbers for recorded in row), strict=False):
        if all(number.text == numbers[0].text for number in numbers):
            found[numbers[0].text] = tuple(number.value for number in numbers)
    for name in _tensor_names(row[0], runs[0]):
        shapes = [run.values.shapes[name] for run in runs]
        if len({len(shape) for shape in shapes}) == 1:
            for dim, sizes in enumerate(zip(*shapes, strict=True)):
                found.setdefault(f"{name}.size({dim})", tuple(sizes))
    return [Candidate(text, column) for text, column in found.items()]


def _tensor_names(recorded: Recorded, run: Recording) -> list[str]:
    """Tensors that the op or the enclosing torch call was given."""
    names: list[str | None] = []
    if isinstance(recorded.step, OpStep):
        names += [a.text for a in recorded.step.args if isinstance(a, Expression)]
    names += [run.values.of_object(tensor) for tensor in recorded.tensors]
    return [name for name in dict.fromkeys(names) if name in run.values.shapes]


def _offset(target: tuple[Any, ...], varied: list[Candidate]) -> Expression | None:
    for candidate in varied:
        offsets = {t - value for t, value in zip(target, candidate.column, strict=True)}
        if len(offsets) == 1:
            return Expression(f"({candidate.text} + {offsets.pop()})")
    return None


def _multiple(target: tuple[Any, ...], varied: list[Candidate]) -> Expression | None:
    one = Candidate("1", (1,) * len(target))
    for left, right in itertools.product(varied, [one, *varied]):
        ratios = {
            Fraction(t, x * y)
            for t, x, y in zip(target, left.column, right.column, strict=True)
            if isinstance(x * y, int) and x * y
        }
        if len(ratios) != 1:
            continue
        ratio = ratios.pop()
        if 1 in (ratio.numerator, ratio.denominator):
            return _product(ratio, left.text, right.text if right is not one else None)
    return None


def _product(ratio: Fraction, left: str, right: str | None) -> Expression:
    text = left if right is None else f"{left} * {right}"
    if ratio.numerator != 1:
        text = f"{ratio.numerator} * {text}"
    if ratio.denominator != 1:
        text = f"{text} // {ratio.denominator}"
    return Expression(f"({text})")
