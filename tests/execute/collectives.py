"""Checks that run inside a worker: see test_train.py, which calls them from a step so as not to start more processes."""

from __future__ import annotations

import sys

import torch

from autoplan.program.context import RankContext

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def check(context: RankContext) -> None:
    """Raises AssertionError where a collective gives something else than expected."""
    if context.step > 0:
        return
    assert "torch_geometric" not in sys.modules
    rank = context.communicator.rank
    for dtype in DTYPES:
        for width in ((), (3,), (2, 2)):
            exchange_rows(context, rank, dtype, width)
        add_up(context, rank, dtype)


def exchange_rows(
    context: RankContext, rank: int, dtype: torch.dtype, width: tuple[int, ...]
) -> None:
    """Rank 0 keeps 1 row and sends 3; rank 1 keeps 2 and sends none. Then nobody sends anything."""
    send = ((1, 3), (0, 2))[rank]
    receive = ((1, 0), (3, 2))[rank]
    rows = value(sum(send), 10 * rank, dtype, width)
    expected = rows[:1] if rank == 0 else torch.cat([value(4, 0, dtype, width)[1:], rows])
    found = context.communicator.all_to_all(rows, send, receive)
    assert found.dtype == dtype
    assert torch.equal(found, expected), (dtype, width, found, expected)
    nothing = context.communicator.all_to_all(rows[:0], (0, 0), (0, 0))
    assert nothing.shape == (0, *width)


def add_up(context: RankContext, rank: int, dtype: torch.dtype) -> None:
    own = value(4, rank, dtype, (2,))
    kept = own.clone()
    found = context.communicator.all_reduce(own)
    parts = value(4, 0, dtype, (2,)), value(4, 1, dtype, (2,))
    expected = parts[0] | parts[1] if dtype == torch.bool else parts[0] + parts[1]
    assert found.dtype == dtype
    assert torch.equal(found, expected), (dtype, found, expected)
    assert torch.equal(own, kept)


def value(rows: int, start: int, dtype: torch.dtype, width: tuple[int, ...]) -> torch.Tensor:
    numbers = torch.arange(start, start + rows).view(rows, *(1,) * len(width))
    return (numbers % 3).expand(rows, *width).to(dtype)
