"""What kernels are told of their ops, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.program.context import RankContext
from autoplan.program.exchange import all_reduce
from autoplan.program.torch_internals import schema


@dataclass(frozen=True, slots=True, eq=False)
class KernelInfo:
    """What a kernel knows of its op beyond its arguments.

    Attributes:
        op: its index among the program's steps: what its random draws are keyed by.
        func: qualified name of the recorded op.
        dim, axis: the sharded dimension of the first tensor argument and its axis, or None.
        rows: global rows of that dimension's axis; None where it is a derived axis in a sharded state.
        keys: global keys of the local rows along ``dim``, for kernels that draw or find their rows in a whole tensor.
        whole_keys: ascending keys of all rows, for the latter.
    """

    op: int
    func: str
    dim: int | None
    rows: int | None = None
    keys: torch.Tensor | None = None
    whole_keys: torch.Tensor | None = None
    axis: str | None = None

    def at(
        self,
        rows: int | None = None,
        keys: torch.Tensor | None = None,
        whole_keys: torch.Tensor | None = None,
    ) -> KernelInfo:
        """The same op with the numbers of this run."""
        return KernelInfo(self.op, self.func, self.dim, rows, keys, whole_keys, self.axis)


Kernel = Callable[..., Any]


def global_rows(
    context: RankContext, info: KernelInfo, tensor: torch.Tensor, dim: int
) -> int | torch.Tensor:
    """Rows of all ranks along ``dim``: known, or the sum of what every rank has (a 0-dimensional int64 tensor)."""
    if info.rows is not None:
        return info.rows
    return all_reduce(context, torch.tensor(tensor.size(dim), device=tensor.device))


def sharded_dim(info: KernelInfo) -> int:
    """The sharded dimension; kernels over rows are only named in strategies of ops that have one."""
    assert info.dim is not None
    return info.dim


def call_overload(operator: Any, arguments: Mapping[str, Any]) -> Any:
    """Calls an overload with all arguments by name; ``self`` among them."""
    positional = [arguments[a.name] for a in schema(operator).arguments if not a.kwarg_only]
    named = {a.name: arguments[a.name] for a in schema(operator).arguments if a.kwarg_only}
    return operator(*positional, **named)
