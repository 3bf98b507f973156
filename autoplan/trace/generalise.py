"""The steps that several recordings have in common, with formulas for the numbers that differ."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from autoplan.program.ir import (
    INPUT,
    ConstantStep,
    Expression,
    GuardStep,
    OpStep,
    Program,
    SizeStep,
    Step,
)
from autoplan.program.modes import Modes, training_modes
from autoplan.program.structure import same
from autoplan.program.torch_internals import (
    DISPENSABLE,
    SLICE,
    SPLIT,
    output_size_follows_content,
)
from autoplan.trace.alias import arguments_of
from autoplan.trace.clamped import limit_of
from autoplan.trace.content import content_dims
from autoplan.trace.explain import explain, may_be_told
from autoplan.trace.places import RefusalError
from autoplan.trace.recording import Recording
from autoplan.trace.tape import Recorded

_LARGEST_TABLE = 64
"""Elements of a tensor made from Python numbers that may differ between recordings."""


class SharedResidueError(RefusalError):
    """The samples' sizes agree modulo 2 or 3, so that parity decisions would look constant."""


def generalise(runs: Sequence[Recording], module: torch.nn.Module) -> Program:
    """One program for any sizes, from recordings on samples of distinct sizes.

    Raises:
        RefusalError: the recordings part, or a number that differs is no formula; the message says where and what.
    """
    first = runs[0]
    return Program(
        steps=tuple(_prune(common_steps(runs), first)),
        inputs=first.input_names,
        input_paths=first.input_paths,
        state=first.state,
        outputs=first.outputs,
        out_spec=first.out_spec,
        samples=tuple(run.values.sample() for run in runs),
        training=training_modes(module),
        modes=Modes.current(),
    )


def concrete(run: Recording, module: torch.nn.Module) -> Program:
    """One recording as a program of plain numbers, for its own sizes only."""
    return Program(
        steps=tuple(recorded.step for recorded in run.steps),
        inputs=run.input_names,
        input_paths=run.input_paths,
        state=run.state,
        outputs=run.outputs,
        out_spec=run.out_spec,
        samples=(run.values.sample(),),
        training=training_modes(module),
        modes=Modes.current(),
    )


def common_steps(runs: Sequence[Recording]) -> list[Step]:
    """The steps that all recordings share, before unused ones are dropped. Raises as `generalise`."""
    return _Merge(runs).steps()


