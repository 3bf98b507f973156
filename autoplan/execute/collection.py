"""Many graphs, one after the other in one tensor for each attribute, of which any few are put together as one graph.

What comes out equals `torch_geometric.data.Batch.from_data_list` of these graphs; a worker needs no torch_geometric for it.
Tensors may be memory maps: putting some graphs together reads only their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autoplan.opgraph import NODE
from autoplan.partition.ownership import IntArray

BATCH = "batch"
"""The attribute that tells each node's graph; it is not stored, it follows from which graphs are put together."""


@dataclass(frozen=True, slots=True, eq=False)
class CollatedAttribute:
    """One attribute of all graphs.

    Attributes:
        values: the graphs' tensors, one after the other along ``dim``, with positions as each graph counts them.
        dim: the dimension along which they lie.
        starts: [G + 1] where each graph's rows begin.
        shifts: [G] what a graph adds to the positions of the graphs after it: its number of nodes for ``edge_index``.
            None where values are no positions.
    """

    values: torch.Tensor
    dim: int
    starts: IntArray
    shifts: IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GraphCollection:
    """Graphs of one schema.

    Attributes:
        attributes: by name.
        rows: by base or index axis, [G] rows of each graph; the axes ``node`` and ``graph`` (1 each) are always there.
    """

    attributes: Mapping[str, CollatedAttribute]
    rows: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(self.rows[NODE])

    @property
    def weights(self) -> IntArray:
        """[G] nodes and edges of each graph: the work that it makes."""
        edges = [rows for axis, rows in self.rows.items() if axis.startswith("edge")]
        weights: IntArray = np.sum([self.rows[NODE], *edges], axis=0)
        return weights

    def size(self, name: str, graphs: IntArray) -> torch.Tensor:
        """What `tensor` would give, without its values: on torch's ``meta`` device."""
        if name == BATCH and name not in self.attributes:
            nodes = int(self.rows[NODE][graphs].sum())
            return torch.empty(nodes, dtype=torch.int64, device="meta")
        attribute = self.attributes[name]
        shape = list(attribute.values.shape)
        shape[attribute.dim] = int((attribute.starts[graphs + 1] - attribute.starts[graphs]).sum())
        return torch.empty(shape, dtype=attribute.values.dtype, device="meta")

    def rows_of(self, graphs: IntArray) -> dict[str, int]:
        """By base or index axis, the rows of some graphs put together."""
        return {axis: int(rows[graphs].sum()) for axis, rows in self.rows.items()}

    def only(self, names: Collection[str]) -> GraphCollection:
        """The same graphs with some of their attributes."""
        kept = {name: own for name, own in self.attributes.items() if name in names}
        return replace(self, attributes=kept)

    def tensor(self, name: str, graphs: IntArray, *, among: IntArray | None = None) -> torch.Tensor:
        """An attribute of some graphs put together: their rows in the order given, positions shifted accordingly.

        Args:
            name: of the attribute.
            graphs: [B] numbers of the graphs.
            among: ascending places in ``graphs``: only the rows of the graphs at these places, but with positions as in
                the whole of ``graphs``.

        Raises:
            KeyError: an attribute that the graphs do not have.
        """
        places = np.arange(len(graphs)) if among is None else among
        taken = graphs[places]
        if name == BATCH and name not in self.attributes:
            return torch.from_numpy(np.repeat(places, self.rows[NODE][taken]))
        attribute = self.attributes[name]
        if len(taken) == len(self) and np.array_equal(taken, np.arange(len(self))):
            values = attribute.values
        else:
            rows = ranges(attribute.starts, taken)
            values = attribute.values.index_select(attribute.dim, torch.from_numpy(rows))
        if attribute.shifts is None:
            return values
        own = attribute.shifts[graphs]
        before = (np.cumsum(own) - own)[places]
        counts = attribute.starts[taken + 1] - attribute.starts[taken]
        shape = [1] * values.dim()
        shape[attribute.dim] = -1
        shift = torch.from_numpy(np.repeat(before, counts)).to(values.dtype)
        return values + shift.view(shape)


def ranges(starts: IntArray, which: IntArray) -> IntArray:
    """The whole numbers of the half-open ranges ``starts[i] .. starts[i + 1]``, for each ``i`` of ``which`` in turn."""
    counts = starts[which + 1] - starts[which]
    ends = np.cumsum(counts)
    within = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    numbers: IntArray = np.repeat(starts[which], counts) + within
    return numbers


def save_collection(path: Path, collection: GraphCollection) -> None:
    """Writes a collection so that `load_collection` can map it."""
    torch.save(
        {
            "attributes": {
                name: {
                    # a view of something larger would be written whole
                    "values": attribute.values.detach()
                    .cpu()
                    .clone(memory_format=torch.contiguous_format),
                    "dim": attribute.dim,
                    "starts": torch.from_numpy(attribute.starts),
                    "shifts": None
                    if attribute.shifts is None
                    else torch.from_numpy(attribute.shifts),
                }
                for name, attribute in collection.attributes.items()
            },
            "rows": {axis: torch.from_numpy(rows) for axis, rows in collection.rows.items()},
        },
        path,
    )


def load_collection(path: Path) -> GraphCollection:
    """Maps what `save_collection` wrote: pages are read when their rows are, and all workers of a machine share them."""
    saved: dict[str, Any] = torch.load(path, weights_only=True, mmap=True)
    attributes = {
        name: CollatedAttribute(
            part["values"],
            part["dim"],
            part["starts"].numpy(),
            None if part["shifts"] is None else part["shifts"].numpy(),
        )
        for name, part in saved["attributes"].items()
    }
    return GraphCollection(attributes, {axis: t.numpy() for axis, t in saved["rows"].items()})
