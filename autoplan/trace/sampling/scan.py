"""Facts about a relation of any size, found in passes over pieces of it: nothing as long as the relation is made (torch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

PIECE = 2**16
"""Pairs that are looked at together."""

_FIRST, _SECOND, _THIRD = 0x2545F4914F6CDD1D, 0x1B873593CC9E2D51, 0x4CF5AD432745937F
"""Odd multipliers that spread the bits of two ids."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What samples of a relation keep of it.

    Attributes:
        digest: of its pairs, whatever their order; flipped: of its pairs with their ends exchanged. Zero where they need not be
            looked at to know that they differ.
        loops: a pair joins a node with itself (told of relations within one type only).
        ordered: the ends (0: sources, 1: destinations) along which it ascends.
        within: both ends of every pair lie in one graph of the batch.
        grouped: the graphs of its sources ascend.
    """

    digest: int
    flipped: int
    loops: bool
    ordered: tuple[int, ...]
    within: bool
    grouped: bool

    @property
    def symmetric(self) -> bool:
        """Whether every pair is there in both directions, equally often (but for one chance in 2**64); False where there is none."""
        return self.digest == self.flipped != 0

    def reverses(self, other: Facts) -> bool:
        """Whether it holds the pairs of another relation with their ends exchanged."""
        return self.digest == other.flipped != 0


def pieces(ends: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Sources and destinations, int64 on the CPU, piece by piece, each with the row where it begins."""
    for start in range(0, ends.size(1), PIECE):
        source, target = ends[:, start : start + PIECE].to("cpu", torch.int64)
        yield start, source, target


def facts_of(
    ends: Tensor, batches: tuple[Tensor, Tensor] | None, *, one_type: bool = True
) -> Facts:
    """Looks at every pair once or twice.

    Args:
        ends: [2, E] integers.
        one_type: both ends are nodes of one type.
        batches: the graph of each source and of each destination node, where there are several graphs.
    """
    loops, within, grouped = False, True, True
    ascending, last = [True, True], [-1, -1]
    last_graph, difference = -1, 0
    for _, source, target in pieces(ends):
        difference += int(source.sum()) - int(target.sum())
        loops = loops or bool((source == target).any())
        for end, values in enumerate((source, target)):
            if ascending[end]:
                ascending[end] = int(values[0]) >= last[end] and _ascends(values)
                last[end] = int(values[-1])
        if batches is not None:
            graphs = batches[0].index_select(0, source)
            within = within and torch.equal(graphs, batches[1].index_select(0, target))
            grouped = grouped and int(graphs[0]) >= last_graph and _ascends(graphs)
            last_graph = int(graphs[-1])
    several = ends.size(1) > 1
    ordered = tuple(end for end in (1, 0) if ascending[end] and several)
    digest, flipped = (0, 0) if one_type and difference else _digests(ends)
    return Facts(digest, flipped, loops, ordered, within, grouped)


def _digests(ends: Tensor) -> tuple[int, int]:
    """Of the pairs, and of the pairs with their ends exchanged: equal for equal pairs in any order."""
    digest = flipped = 0
    for _, source, target in pieces(ends):
        digest += int(mixed(source, target).sum())
        flipped += int(mixed(target, source).sum())
    return digest % 2**64, flipped % 2**64


def _ascends(values: Tensor) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def mixed(first: Tensor, second: Tensor) -> Tensor:
    """A number for each pair in this order; 64-bit arithmetic wraps around."""
    spread = first * _FIRST + second * _SECOND
    spread ^= spread >> 29
    spread *= _THIRD
    spread ^= spread >> 32
    return spread
