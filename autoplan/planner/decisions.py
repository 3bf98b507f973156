"""A program's decisions, recorded from samples, held to graphs before they are run (torch).

A guard of a program is decided in one of three ways, and none is left out:

- by dtypes, layouts and sizes of the graph's and the model's own tensors: `program.binding.check_input_guards`;
- by the rows of the graph's axes, as the size of any tensor along them or along what is made of them is: `rows_check`;
- by what tensors hold, which only a run can tell: an op of the `OpGraph`, evaluated in every step of every rank. What follows
  from the graph alone is told when the plan is made, too: `check_content`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from autoplan.errors import GuardError
from autoplan.opgraph import OpGraph
from autoplan.planner.dataflow import ancestors, made_of_the_graph, run_steps
from autoplan.program.codegen import ConstantTable, compile_source, format_test, guard_message
from autoplan.program.ir import Expression, GuardStep, Program, Step
from autoplan.trace.rules.axes import Dim
from autoplan.trace.rules.numbers import Numbers

RowsCheck = Callable[[Mapping[str, int]], None]
"""Raises GuardError where the rows of a graph's axes decide otherwise than those of the samples."""


def rows_check(program: Program, opgraph: OpGraph) -> RowsCheck:
    """The program's decisions on rows, for many graphs, compiled once. Takes rows by base and index axis."""
    table = ConstantTable()
    guards: list[GuardStep] = []
    body: list[str] = []
    for step in program.steps:
        sizes = _sizes(step, opgraph)
        if sizes is None:
            continue
        assert isinstance(step, GuardStep)
        text = step.test.text
        for place, name in enumerate(sizes):
            # longer names first, so that none is found within another
            text = text.replace(name, f"<{place}>")
        for place, rows in enumerate(sizes.values()):
            text = text.replace(f"<{place}>", rows)
        found = ", ".join(f"{name!r}: {rows}" for name, rows in sizes.items())
        failing = format_test(replace(step, test=Expression(text)), table)
        body.append(f"if {failing}: return {len(guards)}, {{{found}}}")
        guards.append(step)
    source = "def check(rows):\n    " + "\n    ".join([*body, "return None"]) + "\n"
    first_failing = compile_source(source, table, "check")

    def check(rows: Mapping[str, int]) -> None:
        failed = first_failing(rows)
        if failed is not None:
            number, found = failed
            raise GuardError(guard_message(guards[number], found))

    return check


def check_content(program: Program, opgraph: OpGraph, tensors: tuple[torch.Tensor, ...]) -> None:
    """Evaluates the decisions on what follows from the graph alone, on the whole graph.

    Args:
        program: of the step.
        opgraph: the same program.
        tensors: the whole graph's, in schema order.

    Raises:
        GuardError: one comes out differently.
    """
    ops = {op.index for op in opgraph.ops}
    made = made_of_the_graph(program)
    needed: set[int] = set()
    for number, step in enumerate(program.steps):
        if number in ops and isinstance(step, GuardStep) and made.keys() >= set(step.test.names):
            needed.add(number)
            for name in step.test.names:
                for value in ancestors(program, made, name):
                    needed.update(made[value])
    if needed:
        run_steps(program, [program.steps[number] for number in sorted(needed)], [], tensors)


def _sizes(step: Step, opgraph: OpGraph) -> dict[str, str] | None:
    """The sizes that a guard reads, longest name first, with source that computes each from ``rows``; None if not all are so."""
    if not isinstance(step, GuardStep) or isinstance(step.expected, torch.Tensor):
        return None
    known = opgraph.tensors
    values = {f"v{name[1:].partition('_')[0]}" for name in step.test.names}
    if not values or not known.keys() >= values or any(n[0] in "zia" for n in step.test.names):
        return None
    if step.held is not None and known[step.held].origin == "op":
        return None
    numbers = Numbers(lambda value: known[value].dims, opgraph.axes)
    found: dict[str, str] = {}
    rest = step.test.text
    for name, (_, dims) in sorted(numbers.sizes(rest).items(), key=lambda item: -len(item[0])):
        texts = [_rows(dim, opgraph) for dim in dims] or ["1"]
        if None in texts:
            return None
        found[name] = "(" + " * ".join(text for text in texts if text is not None) + ")"
        rest = rest.replace(name, "")
    return found if found and not Expression(rest).names else None


def _rows(dim: Dim, opgraph: OpGraph) -> str | None:
    """Source for the number of rows of a dimension; None where the graph's rows do not tell it."""
    if isinstance(dim, int):
        return str(dim)
    axis = opgraph.axes[dim]
    if axis.kind in ("base", "index"):
        return f"rows[{dim!r}]"
    parts = [_rows(part, opgraph) for part in axis.parts]
    if axis.kind not in ("concat", "blocks") or None in parts:
        return None
    total = " + ".join(part for part in parts if part is not None)
    return f"({total})" if axis.kind == "concat" else f"({total}) * {axis.width}"
