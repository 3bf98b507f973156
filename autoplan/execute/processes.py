"""The collectives of a step between processes: a communicator over torch.distributed, and DDP's gradient exchange.

Annotations are not postponed here (no ``from __future__``): DistributedDataParallel compares those of its hook with types.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

# what gloo moves and adds by itself; other types travel as their bytes or as a type that holds them
_SENT_AS_IS = frozenset(
    {torch.float16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int32, torch.int64}
)


class ProcessCommunicator:
    """Implements `autoplan.program.communicator.Communicator` for the ranks of a process group.

    Attributes:
        rank: this process's rank in the group.
        size: the number of ranks P.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        """Takes the default group unless another is given. `torch.distributed` must be initialised."""
        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def all_to_all(
        self, buffer: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> torch.Tensor:
        """Sends rows to every rank and returns the rows received, in rank order.

        Args:
            buffer: [sum(send_counts), ...] any dtype; the rows for rank 0 first.
            send_counts: [P] rows for each rank; zeros are allowed anywhere.
            recv_counts: [P] rows from each rank: what that rank's ``send_counts`` say for this one.

        Returns:
            [sum(recv_counts), ...], of the buffer's dtype and device.
        """
        sent = buffer.contiguous()
        received = sent.new_empty((sum(recv_counts), *sent.shape[1:]))
        dist.all_to_all_single(
            _as_bytes(received), _as_bytes(sent), list(recv_counts), list(send_counts), self._group
        )
        return received

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the sum of all ranks' tensors, of the same shape and dtype; booleans are or-ed."""
        if tensor.is_complex():
            return torch.view_as_complex(self.all_reduce(torch.view_as_real(tensor)))
        if tensor.dtype == torch.bool:
            return self._sum(tensor.to(torch.uint8)).ne_(0).to(torch.bool)
        if tensor.dtype not in _SENT_AS_IS:
            wider = torch.float32 if tensor.is_floating_point() else torch.int32
            return self._sum(tensor.to(wider)).to(tensor.dtype)
        return self._sum(tensor.clone(memory_format=torch.contiguous_format))

    def _sum(self, own: torch.Tensor) -> torch.Tensor:
        """Sums in place; ``own`` must be contiguous and nobody else's."""
        dist.all_reduce(own, group=self._group)
        return own


def mean_over_ranks(
    ranks: int,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # mypy does not see this name
) -> torch.futures.Future[torch.Tensor]:
    """Communication hook of DistributedDataParallel: all-reduces a bucket of gradients and divides it by the ranks.

    Torch's own does the same; this one is sure to pass through Python, where `audit` counts it.
    """
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None

    def divide(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        return future.value()[0].div_(ranks)

    future: torch.futures.Future[list[torch.Tensor]] = work.get_future()
    return future.then(divide)


def _as_bytes(rows: torch.Tensor) -> torch.Tensor:
    """The same memory in a type that gloo moves, with the same rows."""
    if rows.dtype in _SENT_AS_IS:
        return rows
    flat = torch.view_as_real(rows) if rows.is_complex() else rows
    if flat.dtype in _SENT_AS_IS:
        return flat
    return (flat.unsqueeze(-1) if flat.dim() == 1 else flat).view(torch.uint8)
