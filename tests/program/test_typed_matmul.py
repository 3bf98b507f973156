"""The operator for rows with a matrix of their type: values, gradients of two orders, types in any order, empty ones."""

from __future__ import annotations

import pytest
import torch

from autoplan.program.typed_matmul import typed_matmul, typed_outer

KINDS = {
    "ascending": torch.tensor([0, 0, 2, 2, 2, 3]),
    "mixed": torch.tensor([3, 0, 2, 0, 3, 2]),
    "one": torch.tensor([1, 1, 1, 1, 1, 1]),
}


def operands(rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, weight


@pytest.mark.parametrize("name", KINDS)
def test_values_and_gradients(name: str) -> None:
    (x, weight), kind = operands(), KINDS[name]
    expected = torch.einsum("ni,nio->no", x, weight[kind])
    torch.testing.assert_close(typed_matmul(x, kind, weight), expected)
    assert torch.autograd.gradcheck(lambda a, b: typed_matmul(a, kind, b), (x, weight))
    assert torch.autograd.gradgradcheck(lambda a, b: typed_matmul(a, kind, b), (x, weight))


def test_outer_products_by_type() -> None:
    (x, _), kind = operands(), KINDS["mixed"]
    y = torch.arange(12, dtype=torch.float64).view(6, 2).requires_grad_()
    found = typed_outer(x, y, kind, 4)
    for number in range(4):
        rows = kind == number
        torch.testing.assert_close(found[number], x[rows].t() @ y[rows])
    assert torch.autograd.gradcheck(lambda a, b: typed_outer(a, b, kind, 4), (x, y))


def test_a_rank_without_rows() -> None:
    x, weight = operands(0)
    none = torch.empty(0, dtype=torch.int64)
    result = typed_matmul(x, none, weight)
    assert result.shape == (0, 2)
    result.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
