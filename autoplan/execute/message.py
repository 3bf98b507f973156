"""What two stages send each other for one micro-batch, as one buffer of bytes.

Tensors travel bit for bit, in their own dtypes. Both sides know the shapes: rows of base and index axes, and of what is made
of them, follow from the micro-batch's part of the graph. Sizes that depend on data go ahead in a header, one int64 each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

from autoplan.errors import ExecutionError
from autoplan.opgraph import Axis, State, TensorMeta
from autoplan.program.context import RankContext
from autoplan.program.rank_program import TensorKey
from autoplan.stages import Crossing, unknown_axes


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The tensors that one stage sends another for one micro-batch, or the gradients that come back.

    Attributes:
        keys: of the tensors, in the order in which they lie in the buffer: wide elements first, so that each lies at a
            multiple of its element's size and nothing is padded.
        metas: what they are; axes: of their dimensions, and what these are made of.
        header: the axes whose rows are sent ahead.
    """

    keys: tuple[TensorKey, ...]
    metas: tuple[TensorMeta, ...]
    axes: Mapping[str, Axis]
    header: tuple[str, ...]

    @classmethod
    def of(
        cls,
        crossings: Sequence[Crossing],
        tensors: Mapping[str, TensorMeta],
        axes: Mapping[str, Axis],
        *,
        gradients: bool = False,
    ) -> Message:
        """The message of what crosses from one stage to another; with ``gradients``, of what comes back for it."""
        carried = [c for c in crossings if c.gradient or not gradients]
        wide_first = sorted(carried, key=lambda c: -dtype_of(tensors[c.tensor]).itemsize)
        metas = tuple(tensors[c.tensor] for c in wide_first)
        # whoever gets a gradient has the tensor, and so its shape
        header = () if gradients else unknown_axes(metas, axes)
        return cls(tuple((c.tensor, c.state) for c in wide_first), metas, axes, header)

    def sizes(self, values: Mapping[TensorKey, torch.Tensor]) -> torch.Tensor:
        """[header] int64: the rows that are sent ahead."""
        found: list[int] = []
        for axis in self.header:
            holder = next(i for i, meta in enumerate(self.metas) if axis in meta.dims)
            found.append(values[self.keys[holder]].size(self.metas[holder].dims.index(axis)))
        return torch.tensor(found, dtype=torch.int64)

    def shapes(self, context: RankContext, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors, where the header holds ``sizes``."""
        ahead = dict(zip(self.header, sizes, strict=True))
        return tuple(
            tuple(
                dim if isinstance(dim, int) else self._rows(dim, state, context, ahead)
                for dim in meta.dims
            )
            for meta, (_, state) in zip(self.metas, self.keys, strict=True)
        )

    def bytes(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Bytes of the buffer, without the header."""
        pairs = zip(self.metas, shapes, strict=True)
        return sum(dtype_of(meta).itemsize * prod(shape) for meta, shape in pairs)

    def pack(
        self, values: Mapping[TensorKey, torch.Tensor], shapes: Sequence[tuple[int, ...]]
    ) -> torch.Tensor:
        """[bytes] uint8: the tensors one after the other.

        Raises:
            ExecutionError: a tensor that is not what the other side expects.
        """
        parts = []
        for key, meta, shape in zip(self.keys, self.metas, shapes, strict=True):
            value = values[key].detach()
            expected = (dtype_of(meta), torch.strided, shape)
            if (value.dtype, value.layout, tuple(value.shape)) != expected:
                raise ExecutionError(
                    f"tensor {key[0]} is {value.dtype} {value.layout} of shape {tuple(value.shape)}, but the stage that "
                    f"reads it expects {expected[0]} of shape {shape}; plan again for this graph"
                )
            # the conjugate and negative bits are no bytes of their own
            whole = value.resolve_conj().resolve_neg().contiguous()
            parts.append(whole.reshape(-1).view(torch.uint8))
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)

    def unpack(
        self, buffer: torch.Tensor, shapes: Sequence[tuple[int, ...]]
    ) -> dict[TensorKey, torch.Tensor]:
        """The tensors in a buffer, which they share."""
        found: dict[TensorKey, torch.Tensor] = {}
        offset = 0
        for key, meta, shape in zip(self.keys, self.metas, shapes, strict=True):
            size = dtype_of(meta).itemsize * prod(shape)
            piece = buffer[offset : offset + size]
            found[key] = piece.view(dtype_of(meta)).view(shape)
            offset += size
        return found

    def _rows(self, axis: str, state: State, context: RankContext, ahead: Mapping[str, int]) -> int:
        about = self.axes[axis]
        if axis in ahead:
            return ahead[axis]
        if about.kind == "concat":
            return sum(self._rows(part, state, context, ahead) for part in about.parts)
        if about.kind == "blocks":
            return about.width * self._rows(about.parts[0], state, context, ahead)
        return context.rows(axis, state)


def dtype_of(meta: TensorMeta) -> torch.dtype:
    """Torch's dtype of a tensor."""
    dtype: torch.dtype = getattr(torch, meta.dtype)
    return dtype
