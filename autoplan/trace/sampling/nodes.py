"""Which of the graph's nodes a sample has: nearby ones, some of every mask and list (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autoplan.trace.sampling.pool import Pool, PoolList
from autoplan.trace.sampling.walk import Walker


@dataclass(frozen=True, slots=True)
class ChosenNodes:
    """The nodes of one sample.

    Attributes:
        picked: by node axis, [n] the graph's node that each of the sample's nodes is, ascending; the last one is a copy of the
            one before and has no edges.
        copy_of: by node axis, [n] which copy of a part of the graph the node belongs to: edges join nodes of one copy. Of
            a batch of graphs these are the sample's graphs, else there is one copy.
        graphs: [G] of a batch, the graph that each of the sample's graphs is.
        entries: by index axis, [K] which of the list's entries the sample has; places: [K] the sample's node of each.
    """

    picked: Mapping[str, Tensor]
    copy_of: Mapping[str, Tensor]
    graphs: Tensor | None = None
    entries: dict[str, Tensor] = field(default_factory=dict)
    places: dict[str, Tensor] = field(default_factory=dict)


class NodeChooser:
    """Chooses the nodes of samples of a graph that is no batch."""

    def __init__(self, pool: Pool, generator: np.random.Generator) -> None:
        """One generator for all samples."""
        self._pool, self._generator = pool, generator
        self._walker = Walker(pool, generator)

    def choose(
        self, rows: Mapping[str, int], selected: Mapping[str, Mapping[str, int]]
    ) -> ChosenNodes:
        """The nodes of one sample.

        Args:
            rows: by node and index axis, how many.
            selected: by node axis, how many of each mask (by name) and list (by index axis) at least.
        """
        pool = self._pool
        wanted_nodes = {axis: rows[axis] for axis in pool.nodes}
        orders = self._walker.order(wanted_nodes)
        picked, entries, places = {}, {}, {}
        for axis, count in wanted_nodes.items():
            choice = _Choice(orders[axis], pool.nodes[axis].numpy(), count - 1)
            kept_free = sum(selected.get(axis, {}).values())
            listed = {}
            for name, wanted in selected.get(axis, {}).items():
                kept_free -= wanted
                if name in pool.lists:
                    known = pool.lists[name]
                    most = max(choice.room - kept_free, wanted)
                    found = _entries(known, choice, min(rows[name], most))
                    found = self._generator.permutation(found)
                    listed[name] = (found, choice.take(known.values.numpy()[found]))
            for name, wanted in selected.get(axis, {}).items():
                if name in pool.masks:
                    choice.take_of(pool.masks[name].numpy(), wanted)
            choice.fill()
            real, position = choice.result()
            picked[axis] = torch.from_numpy(np.append(real, real[-1:]))
            for name, (found, tokens) in listed.items():
                entries[name], places[name] = _spread(
                    pool.lists[name], found, position[tokens], rows[name], count
                )
        copies = {
            axis: torch.zeros(count, dtype=torch.int64) for axis, count in wanted_nodes.items()
        }
        return ChosenNodes(picked, copies, None, entries, places)


def _entries(known: PoolList, choice: _Choice, wanted: int) -> NDArray[np.int64]:
    """Places among a list's entries in the pool: those of the earliest nodes, again from the start where there are too few."""
    values = known.values.numpy()
    if not values.size:
        return np.zeros(0, dtype=np.int64)
    return np.resize(np.argsort(choice.rank_of(values), kind="stable"), wanted)


def _spread(
    known: PoolList, found: NDArray[np.int64], at: NDArray[np.int64], count: int, nodes: int
) -> tuple[Tensor, Tensor]:
    """Entries and places of so many entries of a list; of an empty list places alone."""
    if not found.size:
        return torch.zeros(count, dtype=torch.int64), torch.arange(count) % nodes
    entries, places = np.resize(known.rows.numpy()[found], count), np.resize(at, count)
    if known.ascending:
        order = np.argsort(places, kind="stable")
        entries, places = np.sort(entries), places[order]
    return torch.from_numpy(entries), torch.from_numpy(places)


class _Choice:
    """Nodes of one type, taken one after another; a node that is needed twice is there twice."""

    def __init__(self, order: NDArray[np.int64], pool_nodes: NDArray[np.int64], count: int) -> None:
        self._order = pool_nodes[order]
        self._rank = np.empty(len(order), dtype=np.int64)
        self._rank[order] = np.arange(len(order))
        self._nodes, self._count = pool_nodes, count
        self._taken: list[int] = []
        self._used: set[int] = set()

    def rank_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """How early nodes come; those outside the pool come last."""
        at = np.searchsorted(self._nodes, nodes).clip(max=len(self._nodes) - 1)
        return np.where(self._nodes[at] == nodes, self._rank[at], len(self._rank))

    def take(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Takes nodes; the tokens by which `result` tells where they are."""
        tokens = np.arange(len(self._taken), len(self._taken) + len(nodes))
        self._taken += nodes.tolist()
        self._used.update(nodes.tolist())
        return tokens

    @property
    def room(self) -> int:
        """How many more there can be."""
        return self._count - len(self._taken)

    def take_of(self, members: NDArray[np.int64], wanted: int) -> None:
        """Takes so many of these nodes, early ones first; nothing where there are none or there is no room."""
        wanted = min(wanted, self.room)
        if members.size and wanted > 0:
            near = members[np.argsort(self.rank_of(members), kind="stable")[: 4 * wanted]]
            fresh = [node for node in near.tolist() if node not in self._used]
            self.take(np.resize(np.array(fresh or near, dtype=np.int64), wanted))

    def fill(self) -> None:
        """Takes early nodes until there are enough."""
        missing = self.room
        fresh = [node for node in self._order.tolist() if node not in self._used][:missing]
        if len(fresh) < missing:
            fresh += np.resize(self._order, missing - len(fresh)).tolist()
        self.take(np.array(fresh, dtype=np.int64))

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The nodes, ascending, and for each token its place among them."""
        taken = np.array(self._taken, dtype=np.int64)
        order = np.argsort(taken, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return taken[order], place