class _Merge:
    def __init__(self, runs: Sequence[Recording]) -> None:
        self._runs = runs
        self._first = runs[0]
        self._steps: list[Step] = []
        self._guards: set[tuple[str, str]] = set()
        self._never_varied: list[tuple[str, int, str]] = []

    def steps(self) -> list[Step]:
        structure = (self._first.input_names, self._first.input_paths)
        if any((run.input_names, run.input_paths) != structure for run in self._runs):
            raise RefusalError("the samples differ in structure")
        for name in dict.fromkeys(self._first.input_names):
            if name.startswith("v"):
                self._input(name)
        for row in itertools.zip_longest(*(run.steps for run in self._runs)):
            self._row(row)
        if len({repr((run.outputs, run.out_spec)) for run in self._runs}) > 1:
            raise RefusalError("the outputs differ in structure")
        return self._hold_unexplained()

    def _guard(self, text: str, value: Any, where: str) -> None:
        key = (text, repr(value))
        if key not in self._guards:
            self._guards.add(key)
            self._steps.append(GuardStep(Expression(text), value, where))

    def _sizes(self, name: str) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Dimension and its size in each recording."""
        return enumerate(zip(*(run.values.shapes[name] for run in self._runs), strict=True))

    def _input(self, name: str) -> None:
        """What an input must look like, whatever its sizes."""
        tensor = self._first.values.tensors[name]
        self._guard(f"{name}.dtype", tensor.dtype, INPUT)
        self._guard(f"{name}.layout", tensor.layout, INPUT)
        self._guard(f"{name}.ndim", tensor.ndim, INPUT)
        if tensor.layout == torch.strided:
            self._guard(f"{name}.is_contiguous()", tensor.is_contiguous(), INPUT)
        elif tensor.layout == torch.sparse_coo:
            self._guard(f"{name}.is_coalesced()", tensor.is_coalesced(), INPUT)
        if len({len(run.values.shapes[name]) for run in self._runs}) > 1:
            raise RefusalError(f"the samples differ in the number of dimensions of {name}")
        for dim, column in self._sizes(name):
            if len(set(column)) == 1:
                self._guard(f"{name}.size({dim})", column[0], INPUT)
                continue
            self._guard(f"{name}.size({dim}) > 1", min(column) > 1, INPUT)
            for modulus in (2, 3):
                if len({size % modulus for size in column}) == 1:
                    raise SharedResidueError(
                        f"the samples' sizes {list(column)} share a residue modulo {modulus}; use samples of mixed sizes"
                    )

    def _row(self, row: Sequence[Recorded | None]) -> None:
        """One step as each recording has it."""
        present = [recorded for recorded in row if recorded is not None]
        step = present[0].step
        if len(present) < len(row):
            raise RefusalError(f"runs part at {step.where}: one has ended")
        for other in present[1:]:
            _must_match(step, other.step)
        for numbers in zip(*(recorded.numbers for recorded in present), strict=False):
            never_varied = len({number.value for number in numbers}) == 1
            if never_varied and numbers[0].text not in self._first.unread_numbers:
                self._guard(numbers[0].text, numbers[0].value, step.where)
                self._hold_read(numbers[0].text, numbers[0].value)
        if isinstance(step, GuardStep):
            self._guard(step.test.text, step.expected, step.where)
        elif isinstance(step, ConstantStep):
            self._steps.append(self._constant(step, present))
        elif isinstance(step, OpStep):
            self._hold_given(step, present)
            columns = zip(*(_op(recorded).args for recorded in present), strict=True)
            args = tuple(self._merge(column, present) for column in columns)
            self._steps.append(dataclasses.replace(step, args=args))
            self._hold_sizes(step)
        else:
            self._steps.append(step)

    def _merge(self, column: Sequence[Any], row: Sequence[Recorded]) -> Any:
        """One argument as each recording has it: the same, or a formula."""
        first = column[0]
        if isinstance(first, Expression):
            agree = all(isinstance(a, Expression) and a.text == first.text for a in column)
        else:
            agree = all(same(first, argument) for argument in column)
        if agree:
            return first
        step = row[0].step
        found = None
        if all(type(argument) in (int, float) for argument in column):
            found = explain(
                column, row, self._runs, lambda text, value: self._guard(text, value, step.where)
            )
        if found is None:
            what = step.func if isinstance(step, OpStep) else "a constant"
            raise RefusalError(
                f"{what} at {step.where}: {list(column)} is no formula of sizes and reads"
            )
        return found

    def _constant(self, step: ConstantStep, row: Sequence[Recorded]) -> ConstantStep:
        values = [_constant_value(recorded) for recorded in row]
        first = values[0]
        if all(same(first, value) for value in values):
            return step
        if any(v.shape != first.shape for v in values) or first.numel() > _LARGEST_TABLE:
            raise RefusalError(f"{step.where}: a tensor made from Python data differs")
        columns = zip(*(value.flatten().tolist() for value in values), strict=True)
        flat = [self._merge(column, row) for column in columns]
        text = f"torch.tensor({flat}, dtype={first.dtype}, device=device).view({list(first.shape)})"
        return ConstantStep(step.name, None, Expression(text), step.where)

    def _hold_given(self, step: OpStep, row: Sequence[Recorded]) -> None:
        """Sizes that content decides, and that never varied, are held where one may be what an op was told."""
        for text, value, place in self._never_varied:
            if may_be_told(value, step, row[0], self._first):
                self._guard(text, value, place)

    def _hold_read(self, text: str, value: Any) -> None:
        """Sizes that content decides, and that never varied, are held where Python read a size that may follow from one."""
        if not self._never_varied or not text.startswith(("s", "n")) or not text[1:2].isdigit():
            return
        made_from = self._ancestors(f"v{text[1:].partition('_')[0]}")
        for size_text, size, place in self._never_varied:
            equal = (
                size == value if text.startswith("s") else size in (0, value) or value % size == 0
            )
            if equal and size_text.partition(".")[0] in made_from:
                self._guard(size_text, size, place)

    def _ancestors(self, value: str) -> frozenset[str]:
        """The values that a value was made from, itself among them."""
        found = {value}
        for step in reversed(self._steps):
            if isinstance(step, OpStep) and found.intersection(step.outs):
                found.update(step.reads)
        return frozenset(found)

    def _hold_sizes(self, step: OpStep) -> None:
        """An output size that never varied, but could, is held to its value."""
        self._hold_limit(step)
        from_content = output_size_follows_content(step.func)
        if not from_content and step.func is not SLICE:
            return
        source = step.args[0]
        told = content_dims(step, self._first.values.tensors) if from_content else None
        for name in step.outs:
            if name not in self._first.values.shapes:
                continue
            for dim, column in self._sizes(name):
                if len(set(column)) > 1 or (told is not None and dim not in told):
                    continue
                sources = (
                    {run.values.shapes[source.text][dim] for run in self._runs}
                    if not from_content
                    else set()
                )
                if from_content:
                    self._never_varied.append((f"{name}.size({dim})", column[0], step.where))
                elif len(sources) > 1:
                    self._guard(f"{name}.size({dim})", column[0], step.where)

    def _hold_limit(self, step: OpStep) -> None:
        """A slice or split that was longer than its tensor in every recording must not cut a larger one."""
        if step.func not in (SLICE, SPLIT):
            return
        given = arguments_of(step)
        limit, source = limit_of(step.func, given), given["self"].text
        if limit is None:
            return
        dim = given["dim"] % len(self._first.values.shapes[source])
        if all(run.values.shapes[source][dim] <= limit for run in self._runs):
            self._guard(f"{source}.size({dim}) <= {limit}", True, step.where)

    def _hold_unexplained(self) -> list[Step]:
        """Numbers that torch read itself and that explain nothing must at least be equal: then they are guards."""
        used = {name for step in self._steps for name in reads(step)}
        done: list[Step] = []
        for step in self._steps:
            done.append(step)
            if not isinstance(step, OpStep):
                continue
            for name in step.outs:
                if name not in self._first.unread_numbers or name in used:
                    continue
                column = [run.unread_numbers[name] for run in self._runs]
                if not all(same(column[0], value) for value in column):
                    raise RefusalError(
                        f"{step.func} at {step.where} reads {column}, which explains nothing"
                    )
                done.append(GuardStep(Expression(name), column[0], step.where))
        return done


def reads(step: Step) -> tuple[str, ...]:
    """The program's names that a step reads."""
    if isinstance(step, SizeStep):
        return (step.value,)
    if isinstance(step, GuardStep):
        return step.test.names
    if isinstance(step, ConstantStep):
        return step.expression.names if step.expression else ()
    return step.reads


