"""Which graphs of a collection each step takes. Equal wherever it is asked: in the parent and in every worker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoplan.errors import PlanError
from autoplan.partition.ownership import IntArray


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """The order in which graphs are trained on.

    Attributes:
        graphs: how many there are, G; batch_size: of them in a step, at most G. The last step of an epoch takes what is
            left.
        seed: of the order. Every epoch visits each graph once, in an order of its own where a step takes fewer than all.
    """

    graphs: int
    batch_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.graphs:
            raise PlanError(
                f"a step takes {self.batch_size} of {self.graphs} graphs; it must be at least 1 and no more than there are"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every graph is used once."""
        return -(-self.graphs // self.batch_size)

    def batch(self, step: int) -> IntArray:
        """[B] the numbers of the graphs of a step (from 0, counted over all epochs), in the order they have in its batch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self.batch_size == self.graphs:
            return np.arange(self.graphs)
        first = position * self.batch_size
        return _order(self.graphs, self.seed, epoch)[first : first + self.batch_size]


@lru_cache(maxsize=2)
def _order(graphs: int, seed: int, epoch: int) -> IntArray:
    """[graphs] a random order of one epoch; the last ones are kept, as every step of an epoch asks for its order."""
    order = np.random.default_rng((seed % 2**64, epoch)).permutation(graphs)
    order.flags.writeable = False
    return order
