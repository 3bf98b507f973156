"""Proves that data classes are flattened and restored field by field, nested and frozen, and that none is registered with torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

from autoplan.program.records import flatten
from autoplan.program.torch_internals import tree_unflatten


class Pair(NamedTuple):
    left: Tensor
    right: object


@dataclass(frozen=True, slots=True)
class Inner:
    scores: Tensor
    name: str = "inner"


@dataclass
class Outer:
    inner: Inner
    pair: Pair
    count: int
    nothing: None = None

    def __post_init__(self) -> None:
        self.count += 1


def test_a_data_class_comes_back_as_it_was_and_unregistered() -> None:
    scores, other = torch.arange(3.0), torch.ones(2)
    given = {"out": Outer(Inner(scores), Pair(other, [Inner(other, "deep")]), 4)}
    flat, spec = flatten(given)
    assert [leaf for leaf in flat if not isinstance(leaf, Tensor)] == ["inner", "deep", 5, None]
    doubled = [leaf * 2 if isinstance(leaf, Tensor) else leaf for leaf in flat]
    made = tree_unflatten(doubled, spec)["out"]
    assert isinstance(made, Outer)
    assert isinstance(made.inner, Inner)
    assert isinstance(made.pair, Pair)
    assert made.count == 5  # __post_init__ is not run again
    assert torch.equal(made.inner.scores, scores * 2)
    assert made.pair.right[0].name == "deep"
    assert given["out"].inner.scores is scores
    assert not {Outer, Inner} & set(_pytree.SUPPORTED_NODES)


def test_instances_of_one_class_have_one_structure() -> None:
    one, many = flatten(Inner(torch.ones(2)))[1], flatten(Inner(torch.ones(5)))[1]
    assert one == many
    assert repr(one) == repr(many)
    assert one != flatten(Pair(torch.ones(2), "inner"))[1]
