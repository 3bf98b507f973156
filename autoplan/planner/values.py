"""Values of the whole graph that samples may not hold: labels without a column, numbers without a row of a table (torch).

The program says which of the graph's values are used as positions; those steps alone are run on the whole graph, so that a
bad value is named when the plan is made, and not by a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from autoplan.errors import TraceError
from autoplan.planner.dataflow import Made, ancestors, made_of_the_graph, run_steps
from autoplan.program.ir import Expression, OpStep, Program
from autoplan.program.torch_internals import operator_name
from autoplan.trace.schema import GraphSchema

_LABELS = "aten.nll_loss_forward.default"
_TABLE = "aten.embedding.default"


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
    made = made_of_the_graph(program)
    uses = [use for use in _uses(program) if made.keys() >= ancestors(program, made, use.value)]
    if not uses:
        return
    needed = {
        number
        for use in uses
        for name in ancestors(program, made, use.value)
        for number in made[name]
    }
    steps = [program.steps[number] for number in sorted(needed)]
    values = run_steps(program, steps, [use.value for use in uses], tensors)
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


def _sources(program: Program, schema: GraphSchema, made: Made, value: str) -> str:
    """``graph.y``: the integer attributes that a value is made of; lists of nodes only where there are no others."""
    made_of = ancestors(program, made, value)
    specs = [
        spec
        for name, spec in zip(program.inputs, schema.attributes, strict=True)
        if name in made_of and spec.dtype.startswith("int")
    ]
    plain = [spec for spec in specs if spec.index is None] or specs
    return " and ".join(spec.label for spec in plain) or "the graph"
