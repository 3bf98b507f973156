"""What of a program follows from the graph alone, and running that much of it (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from autoplan.errors import GuardError
from autoplan.program.codegen import (
    ConstantTable,
    compile_source,
    format_step,
    guard_message,
    numbers_named,
)
from autoplan.program.ir import ConstantStep, GuardStep, OpStep, Program, SizeStep, Step
from autoplan.program.torch_internals import operator_name

_RANDOM = ("rand", "bernoulli", "normal", "multinomial", "dropout", "uniform", "exponential")

Made = Mapping[str, tuple[int, ...]]
"""By value, the steps that make it (a constant is lifted under its own name), as numbers; none for an input."""


def made_of_the_graph(program: Program) -> Made:
    """What follows from the graph alone, without the model's tensors and without chance.

    Not what is written in place later: it has two values.
    """
    alias = program.samples[0].alias
    made: dict[str, tuple[int, ...]] = {n: () for n in program.inputs if n.startswith("v")}
    for number, step in enumerate(program.steps):
        if isinstance(step, GuardStep):
            continue
        if isinstance(step, OpStep) and not _is_pure(step):
            written = {alias.get(out, out) for out in step.outs if out in made}
            made = {n: s for n, s in made.items() if alias.get(n, n) not in written}
        elif made.keys() >= set(_reads(step)):
            for out in _outs(step):
                made[out] = (*made.get(out, ()), number)
    return made


def _outs(step: SizeStep | ConstantStep | OpStep) -> tuple[str, ...]:
    return step.outs if isinstance(step, OpStep) else (step.name,)


def _is_pure(step: OpStep) -> bool:
    """An op that neither draws nor writes."""
    name = operator_name(step.func)
    if step.opaque or name is None:
        return False
    base = name.split(".")[1]
    return not base.endswith("_") and not any(word in base for word in _RANDOM)


def _reads(step: Step) -> tuple[str, ...]:
    if isinstance(step, SizeStep):
        return (step.value,)
    if isinstance(step, ConstantStep):
        return step.expression.names if step.expression is not None else ()
    return step.reads if isinstance(step, OpStep) else ()


def ancestors(program: Program, made: Made, wanted: str) -> set[str]:
    """The values that one is made of, itself included."""
    found: set[str] = set()
    waiting = [wanted]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for number in made.get(name, ()):
                waiting.extend(_reads(program.steps[number]))
    return found


def run_steps(
    program: Program, steps: list[Step], wanted: list[str], tensors: tuple[torch.Tensor, ...]
) -> list[torch.Tensor]:
    """Runs some steps of a program on the graph's tensors, without gradients.

    Args:
        program: the whole.
        steps: in order; all that they read is among them, or an input.
        wanted: values to return.
        tensors: the program's inputs.

    Raises:
        GuardError: a guard among the steps fails.
    """
    table = ConstantTable()

    def fail(number: int, found: Mapping[str, Any]) -> NoReturn:
        step = steps[number]
        assert isinstance(step, GuardStep)
        raise GuardError(guard_message(step, found))

    body = [
        f"[{', '.join(program.inputs)}] = inputs",
        *(
            format_step(step, table, f"fail({number}, {numbers_named(step)})")
            if isinstance(step, GuardStep)
            else format_step(step, table, "")
            for number, step in enumerate(steps)
        ),
        f"return [{', '.join(wanted)}]",
    ]
    source = "def values(inputs, device):\n    " + "\n    ".join(body) + "\n"
    with torch.no_grad():
        run = compile_source(source, table, "values", fail=fail)
        values: list[torch.Tensor] = run(tensors, tensors[0].device)
    return values
