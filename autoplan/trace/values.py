"""Names for the tensors of one recorded pass."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from autoplan.program.ir import Sample
from autoplan.program.torch_internals import storage_id


def geometry(tensor: Tensor) -> Hashable:
    """What a view is known by: memory, offset, shape, strides and dtype; a sparse tensor by its identity.

    Below autograd a view is another object than the one that Python holds.
    """
    if tensor.layout != torch.strided:
        return id(tensor)
    return (
        storage_id(tensor),
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
    )


class Values:
    """Names by tensor, and tensors by name; named tensors are kept alive so that identities stay unique."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._by_identity: dict[int, str] = {}
        self._by_geometry: dict[Hashable, str] = {}
        self._kept: list[Tensor] = []

    def new(self, tensor: Tensor) -> str:
        """A fresh name for the tensor."""
        name = f"v{len(self.tensors)}"
        self.tensors[name] = tensor
        self.shapes[name] = tuple(tensor.shape)
        self._by_geometry[geometry(tensor)] = name
        self.remember(tensor, name)
        return name

    def remember(self, tensor: Tensor, name: str) -> None:
        """From now on this very object has that name."""
        self._by_identity[id(tensor)] = name
        self._kept.append(tensor)

    def of_object(self, tensor: Tensor) -> str | None:
        """The name of this very object, unless an op reshaped it in place (``t_``): then it is another value."""
        name = self._by_identity.get(id(tensor))
        if name is None or self.shapes[name] != tuple(tensor.shape):
            return None
        return name

    def find(self, tensor: Tensor) -> str | None:
        """The name of this object, or of the latest value with its geometry."""
        return self.of_object(tensor) or self._by_geometry.get(geometry(tensor))

    def result(self, tensor: Tensor) -> str:
        """The name of what an op returned: the written value's own for an in-place op, else a new one."""
        name = self.of_object(tensor) or self.new(tensor)
        self._by_geometry[geometry(tensor)] = name
        return name

    def sample(self) -> Sample:
        """Shapes, dtypes, strides and shared memory of all values."""
        first_holder: dict[int, str] = {}
        alias: dict[str, str] = {}
        for name, tensor in self.tensors.items():
            strided = tensor.layout == torch.strided
            alias[name] = first_holder.setdefault(storage_id(tensor), name) if strided else name
        return Sample(
            shapes=dict(self.shapes),
            dtypes={name: tensor.dtype for name, tensor in self.tensors.items()},
            strides={
                name: tuple(tensor.stride()) if tensor.layout == torch.strided else ()
                for name, tensor in self.tensors.items()
            },
            alias=alias,
        )
