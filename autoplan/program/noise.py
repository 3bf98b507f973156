"""One row, one draw: random numbers that depend on where a value is in the whole graph, not on who computes it.

A draw is an integer hash of (seed, step, op, row key, column), so a row that lies on several ranks gets the same numbers on
each, for any number of ranks, and nothing has to be sent. Rows and columns are hashed once each with SplitMix64 (Steele,
Lea, Flood: Fast splittable pseudorandom number generators, 2014); a cell is the sum of the two, mixed by the finaliser of
MurmurHash3 in wrapping 32-bit arithmetic. Torch's integers are signed: a shift is followed by a mask that clears the
copies of the sign.
"""

from __future__ import annotations

import torch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MURMUR_FIRST = 0x85EBCA6B - (1 << 32)
_MURMUR_SECOND = 0xC2B2AE35 - (1 << 32)
_HALF = 1 << 31

CHUNK = 1 << 17
"""Cells hashed at a time on a CPU, so that the passes over them stay in cache."""


def stream(seed: int, step: int, op: int) -> int:
    """The 64-bit name of one op's draws in one step."""
    state = 0
    for part in (seed, step, op):
        state = _mix((state + part + 1) * _GOLDEN)
    return state


def generator(seed: int, step: int, op: int, device: torch.device) -> torch.Generator:
    """A generator for ops that run whole on every rank: the same on each."""
    made = torch.Generator(device=device)
    # a generator's seed is a signed 64-bit number
    made.manual_seed(stream(seed, step, op) >> 1)
    return made


def uniform(
    key: int, rows: torch.Tensor, shape: torch.Size, dim: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Numbers in [0, 1), multiples of 2**-32 (of 2**-24 in float32).

    Args:
        key: a `stream`.
        rows: [shape[dim]] int64 keys of the rows.
        shape: of the result.
        dim: the dimension of the rows; the other dimensions, flattened in order, are the columns.
        dtype: float32 or float64.
    """
    hashed = _hash(key, rows, _columns(shape, dim))
    if dtype == torch.float32:
        # the upper 24 bits: rounding all 32 could give 1
        values = ((hashed >> 8) & 0xFFFFFF).to(dtype).mul_(2.0**-24)
    else:
        values = hashed.to(dtype).add_(_HALF).mul_(2.0**-32)
    return _restore(values, shape, dim)


def keep(key: int, rows: torch.Tensor, shape: torch.Size, dim: int, p: float) -> torch.Tensor:
    """Booleans that are True with probability ``p``, to within 2**-32.

    Args:
        key: a `stream`.
        rows: [shape[dim]] int64 keys of the rows.
        shape: of the result.
        dim: the dimension of the rows; the other dimensions, flattened in order, are the columns.
        p: probability of True.
    """
    count = _columns(shape, dim)
    result = torch.empty(rows.numel(), count, dtype=torch.bool, device=rows.device)
    threshold = round(p * 2**32) - _HALF
    if threshold <= -_HALF or threshold >= _HALF:
        result.fill_(threshold >= _HALF)
    else:
        for first, last in _chunks(rows, count):
            hashed = _hash(key, rows[first:last], count)
            torch.lt(hashed, threshold, out=result[first:last])
    return _restore(result, shape, dim)


def _mix(state: int) -> int:
    """SplitMix64's output function on a Python number."""
    state &= _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)


def _signed(number: int) -> int:
    """The signed 64-bit number of the same bits."""
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


def _mixed(values: torch.Tensor, key: int) -> torch.Tensor:
    """[n] int64 -> [n] int32: SplitMix64 of ``key + n * golden``, its lower half."""
    state = values * _signed(_GOLDEN) + _signed(key)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        state = (state ^ ((state >> shift) & ((1 << (64 - shift)) - 1))) * _signed(factor)
    state = state ^ ((state >> 31) & ((1 << 33) - 1))
    return (((state & 0xFFFFFFFF) ^ _HALF) - _HALF).to(torch.int32)


def _hash(key: int, rows: torch.Tensor, columns: int) -> torch.Tensor:
    """[rows, columns] int32, uniform over all 2**32 values."""
    numbers = torch.arange(columns, dtype=torch.int64, device=rows.device)
    row_hash = _mixed(rows, key).unsqueeze(1)
    column_hash = _mixed(numbers, _mix(key + _GOLDEN)).unsqueeze(0)
    state = row_hash + column_hash
    scratch = torch.empty_like(state)
    for shift, factor in ((16, _MURMUR_FIRST), (13, _MURMUR_SECOND)):
        torch.bitwise_right_shift(state, shift, out=scratch)
        scratch &= (1 << (32 - shift)) - 1
        state ^= scratch
        state *= factor
    torch.bitwise_right_shift(state, 16, out=scratch)
    scratch &= 0xFFFF
    state ^= scratch
    return state


def _chunks(rows: torch.Tensor, columns: int) -> list[tuple[int, int]]:
    """Ranges of rows to hash at a time."""
    total = rows.numel()
    height = max(1, CHUNK // max(columns, 1)) if rows.device.type == "cpu" else max(total, 1)
    return [(first, min(first + height, total)) for first in range(0, total, height)]


def _columns(shape: torch.Size, dim: int) -> int:
    count = 1
    for position, size in enumerate(shape):
        if position != dim:
            count *= size
    return count


def _restore(values: torch.Tensor, shape: torch.Size, dim: int) -> torch.Tensor:
    """[rows, columns] -> ``shape`` with the rows along ``dim``."""
    others = [size for position, size in enumerate(shape) if position != dim]
    return values.view(shape[dim], *others).movedim(0, dim)
