"""Convolutions over the time of every node."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.trace.recorded import CLASSES, FEATURES, described, ops, strategies


class OverTime(nn.Module):
    """Nodes as the batch, or as a place beside time."""

    def __init__(self, *, places: bool, kernel: tuple[int, int] = (3, 1)) -> None:
        super().__init__()
        self.places = places
        self.beside = nn.Conv2d(4, CLASSES, kernel)
        self.each = nn.Conv1d(4, CLASSES, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        steps = x.view(-1, 4, FEATURES // 4)
        if not self.places:
            return self.each(steps).squeeze(-1)
        return self.beside(steps.permute(1, 2, 0).unsqueeze(0)).squeeze(2)[0].t()


def test_nodes_as_the_batch():
    (op,) = ops(described(OverTime(places=False)), "convolution")
    assert strategies(op) == {
        "R": ("RRR", "R"),
        "O": ("ORR", "O"),
        "H": ("HRR", "H"),
    }


def test_nodes_as_places():
    (op,) = ops(described(OverTime(places=True)), "convolution")
    assert "O" in strategies(op)


def test_a_kernel_that_reaches_past_a_node():
    class Past(OverTime):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            padded = torch.nn.functional.pad(x.t().view(1, 4, 3, -1), (1, 1))
            return self.beside(padded).squeeze(2)[0].t()

    (op,) = ops(described(Past(places=True, kernel=(3, 3))), "convolution")
    assert set(strategies(op)) == {"R"}
