"""The sparse product is the dense one, with its gradients to second order, for entries in any order."""

import pytest
import torch
from torch import Tensor

from autoplan.program.spmm import spmm, spmm_extreme

ROWS, COLUMNS, ENTRIES = 7, 5, 20


def entries(order: str) -> tuple[Tensor, Tensor]:
    """Some twice, none in the last row."""
    generator = torch.Generator().manual_seed(2)
    row = torch.randint(0, ROWS - 1, (ENTRIES,), generator=generator)
    column = torch.randint(0, COLUMNS, (ENTRIES,), generator=generator)
    if order == "none":
        return row, column
    by = (row if order == "rows" else column).argsort(stable=True)
    return row[by], column[by]


def values() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    weight = torch.rand(ENTRIES, generator=generator, dtype=torch.float64, requires_grad=True)
    dense = torch.randn(COLUMNS, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return weight, dense


@pytest.mark.parametrize("order", ["rows", "columns", "none"])
def test_the_product_is_the_dense_one(order: str) -> None:
    row, column = entries(order)
    weight, dense = values()
    matrix = torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    matrix = matrix.index_put((row, column), weight, accumulate=True)

    torch.testing.assert_close(spmm(row, column, weight, dense, ROWS), matrix @ dense)

    def product(w: Tensor | None, x: Tensor) -> Tensor:
        return spmm(row, column, w, x, ROWS)

    assert torch.autograd.gradcheck(product, (weight, dense))
    assert torch.autograd.gradgradcheck(product, (weight, dense))
    assert torch.autograd.gradcheck(lambda x: product(None, x), (dense,))


def test_the_first_of_equal_entries_has_the_gradient() -> None:
    row, column = torch.tensor([0, 0, 0, 2]), torch.tensor([1, 0, 2, 2])
    dense = torch.tensor([[4.0], [4.0], [1.0]], requires_grad=True)
    found, entry = spmm_extreme(row, column, None, dense, 3, largest=True)
    assert found.tolist() == [[4.0], [0.0], [1.0]]
    assert entry.tolist() == [[0], [-1], [3]]
    found.sum().backward()
    assert dense.grad is not None
    assert dense.grad.tolist() == [[0.0], [1.0], [1.0]]
    pointers = torch.tensor([0, 3, 3, 4])
    csr = torch.sparse_csr_tensor(pointers, column, torch.ones(4), (3, 3), check_invariants=False)
    torch.testing.assert_close(torch.sparse.mm(csr, dense, "amax"), found)


@pytest.mark.parametrize("largest", [True, False])
def test_gradients_of_extremes(largest: bool) -> None:
    row, column = entries("rows")
    weight, dense = values()
    assert torch.autograd.gradcheck(
        lambda w, x: spmm_extreme(row, column, w, x, ROWS, largest)[0], (weight, dense)
    )


@pytest.mark.parametrize("operator", [spmm, spmm_extreme])
def test_no_entries_and_no_rows(operator) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    more = (True,) if operator is spmm_extreme else ()
    for rows in (0, 3):
        made = operator(none, none, torch.zeros(0), torch.randn(2, 4), rows, *more)
        first = made[0] if isinstance(made, tuple) else made
        assert torch.equal(first, torch.zeros(rows, 4))
