"""Values of the whole graph that samples may not hold: labels without a column, numbers without a row of a table (torch).

The program says which of the graph's values are used as positions; those steps alone are run on the whole graph, so that a
bad value is named when the plan is made, and not by a worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from autoplan.errors import TraceError
from autoplan.program.codegen import ConstantTable, compile_source, format_step
from autoplan.program.ir import ConstantStep, Expression, GuardStep, OpStep, Program, SizeStep, Step
from autoplan.program.torch_internals import operator_name
from autoplan.trace.schema import GraphSchema

_LABELS = "aten.nll_loss_forward.default"
_TABLE = "aten.embedding.default"
_RANDOM = ("rand", "bernoulli", "normal", "multinomial", "dropout", "uniform", "exponential")


_Made = Mapping[str, tuple[int, ...]]
"""By value, the steps that make it (a constant is lifted under its own name), as numbers; none for an input."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A tensor whose values are positions: of the columns of an output or of the rows of a table.

    Attributes:
        value: its name in the program; size: how many positions there are; ignored: a value that is left out.
    """

    value: str
    what: str
    size: int
    ignored: int | None


def check_values(program: Program, schema: GraphSchema, tensors: tuple[torch.Tensor, ...]) -> None:
    """Raises TraceError for a label or a table's index of the whole graph that is out of range; names it.

    Args:
        program: of the step.
        schema: of the graph, whose tensors are the program's inputs.
        tensors: the whole graph's, in schema order.
    """
    made = _made_of_the_graph(program)
    uses = [use for use in _uses(program) if made.keys() >= _ancestors(program, made, use.value)]
    if not uses:
        return
    needed = {
        number
        for use in uses
        for name in _ancestors(program, made, use.value)
        for number in made[name]
    }
    steps = [program.steps[number] for number in sorted(needed)]
    values = _run(program, steps, [use.value for use in uses], tensors)
    for use, value in zip(uses, values, strict=True):
        _check(use, value, _sources(program, schema, made, use.value))


def _check(use: _Use, value: torch.Tensor, attributes: str) -> None:
    counted = value if use.ignored is None else value[value != use.ignored]
    if not counted.numel():
        return
    low, high = (int(bound) for bound in torch.aminmax(counted))
    if low >= 0 and high < use.size:
        return
    bad = low if low < 0 else high
    if use.what == "label":
        raise TraceError(
            f"{attributes} holds the label {bad}, but the model's output has {use.size} columns "
            f"(labels 0 to {use.size - 1}); widen the model, or fix the labels"
        )
    raise TraceError(
        f"{attributes} holds {bad}, which is looked up in a table of {use.size} rows (0 to {use.size - 1}); "
        "make the table longer, or fix the values"
    )


def _uses(program: Program) -> Iterator[_Use]:
    """Positions that must exist, of sizes that do not depend on the graph's."""
    for step in program.steps:
        if not isinstance(step, OpStep) or step.opaque:
            continue
        name = operator_name(step.func)
        if name == _LABELS:
            scores, labels = step.args[0], step.args[1]
            columns = _fixed_size(program, scores, -1)
            ignored = step.args[4] if isinstance(step.args[4], int) else None
            if columns is not None and isinstance(labels, Expression):
                yield _Use(labels.text, "label", columns, ignored)
        elif name == _TABLE:
            table, index = step.args[0], step.args[1]
            rows = _fixed_size(program, table, 0)
            if rows is not None and isinstance(index, Expression):
                yield _Use(index.text, "index", rows, None)


def _fixed_size(program: Program, value: object, dimension: int) -> int | None:
    """A tensor's size, where all recordings saw the same one."""
    if not isinstance(value, Expression):
        return None
    shapes = [sample.shapes.get(value.text, ()) for sample in program.samples]
    sizes = {shape[dimension] if shape else None for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else None


def _made_of_the_graph(program: Program) -> _Made:
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


def _ancestors(program: Program, made: _Made, wanted: str) -> set[str]:
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


def _sources(program: Program, schema: GraphSchema, made: _Made, value: str) -> str:
    """``graph.y``: the integer attributes that a value is made of; lists of nodes only where there are no others."""
    ancestors = _ancestors(program, made, value)
    specs = [
        spec
        for name, spec in zip(program.inputs, schema.attributes, strict=True)
        if name in ancestors and spec.dtype.startswith("int")
    ]
    plain = [spec for spec in specs if spec.index is None] or specs
    return " and ".join(spec.label for spec in plain) or "the graph"


def _run(
    program: Program, steps: list[Step], wanted: list[str], tensors: tuple[torch.Tensor, ...]
) -> list[torch.Tensor]:
    table = ConstantTable()
    body = [
        f"[{', '.join(program.inputs)}] = inputs",
        *(format_step(step, table, "pass") for step in steps),
        f"return [{', '.join(wanted)}]",
    ]
    source = "def values(inputs, device):\n    " + "\n    ".join(body) + "\n"
    with torch.no_grad():
        found: list[torch.Tensor] = compile_source(source, table, "values")(
            tensors, tensors[0].device
        )
    return found
