"""Sparse matrices in a recorded pass: plain tensors to the program, matrices to the model (torch).

What Python asks of a matrix whose entries are known is answered with these entries, and its products are autoplan's own
operator; so no step of the program makes or reads a sparse tensor. Anything else that is done with one is recorded as it is:
then the matrix is made in the program, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from autoplan.program.ir import OpStep
from autoplan.program.spmm import spmm, spmm_extreme
from autoplan.program.structure import leaves, map_leaves
from autoplan.program.torch_internals import (
    READ_REQUIRES_GRAD,
    READ_SHAPE,
    SPARSE_PRODUCT,
    pointers_of,
    stored_entries,
)
from autoplan.trace.adjacency import adjacency
from autoplan.trace.numbers import plain
from autoplan.trace.values import geometry

if TYPE_CHECKING:
    from autoplan.trace.recorder import Recorder

Function = Callable[..., Any]

UNANSWERED = object()
"""The call is none that is treated here."""

_PRODUCTS: frozenset[Function] = frozenset(
    {
        SPARSE_PRODUCT,
        torch.mm,
        torch.matmul,
        Tensor.mm,
        Tensor.matmul,
        Tensor.__matmul__,
    }
)
_SAME: frozenset[Function] = frozenset({Tensor.coalesce, Tensor._coalesced_, Tensor.contiguous})
_LAYOUTS: frozenset[Function] = frozenset(
    {Tensor.to_sparse_csr, Tensor.to_sparse_coo, Tensor.to_sparse}
)
_TURNED: frozenset[Function] = frozenset({Tensor.t, torch.t, Tensor.T.__get__})  # type: ignore[attr-defined]
_ANSWERED_AT_ONCE: frozenset[Function] = frozenset(
    {
        Tensor.dim,
        Tensor.is_floating_point,
        *(
            getattr(Tensor, name).__get__
            for name in ("layout", "dtype", "device", "is_cuda", "is_cpu", "ndim")
        ),
        *(getattr(Tensor, name).__get__ for name in ("is_sparse", "is_sparse_csr")),
    }
)
"""What every matrix of a kind answers alike."""
_OF_VALUES: frozenset[Function] = frozenset(
    {Tensor.to, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16, Tensor.detach}
)
"""Give a matrix with other values at the same places."""


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """A matrix.

    Attributes:
        row, column: [K] int64; value: [K, ...]. All are tensors that the pass has recorded.
        shape: rows and columns, followed.
        ordered: the rows ascend, and no entry is there twice.
    """

    row: Tensor
    column: Tensor
    value: Tensor
    shape: tuple[Any, Any]
    ordered: bool

    @property
    def turned(self) -> Entries:
        """Of the transposed matrix."""
        return Entries(self.column, self.row, self.value, self.shape[::-1], False)


class SparseTensors:
    """The matrices of one pass whose entries are known."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[int, Entries] = {}
        self._kept: list[Tensor] = []
        self._rows_of: dict[Any, Entries] = {}
        """By the geometry of pointers into the rows, the matrix."""
        self._degrees: dict[Any, Entries] = {}

    def entries(self, matrix: Any) -> Entries | None:
        """The entries of a matrix; None where they are not known."""
        return self._known.get(id(matrix)) if isinstance(matrix, Tensor) else None

    def answer(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a torch call gives that makes or uses a known matrix; `UNANSWERED` for all others."""
        if function is adjacency:
            return self._adjacency(*args)
        if function in (torch.sparse_csr_tensor, torch.sparse_coo_tensor):
            return self._constructed(function, args, kwargs)
        if function is pointers_of:
            made = self._recorder.ordinary(function, args, kwargs)
            row, rows = args[:2]
            self._rows_of[geometry(made)] = Entries(row, row, row, (rows, rows), True)
            return made
        if self._rows_of:
            found = self._of_pointers(function, args)
            if found is not UNANSWERED:
                return found
        if not self._known:
            return UNANSWERED
        own = self.entries(args[0]) if args else None
        if own is not None:
            found = self._asked(function, own, args, kwargs)
            if found is not UNANSWERED:
                return found
        if any(self.entries(leaf) is not None for leaf in leaves((args, kwargs))):
            args, kwargs = map_leaves((args, kwargs), lambda leaf, _path: self._made(leaf))
            return self._recorder.call(function, args, kwargs)
        return UNANSWERED

    # ---- where matrices come from

    def _adjacency(
        self, pairs: Tensor, values: Tensor, rows: Any, columns: Any, layout: str
    ) -> Tensor:
        with self._recorder.quiet():
            real = adjacency(pairs, values, plain(rows), plain(columns), layout)
        column, row = (self._call(Tensor.select, pairs, 0, end) for end in (0, 1))
        return self._enter(real, Entries(row, column, values, (rows, columns), True))

    def _constructed(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A matrix made of indices that the pass has recorded."""
        names = (
            ("indices", "values", "size")
            if function is torch.sparse_coo_tensor
            else ("crow_indices", "col_indices", "values", "size")
        )
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        tensors = [given.get(name) for name in names[:-1]]
        size = given.get("size")
        if size is None or len(size) != 2 or not all(isinstance(t, Tensor) for t in tensors):
            return UNANSWERED
        if function is torch.sparse_coo_tensor:
            indices, value = tensors
            row, column = (self._call(Tensor.select, indices, 0, end) for end in (0, 1))
            ordered = bool(given.get("is_coalesced", False))
        else:
            pointers, column, value = tensors
            assert isinstance(pointers, Tensor)
            known = self._rows_of.get(geometry(pointers))
            if known is None:
                return UNANSWERED
            row, ordered = known.row, known.ordered
        assert isinstance(value, Tensor)
        shape = (size[0], size[1])
        coo = function is torch.sparse_coo_tensor
        layout = torch.sparse_coo if coo else torch.sparse_csr
        return self.entered(Entries(row, column, value, shape, ordered), layout)

    def with_value(self, entries: Entries, value: Tensor, layout: torch.layout) -> Tensor:
        """The matrix with other values at the same places."""
        return self.entered(replace(entries, value=value), layout)

    def entered(self, entries: Entries, layout: torch.layout) -> Tensor:
        """The matrix of entries in any order."""
        with self._recorder.quiet():
            at = torch.stack([entries.row, entries.column]).detach()
            shape = tuple(int(plain(size)) for size in entries.shape)
            value = entries.value.detach()
            real = torch.sparse_coo_tensor(at, value, shape, check_invariants=False).coalesce()
            return self._enter(
                real if layout == torch.sparse_coo else real.to_sparse_csr(), entries
            )

    def _enter(self, matrix: Tensor, entries: Entries) -> Tensor:
        self._known[id(matrix)] = entries
        self._kept.append(matrix)
        return matrix

    def _made(self, leaf: Any) -> Any:
        """For a known matrix one that a step of the program makes; other things as they are."""
        entries = self.entries(leaf)
        if entries is None:
            return leaf
        indices = self._call(torch.stack, [entries.row, entries.column])
        made = self._recorder.ordinary(
            torch.sparse_coo_tensor,
            (indices, entries.value),
            {"size": entries.shape, "is_coalesced": entries.ordered, "check_invariants": False},
        )
        if leaf.layout == torch.sparse_csr:
            made = self._recorder.ordinary(Tensor.to_sparse_csr, (made,), {})
        return made

    # ---- what is asked of them

    def _asked(
        self, function: Function, own: Entries, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        matrix = args[0]
        if function is Tensor.coalesce and not own.ordered:
            return UNANSWERED  # entries that are there twice are to be added
        if function is Tensor.is_coalesced and matrix.layout == torch.sparse_coo:
            return own.ordered
        if function in _ANSWERED_AT_ONCE:
            return function(*args, **kwargs)
        if function in (Tensor.size, READ_SHAPE):
            dims = args[1:] or tuple(kwargs.values())
            sizes = [*own.shape, *(self._call(Tensor.size, own.value, d + 1) for d in _rest(own))]
            return sizes[plain(dims[0])] if dims else torch.Size(sizes)
        if function is READ_REQUIRES_GRAD:
            return self._call(function, own.value)
        if function in (stored_entries, Tensor.numel):
            return (
                self._call(Tensor.size, own.value, 0) if function is stored_entries else UNANSWERED
            )
        if function in (Tensor.values, Tensor._values):
            return own.value
        if function in (Tensor.indices, Tensor._indices):
            return self._call(torch.stack, [own.row, own.column])
        if function is Tensor.col_indices:
            return own.column
        if function is Tensor.crow_indices and own.ordered:
            return self._call(pointers_of, own.row, own.shape[0])
        if function in _SAME:
            return matrix
        if function in _LAYOUTS or function in _TURNED:
            with self._recorder.quiet():
                made = function(*args, **kwargs)
            if made.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
                return UNANSWERED
            made = made if made is not matrix else matrix.clone()
            return self._enter(made, own.turned if function in _TURNED else own)
        if function in _OF_VALUES:
            value = self._recorder.call(function, (own.value, *args[1:]), kwargs)
            with self._recorder.quiet():
                made = function(*args, **kwargs)
            return self._enter(
                made if made is not matrix else matrix.clone(), replace(own, value=value)
            )
        if function in _PRODUCTS:
            return self._product(own, *args[1:], **kwargs)
        return UNANSWERED

    def _product(self, own: Entries, dense: Any, reduce: str = "sum") -> Any:
        """The matrix times a dense one."""
        plain_factor = isinstance(dense, Tensor) and dense.layout == torch.strided
        if not plain_factor or dense.dim() != 2 or own.value.dim() != 1:
            return UNANSWERED
        if reduce == "sum":
            return self._times(own, dense)
        if not own.ordered:
            return UNANSWERED
        if reduce == "mean":
            ones = self._call(torch.ones_like, own.row, dtype=dense.dtype)
            none = self._recorder.call(Tensor.new_zeros, (dense, (own.shape[0],)), {})
            count = self._call(Tensor.scatter_add_, none, 0, own.row, ones)
            column = self._call(Tensor.unsqueeze, self._call(Tensor.clamp, count, min=1), 1)
            return self._call(torch.div, self._times(own, dense), column)
        return self._call(
            spmm_extreme,
            own.row,
            own.column,
            own.value,
            dense,
            own.shape[0],
            reduce in ("amax", "max"),
        )[0]

    def _times(self, own: Entries, dense: Tensor) -> Any:
        return self._call(spmm, own.row, own.column, own.value, dense, own.shape[0])

    # ---- pointers into rows, and back

    def _of_pointers(self, function: Function, args: tuple[Any, ...]) -> Any:
        """Rows that Python counts out again from the pointers."""
        if function in (Tensor.diff, torch.diff) and len(args) == 1:
            known = self._rows_of.get(geometry(args[0]))
            if known is not None:
                degrees = self._recorder.ordinary(function, args, {})
                self._degrees[geometry(degrees)] = known
                return degrees
        if function in (Tensor.repeat_interleave, torch.repeat_interleave) and len(args) > 1:
            counted = isinstance(args[1], Tensor) and self._degrees.get(geometry(args[1]))
            if counted and self._is_range(args[0]):
                return counted.row
        return UNANSWERED

    def _is_range(self, tensor: Tensor) -> bool:
        name = self._recorder.values.find(tensor)
        for recorded in reversed(self._recorder.steps):
            step = recorded.step
            if isinstance(step, OpStep) and name in step.outs:
                return step.func is torch.ops.aten.arange.default
        return False

    def _call(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.call(function, args, kwargs)


def _rest(own: Entries) -> range:
    return range(own.value.dim() - 1)
