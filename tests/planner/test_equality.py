"""Proves that two runs' outputs are compared by what they hold, whatever class they are of, and that a difference is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from autoplan.planner.equality import values_error


@dataclass
class Scores:
    logits: Tensor
    name: str = "scores"


class Plain:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.own = self


@pytest.mark.parametrize(
    "made", [Scores, Plain, lambda logits: Data(x=logits), lambda logits: {"a": [logits, None, 3]}]
)
def test_outputs_are_compared_by_what_they_hold(made: Any) -> None:
    logits = torch.arange(6.0).view(3, 2)
    assert values_error([made(logits)], [made(logits.clone())]) == 0.0
    assert values_error([made(logits)], [made(logits + 0.5)]) == pytest.approx(0.1)
    assert values_error([made(logits)], [made(logits[:2])]) == math.inf


def test_other_structures_and_words_differ_infinitely() -> None:
    logits = torch.ones(2)
    assert values_error([Scores(logits)], [(logits, "scores")]) == math.inf
    assert values_error([Scores(logits)], [Scores(logits, "others")]) == math.inf
    assert values_error([logits], [None]) == math.inf
