"""Orders and sparse matrices of a graph that are made once: edges sorted by destination, and by source."""

from __future__ import annotations

import warnings
from functools import cached_property

import torch
from torch import Tensor


def csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A CSR matrix whose parts are right by construction."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)


def starts(counts: Tensor) -> Tensor:
    """Where each row's entries start and the last one's end, [rows + 1]."""
    ends = torch.zeros(len(counts) + 1, dtype=torch.long)
    torch.cumsum(counts, 0, out=ends[1:])
    return ends


class Structure:
    """The edges of a graph (or of one relation), sorted by destination; ties keep their order.

    Attributes:
        sources: number of source nodes; targets: of destination nodes; edges: of edges.
        source: [edges] of the sorted edges; target: likewise.
        order: [edges] place of each sorted edge among the given ones.
        degree: [targets] incoming edges.
    """

    def __init__(self, edge_index: Tensor, sources: int, targets: int) -> None:
        self.sources, self.targets, self.edges = sources, targets, edge_index.shape[1]
        self.order = torch.argsort(edge_index[1], stable=True)
        self.source = edge_index[0][self.order]
        self.target = edge_index[1][self.order]
        self.degree = torch.bincount(self.target, minlength=targets)
        self.start = starts(self.degree)
        self.by_source = torch.argsort(self.source, stable=True)
        """[edges] places, among the edges by destination, of the edges by source."""
        self.source_start = starts(torch.bincount(self.source, minlength=sources))
        self._ones: dict[torch.dtype, Tensor] = {}

    @cached_property
    def _parts(self) -> tuple[Tensor, ...]:
        each = torch.arange(self.edges)
        return (
            self.start.int(),
            self.source.int(),
            each.int(),
            self.source_start.int(),
            self.target[self.by_source].int(),
            self.by_source.int(),
        )

    def ones(self, dtype: torch.dtype) -> Tensor:
        """[edges]."""
        if dtype not in self._ones:
            self._ones[dtype] = torch.ones(self.edges, dtype=dtype)
        return self._ones[dtype]

    def matrix(self, values: Tensor) -> Tensor:
        """[targets, sources]: sums over incoming edges, times ``values`` (in sorted order)."""
        return csr(self._parts[0], self._parts[1], values, (self.targets, self.sources))

    def reversed_matrix(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """`matrix` of ones with each destination's edges in reverse order, and the sources of these edges."""
        each = torch.arange(self.edges)
        source = self.source[(self.start[:-1] + self.start[1:] - 1)[self.target] - each]
        shape = (self.targets, self.sources)
        return csr(self._parts[0], source.int(), self.ones(dtype), shape), source

    def transposed(self, values: Tensor) -> Tensor:
        """[sources, targets], of the same ``values``."""
        return csr(
            self._parts[3], self._parts[4], values[self.by_source], (self.sources, self.targets)
        )

    def to_targets(self, dtype: torch.dtype) -> Tensor:
        """[targets, edges]: sums values of edges at their destinations."""
        return csr(self._parts[0], self._parts[2], self.ones(dtype), (self.targets, self.edges))

    def to_sources(self, dtype: torch.dtype) -> Tensor:
        """[sources, edges]: sums values of edges at their sources."""
        return csr(self._parts[3], self._parts[5], self.ones(dtype), (self.sources, self.edges))


class Heads:
    """A block matrix with a block for each head: rows destination x heads, columns source x heads, an entry an edge and head."""

    def __init__(self, structure: Structure, heads: int) -> None:
        self.structure, self.heads = structure, heads
        self.forward_place, forward = _by_heads(structure.start, structure.degree, heads)
        counts = structure.source_start.diff()
        self.backward_place, backward = _by_heads(structure.source_start, counts, heads)
        self._entry = torch.argsort(self.forward_place)
        self._rows = forward.int()
        head = self.forward_place % heads
        self._columns = (structure.source[self.forward_place // heads] * heads + head).int()
        # places of the transposed matrix are among the edges by source
        edge, head = self.backward_place // heads, self.backward_place % heads
        sorted_edge = structure.by_source[edge]
        self.backward_place = sorted_edge * heads + head
        self._back_rows = backward.int()
        self._back_columns = (structure.target[sorted_edge] * heads + head).int()
        self._shape = (structure.targets * heads, structure.sources * heads)

    def matrix(self, values: Tensor) -> Tensor:
        """From values [edges, heads] in sorted order."""
        flat = values.reshape(-1).index_select(0, self.forward_place)
        return csr(self._rows, self._columns, flat, self._shape)

    def in_order(self, entries: Tensor) -> Tensor:
        """The entries of such a matrix as [edges, heads] in sorted order."""
        return entries.index_select(0, self._entry).view(-1, self.heads)

    def transposed(self, values: Tensor) -> Tensor:
        """Likewise, with rows and columns exchanged."""
        flat = values.reshape(-1).index_select(0, self.backward_place)
        return csr(self._back_rows, self._back_columns, flat, self._shape[::-1])


def _by_heads(start: Tensor, counts: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """For entries ordered by (row, head, edge): each one's place in [edges, heads], and where each (row, head) starts."""
    edges = int(start[-1])
    row = torch.repeat_interleave(torch.arange(len(counts)), counts, output_size=edges)
    within = torch.arange(edges) - start[row]
    head = torch.arange(heads)
    entry = start[row][:, None] * heads + head * counts[row][:, None] + within[:, None]
    place = torch.empty(edges * heads, dtype=torch.long)
    place[entry.reshape(-1)] = torch.arange(edges * heads)
    return place, starts(counts.repeat_interleave(heads))