def _prune(steps: list[Step], run: Recording) -> list[Step]:
    """Drops sizes, reads and torch's own detached copies that nothing uses."""
    live = {
        name for output in run.outputs if isinstance(output, Expression) for name in output.names
    }
    kept: list[Step] = []
    for step in reversed(steps):
        idle = (isinstance(step, SizeStep) and step.name not in live) or (
            isinstance(step, OpStep)
            and step.func in DISPENSABLE
            and not live.intersection(step.outs)
        )
        if not idle:
            live.update(reads(step))
            kept.append(step)
    return kept[::-1]


def _op(recorded: Recorded) -> OpStep:
    assert isinstance(recorded.step, OpStep)
    return recorded.step


def _constant_value(recorded: Recorded) -> torch.Tensor:
    assert isinstance(recorded.step, ConstantStep)
    assert recorded.step.value is not None
    return recorded.step.value


def _must_match(step: Step, other: Step) -> None:
    """Two recordings' steps at one place must be the same call, read or decision."""
    if _describe(step) != _describe(other) or (
        isinstance(step, GuardStep)
        and isinstance(other, GuardStep)
        and not same(step.expected, other.expected)
    ):
        both = dict.fromkeys((_say(step), _say(other)))
        raise RefusalError(f"runs part at {step.where}: {' | '.join(both)}")
    if isinstance(step, OpStep) and isinstance(other, OpStep) and _form(step) != _form(other):
        raise RefusalError(
            f"runs part at {step.where}: {step.func} differs in its arguments or outputs"
        )


def _describe(step: Step) -> tuple[Any, ...]:
    if isinstance(step, SizeStep):
        return ("size", step.name, step.value, step.dim, step.what)
    if isinstance(step, GuardStep):
        return ("guard", step.test.text)
    if isinstance(step, ConstantStep):
        return ("constant", step.name)
    return ("op", step.func)


def _form(step: OpStep) -> tuple[Any, ...]:
    return (step.spec, step.outs, step.grad, step.sequence, step.module)


def _say(step: Step) -> str:
    if isinstance(step, OpStep):
        return str(step.func)
    if isinstance(step, GuardStep):
        return f"{step.test.text} is {step.expected}"[:80]
    return f"{step.name} = ..."
