"""From recordings to one program: formulas, guards, and what is dropped."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from autoplan.program.ir import Expression, GuardStep, OpStep, Program, SizeStep
from tests.trace.trapping import program_of, refusal_of


def arguments(program: Program, operator: str) -> list[str]:
    """The formulas among an operator's arguments, tensors left out."""
    return [
        argument.text
        for step in program.steps
        if isinstance(step, OpStep) and str(step.func) == operator
        for argument in step.args
        if isinstance(argument, Expression) and not argument.text.startswith("v")
    ]


def guards(program: Program) -> dict[str, object]:
    return {step.test.text: step.expected for step in program.steps if isinstance(step, GuardStep)}


def test_a_number_from_python_keeps_its_formula() -> None:
    _, program = program_of(lambda model, x, edge_index: x.new_zeros(2 * x.size(0) + 1, 8))
    size = f"s{program.inputs[0][1:]}_0"
    assert arguments(program, "aten.new_zeros.default") == [f"((2 * {size}) + 1)"]


def test_a_number_computed_inside_torch_is_explained_from_the_calls_tensors() -> None:
    _, program = program_of(lambda model, x, edge_index: x.unsqueeze(0).repeat(3, 1, 1) @ x.t())
    (repeated,) = [
        step.outs[0]
        for step in program.steps
        if isinstance(step, OpStep) and str(step.func) == "aten.repeat.default"
    ]
    views = [
        step.args[1]
        for step in program.steps
        if isinstance(step, OpStep) and str(step.func) == "aten.view.default"
    ]
    assert [str(size) for size in views] == [f"(3 * {repeated}.size(1))"]


def test_formulas_that_agree_by_accident_are_held_together() -> None:
    def body(model, x, edge_index):
        rows, others = x.size(0), model.linear(x).size(0)
        return torch.zeros(rows, 8) + torch.ones(others, 8)

    _, program = program_of(body)
    sizes = [step for step in program.steps if isinstance(step, SizeStep)]
    assert len(sizes) == 2
    assert arguments(program, "aten.zeros.default") == [sizes[0].name]
    assert arguments(program, "aten.ones.default") == [sizes[1].name]


def test_a_size_that_never_varied_is_held() -> None:
    _, program = program_of(lambda model, x, edge_index: x.view(-1, x.size(1)))
    assert guards(program)[f"{program.inputs[0]}.size(1)"] == 8
    assert guards(program)[f"s{program.inputs[0][1:]}_1"] == 8


def picked_rows(use: Callable[[Tensor], Tensor]) -> tuple[str, Program]:
    """A program that picks no row in any sample, and the name of what it picked."""
    _, program = program_of(lambda model, x, edge_index: use(x[(x[:, 0] < -100)]) + x.sum())
    (picked,) = [
        step.outs[0]
        for step in program.steps
        if isinstance(step, OpStep) and str(step.func) == "aten.index.Tensor"
    ]
    return picked, program


def test_rows_chosen_by_content_are_held_where_an_op_may_be_told_their_number() -> None:
    picked, program = picked_rows(lambda rows: torch.ones(1).expand_as(rows[:, 0]).sum())
    assert guards(program)[f"{picked}.size(0)"] == 0


def test_rows_chosen_by_content_are_free_where_no_number_follows_from_them() -> None:
    picked, program = picked_rows(lambda rows: (rows * 2).sum())
    assert f"{picked}.size(0)" not in guards(program)


def test_sizes_and_reads_that_nothing_uses_are_dropped() -> None:
    def body(model, x, edge_index):
        edge_index.max().item()
        edge_index.size(1)
        return x * 2

    _, program = program_of(body)
    assert not [step for step in program.steps if isinstance(step, SizeStep)]
    names = [str(step.func) for step in program.steps if isinstance(step, OpStep)]
    assert "aten._local_scalar_dense.default" not in names


def test_a_refusal_says_where_and_what() -> None:
    def body(model, x, edge_index):
        return x * 2 if x.size(0) % 2 else x + 1

    reason = refusal_of(body)
    assert "runs part at test_generalise.py:" in reason
    assert "% 2)) is False | " in reason


def test_entries_of_a_matrix_that_are_there_twice_are_added() -> None:
    def body(model: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
        twice = torch.cat([edge_index, edge_index], 1)
        made = torch.sparse_coo_tensor(
            twice, torch.ones(twice.size(1)), (x.size(0), x.size(0)), check_invariants=False
        )
        return x * made.coalesce().values().square().sum()

    _, program = program_of(body)
    assert "aten._coalesce.default" in [
        str(step.func) for step in program.steps if isinstance(step, OpStep)
    ]
