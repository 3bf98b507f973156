from __future__ import annotations

import itertools

import pytest
import torch

from autoplan.program import noise

ROWS, COLUMNS = 4000, 64
KEY = noise.stream(7, 3, 11)


def draws(key=KEY, rows=None, shape=(ROWS, COLUMNS), dim=0, p=0.3):
    rows = torch.arange(shape[dim]) if rows is None else rows
    return noise.keep(key, rows, torch.Size(shape), dim, p)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_mean_and_variance_per_row_and_column(p):
    kept = draws(p=p).double()
    variance = p * (1 - p)
    assert kept.mean().item() == pytest.approx(p, abs=5 * (variance / kept.numel()) ** 0.5)
    # means of rows and of columns scatter as those of independent draws do
    for dim, size in ((1, COLUMNS), (0, ROWS)):
        means = kept.mean(dim)
        expected = variance / size
        assert means.var().item() == pytest.approx(expected, rel=6 * (2 / means.numel()) ** 0.5)


def correlation(first, second):
    first, second = first.double().flatten(), second.double().flatten()
    return torch.corrcoef(torch.stack([first, second]))[0, 1].item()


def test_neighbouring_rows_columns_and_steps_are_independent():
    bound = 5 / (ROWS * COLUMNS) ** 0.5
    kept = draws(p=0.5)
    for shift in (1, 2, 3, 32):
        assert abs(correlation(kept[shift:], kept[:-shift])) < bound * 1.1
        assert abs(correlation(kept[:, shift:], kept[:, :-shift])) < bound * 1.6
    for other in (noise.stream(8, 3, 11), noise.stream(7, 4, 11), noise.stream(7, 3, 12)):
        assert abs(correlation(kept, draws(other, p=0.5))) < bound
    # pairs of cells: exclusive or of a rectangle's corners would be constant for a hash that only adds
    corners = kept[:-1, :-1] ^ kept[1:, :-1] ^ kept[:-1, 1:] ^ kept[1:, 1:]
    assert abs(corners.double().mean().item() - 0.5) < bound


def test_uniform_is_flat_and_below_one():
    values = noise.uniform(KEY, torch.arange(ROWS), torch.Size([ROWS, COLUMNS]), 0)
    counts = torch.histc(values, 64, 0, 1)
    expected = values.numel() / 64
    assert ((counts - expected).square() / expected).sum().item() < 63 + 6 * (2 * 63) ** 0.5
    assert values.min() >= 0
    assert values.max() < 1
    fine = noise.uniform(KEY, torch.arange(9), torch.Size([9, 4]), 0, torch.float64)
    assert torch.allclose(fine.float(), values[:9].new_tensor(fine.tolist()))
    assert fine.unique().numel() == 36


def test_a_row_has_one_draw_wherever_it_lies():
    whole = draws()
    rows = torch.tensor([5, 3999, 0, 5, 17])
    assert torch.equal(draws(rows=rows, shape=(5, COLUMNS)), whole[rows])
    assert draws(rows=rows[:0], shape=(0, COLUMNS)).shape == (0, COLUMNS)


def test_rows_along_any_dimension():
    whole = draws(shape=(50, 12))
    assert torch.equal(draws(shape=(50, 3, 4)), whole.view(50, 3, 4))
    assert torch.equal(draws(shape=(3, 50, 4), dim=1), whole.view(50, 3, 4).movedim(0, 1))
    assert torch.equal(draws(shape=(50,)), whole[:, 0])


def test_chunks_do_not_show(monkeypatch):
    whole = draws()
    monkeypatch.setattr(noise, "CHUNK", 1000)
    assert torch.equal(draws(), whole)


def test_large_keys_and_extreme_probabilities():
    keys = torch.tensor([0, 2**31, 2**32, 2**40, 2**62])
    assert draws(rows=keys, shape=(5, 200), p=0.5).unique(dim=0).shape[0] == 5
    assert draws(p=1.0).all()
    assert not draws(p=0.0).any()
    assert draws(p=1 - 2.0**-40).all()


def test_streams_differ():
    parts = list(itertools.product((0, 1, -1, 2**40), (0, 1, 2), (0, 1, 2)))
    assert len({noise.stream(*p) for p in parts}) == len(parts)


def test_generators_are_seeded_alike():
    cpu = torch.device("cpu")
    first, second, other = (
        torch.rand(3, generator=noise.generator(seed, 1, 2, cpu)) for seed in (5, 5, 6)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
