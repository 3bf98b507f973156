"""Structures of tensors and plain values."""

from __future__ import annotations

import collections
import math

import torch
from torch_geometric.data import Data

from autoplan.program.structure import clone_tensors, leaves, map_leaves, same

Pair = collections.namedtuple("Pair", ["a", "b"])


def test_leaves_and_paths() -> None:
    paths = []
    data = Data(x=torch.ones(1), edge_index=torch.zeros(2, 1))
    obj = (1, [2, {"k": 3}], Pair(4, 5), slice(6, None), data)
    map_leaves(obj, lambda leaf, path: paths.append(path))
    assert paths == [
        ".0",
        ".1.0",
        ".1.1.k",
        ".2.0",
        ".2.1",
        "",
        "",
        "",
        ".4.0.x",
        ".4.0.edge_index",
    ]
    assert leaves(obj)[:6] == [1, 2, 3, 4, 5, 6]


def test_types_are_kept() -> None:
    doubled = map_leaves((Pair(1, 2), [3]), lambda leaf, _: leaf * 2)
    assert doubled == (Pair(2, 4), [6])
    assert type(doubled[0]) is Pair


def test_clones_are_leaves_of_autograd() -> None:
    x = torch.ones(2, requires_grad=True)
    first, second = clone_tensors((x * 2, x))
    assert first.is_leaf
    assert first.requires_grad
    assert second is not x


def test_same() -> None:
    assert same(math.nan, math.nan)
    assert not same(1, 1.0)
    assert same(torch.ones(2), torch.ones(2))
    assert not same(torch.ones(2), torch.ones(2, dtype=torch.double))
    assert not same(torch.ones(2), 1)
