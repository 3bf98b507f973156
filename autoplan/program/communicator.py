"""What a rank needs of a group: two collectives. Differentiation is `exchange`'s business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from autoplan.errors import PlanError


@runtime_checkable
class Communicator(Protocol):
    """A group of ranks, seen from one of them. Every rank makes the same calls in the same order.

    Attributes:
        rank: this rank; size: number of ranks.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_to_all(
        self, buffer: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> torch.Tensor:
        """Sends rows to every rank and receives rows from every rank.

        Args:
            buffer: [sum of send_counts, ...] contiguous; rows for rank 0 first, then those for rank 1, and so on.
            send_counts: rows for each rank.
            recv_counts: rows from each rank.

        Returns:
            [sum of recv_counts, ...] in a tensor of its own; rows from rank 0 first.
        """
        ...

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in a tensor of its own; every rank gets the same bits."""
        ...


class LocalCommunicator:
    """A group of one rank."""

    rank = 0
    size = 1

    def all_to_all(
        self, buffer: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> torch.Tensor:
        """A copy of the rows it sends to itself."""
        return buffer.clone()

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy."""
        return tensor.clone()


class SilentCommunicator:
    """The place of one part of a batch among the parts: it runs as a rank would, but parts never talk to each other.

    Attributes:
        rank: number of the part; size: number of parts.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def all_to_all(
        self, buffer: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> torch.Tensor:
        """A copy where nothing is sent or expected. Raises PlanError otherwise."""
        if any(send_counts) or any(recv_counts):
            raise self._refusal("exchange rows")
        return buffer.clone()

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Raises PlanError."""
        raise self._refusal("sum")

    def _refusal(self, what: str) -> PlanError:
        return PlanError(
            f"part {self.rank} of {self.size} is to {what} with other parts of its batch, which run at other times; "
            "use one micro-batch"
        )


def part_communicator(rank: int, size: int) -> Communicator:
    """The communicator of a part of a batch, for its context: the whole batch, or one of several that never talk."""
    return LocalCommunicator() if size == 1 else SilentCommunicator(rank, size)
