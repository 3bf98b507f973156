"""A program as straight-line Python source: each value is freed after its last use, a guard that fails raises `GuardError`.

`ConstantTable`, `format_call` and `format_step` serve every emitter of steps; `generate` emits a whole program for one device.
"""

from __future__ import annotations

import keyword
import linecache
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor

import autoplan.program.spmm  # programs call the operators that it registers
import autoplan.program.typed_matmul  # noqa: F401  # programs call the operators that it registers
from autoplan.errors import GuardError
from autoplan.program.ir import (
    GRAPH,
    ConstantStep,
    Expression,
    GuardStep,
    OpStep,
    Program,
    SizeStep,
    Step,
)
from autoplan.program.structure import same
from autoplan.program.torch_internals import STORED_ENTRIES, operator, operator_name, tree_unflatten

_SIZE_READ = re.compile(r"\bv\d+\.(?:size\(\d+\)|numel\(\))")
_SPELLED = (torch.dtype, torch.layout, torch.memory_format)


@dataclass(slots=True)
class ConstantTable:
    """Names, in generated source, for operators and for objects that text cannot spell.

    Attributes:
        operators: name in the source -> overload (``aten.mm.default``); text, so that a program can be sent to a process.
        objects: name in the source -> object. Tensors are copied to the device of the run at their use.
    """

    operators: dict[str, str] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)

    def name(self, obj: Any) -> str:
        """The name of an operator or object, new on its first use."""
        overload = operator_name(obj)
        if overload is not None:
            text = overload.removesuffix(".default").replace(".", "_")
            name = f"{text}_" if keyword.iskeyword(text) else text
            self.operators[name] = overload
            return name
        for name, known in self.objects.items():
            if known is obj:
                return name
        name = f"c{len(self.objects)}"
        self.objects[name] = obj
        return name

    def literal(self, value: Any) -> Expression:
        """Source text for an argument. A device is the device of the run, ``device``."""
        if isinstance(value, Expression):
            return value
        if isinstance(value, torch.device):
            return Expression("device")
        if value is None or type(value) in (bool, int, float, str):
            return Expression(repr(value))
        if isinstance(value, float):  # NumPy's, whose own text is no literal
            return Expression(repr(float(value)))
        if isinstance(value, _SPELLED):
            return Expression(str(value))
        if isinstance(value, Tensor):
            return Expression(f"{self.name(value)}.to(device, copy=True)")
        return Expression(self.name(value))

    def namespace(self) -> dict[str, Any]:
        """Globals for the generated source."""
        names: dict[str, Any] = {
            "torch": torch,
            "math": math,
            "inf": math.inf,
            "nan": math.nan,
            "same": same,
            "exactly": exactly,
        }
        names.update(self.objects)
        names.update({name: operator(overload) for name, overload in self.operators.items()})
        return names


def exactly(count: int, values: Sequence[Any], where: str) -> Sequence[Any]:
    """``values`` if it has ``count`` entries, as it had when recorded. Raises GuardError."""
    if len(values) != count:
        raise GuardError(f"{where}: a call returns {len(values)} tensors, {count} when recorded")
    return values


def format_arguments(step: OpStep, table: ConstantTable, args: Sequence[Any] | None = None) -> str:
    """Source of the arguments of the call. ``args`` replace the step's flat arguments, one for one."""
    flat = [table.literal(argument) for argument in (step.args if args is None else args)]
    positional, named = tree_unflatten(flat, step.spec)
    texts = [repr(argument) for argument in positional]
    texts += [f"{name}={argument!r}" for name, argument in named.items()]
    return ", ".join(texts)


def format_call(step: OpStep, table: ConstantTable, args: Sequence[Any] | None = None) -> str:
    """Source of the call. ``args`` replace the step's flat arguments, one for one."""
    arguments = format_arguments(step, table, args)
    return f"{table.name(step.func)}({arguments})"


def format_op(step: OpStep, table: ConstantTable, args: Sequence[Any] | None = None) -> str:
    """Source of the call and of the assignment of what it returns."""
    call = format_call(step, table, args)
    if step.sequence is list:
        call = f"exactly({len(step.outs)}, {call}, {step.where!r})"
    if not set(step.outs) - {"_"}:
        return call
    return f"[{', '.join(step.outs)}] = {call}" if step.sequence else f"{step.outs[0]} = {call}"


def format_size(step: SizeStep) -> str:
    """Source of a size."""
    method = {"size": f"size({step.dim})", "numel": "numel()", "nnz": STORED_ENTRIES}[step.what]
    return f"{step.name} = {step.value}.{method}"


def format_constant(step: ConstantStep, table: ConstantTable) -> str:
    """Source of a tensor made from Python data; a fresh one each time, for it may be written."""
    return f"{step.name} = {table.literal(step.expression or step.value)}"


def format_test(step: GuardStep, table: ConstantTable) -> str:
    """Source of an expression that holds where the guard fails."""
    test, expected = step.test.text, step.expected
    if isinstance(expected, bool):
        return f"not {test}" if expected else test
    if isinstance(expected, (int, str, list, *_SPELLED)):
        literal = repr(expected) if isinstance(expected, list) else table.literal(expected).text
        return f"{test} != {literal}"
    literal = table.name(expected) if isinstance(expected, Tensor) else table.literal(expected).text
    return f"not same({test}, {literal})"


def format_step(step: Step, table: ConstantTable, failure: str) -> str:
    """Source of one step; ``failure`` is the statement that a failing guard runs."""
    if isinstance(step, SizeStep):
        return format_size(step)
    if isinstance(step, ConstantStep):
        return format_constant(step, table)
    if isinstance(step, GuardStep):
        return f"if {format_test(step, table)}: {failure}"
    return format_op(step, table)


def value_names(text: Expression) -> tuple[str, ...]:
    """The tensors that an expression reads."""
    return tuple(name for name in text.names if name.startswith("v"))


def touched(step: Step) -> tuple[str, ...]:
    """The tensors that a step reads or names."""
    if isinstance(step, SizeStep):
        return (step.value,)
    if isinstance(step, GuardStep):
        return value_names(step.test)
    if isinstance(step, ConstantStep):
        read = value_names(step.expression) if step.expression else ()
        return (*read, step.name)
    written = [name for name in step.outs if name.startswith("v")]
    return (*(name for name in step.reads if name.startswith("v")), *written)


def dead_after(program: Program) -> list[tuple[str, ...]]:
    """Per step, the tensors that no later step and no output needs."""
    needed = {
        name
        for output in program.outputs
        if isinstance(output, Expression)
        for name in value_names(output)
    }
    dead: list[tuple[str, ...]] = []
    for step in reversed(program.steps):
        last = sorted(set(touched(step)) - needed, key=lambda name: int(name[1:]))
        needed.update(last)
        dead.append(tuple(last))
    return dead[::-1]


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """Source and the function that it defines: ``run(state, inputs, device)`` returns the flat outputs."""

    source: str
    run: Callable[[Sequence[Tensor], Sequence[Any], torch.device], list[Any]]


def generate(program: Program) -> GeneratedProgram:
    """Source for one device with every guard of the program.

    ``state`` and ``inputs`` are in the order of ``program.state`` and ``program.inputs``. The caller restores the grad mode.
    """
    table = ConstantTable()
    body = [
        f"[{', '.join(slot.name for slot in program.state)}] = state",
        f"[{', '.join(program.inputs)}] = inputs",
    ]
    grad = program.modes.grad
    for i, (step, dead) in enumerate(zip(program.steps, dead_after(program), strict=True)):
        if isinstance(step, OpStep) and step.grad != grad:
            grad = step.grad
            body.append(f"torch.set_grad_enabled({grad})")
        failure = f"fail({i}, {numbers_named(step)})" if isinstance(step, GuardStep) else ""
        body.append(format_step(step, table, failure))
        if dead:
            body.append(f"del {', '.join(dead)}")
    outputs = [table.literal(output) for output in program.outputs]
    body.append(f"return {outputs}")
    source = "def run(state, inputs, device):\n    " + "\n    ".join(body) + "\n"
    return GeneratedProgram(source, compile_source(source, table, "run", fail=_failure(program)))


def compile_source(source: str, table: ConstantTable, function: str, **names: Any) -> Any:
    """The function that ``source`` defines, with the table's and further names as its globals.

    A traceback through it shows the lines of ``source``.
    """
    namespace = table.namespace() | names
    file = f"<autoplan {function} {zlib.crc32(source.encode()):08x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), namespace)
    return namespace[function]


def guard_message(step: GuardStep, found: Mapping[str, Any] | None = None) -> str:
    """What a failing guard says; ``found``: the numbers that it read, by their names in its test."""
    expected = step.expected
    if isinstance(expected, Tensor):
        expected = f"one particular tensor of shape {tuple(expected.shape)}"
    test = str(step.test)
    if step.where.startswith(GRAPH):
        # which attribute it is has been said
        test = re.sub(r"\bv\d+\.", "", test)
        found = {re.sub(r"^v\d+\.", "", name): value for name, value in (found or {}).items()}
    return f"{step.where}: {test} was {expected} when recorded, and is not on this input{numbers_found(found or {})}"


def numbers_found(found: Mapping[str, Any]) -> str:
    """The end of a failing guard's message: the numbers that decided it."""
    told = ", ".join(f"{name} is {value}" for name, value in found.items())
    return told and f", where {told}"


def numbers_named(step: GuardStep, texts: Mapping[str, str] | None = None) -> str:
    """Source of a mapping with the numbers that a guard reads, by name; a size that is held to one value by its own text.

    Args:
        step: the guard.
        texts: by name, the source of a number that has no variable of that name.
    """
    names = {name: name for name in step.test.names if not name.startswith("v")}
    sizes = _SIZE_READ.findall(step.test.text)
    names.update((size, size) for size in sizes)
    names.update(texts or {})
    return "{" + ", ".join(f"{name!r}: {text}" for name, text in names.items()) + "}"


def _failure(program: Program) -> Callable[[int, Mapping[str, Any]], NoReturn]:
    def fail(index: int, found: Mapping[str, Any]) -> NoReturn:
        step = program.steps[index]
        assert isinstance(step, GuardStep)
        raise GuardError(guard_message(step, found))

    return fail
