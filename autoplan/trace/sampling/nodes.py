"""Which of the graph's nodes a sample has: nearby ones, some of every mask and list, or whole graphs of a batch (torch)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autoplan.trace.sampling.pool import Pool, PoolList
from autoplan.trace.sampling.sizes import GRAPHS, SAMPLES, Sizes, wished_nodes

_BRANCHES = 8
"""Neighbours that a walk goes on with from one node: a hub does not fill a sample with its leaves."""

_REACH = 6
"""A walk sees so many times the nodes that are wanted of each type, so that there is a choice."""

_GRAPH_NODES = 64
"""Larger graphs of a batch are cut down to nearby nodes."""


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


class Walker:
    """Orders the pool's nodes by walks from random edges: what comes early is close together."""

    def __init__(self, pool: Pool, generator: np.random.Generator) -> None:
        """Both directions of all relations are walked along."""
        self._generator = generator
        self._start: dict[str, int] = {}
        total = 0
        for axis, nodes in pool.nodes.items():
            self._start[axis] = total
            total += nodes.numel()
        self._total, self._pool = total, pool
        both = []
        for relation in pool.relations:
            source = relation.ends[0].numpy() + self._start[relation.source]
            target = relation.ends[1].numpy() + self._start[relation.target]
            both += [np.stack([source, target]), np.stack([target, source])]
        pairs = np.concatenate(both, axis=1) if both else np.zeros((2, 0), dtype=np.int64)
        order = np.argsort(pairs[0], kind="stable")
        self._neighbours = pairs[1][order]
        self._begin = np.searchsorted(pairs[0][order], np.arange(total + 1))
        self._ends = pairs[0]

    def order(
        self, wanted: Mapping[str, int], start_from: Mapping[str, NDArray[np.int64]] | None = None
    ) -> dict[str, NDArray[np.int64]]:
        """By node axis, all nodes of the pool, as positions there: those of a walk first, then the others at random.

        Args:
            wanted: by node axis, how many nodes are wanted.
            start_from: by node axis, the nodes that a walk may start from; by default the ends of all edges.
        """
        starts = self._ends
        if start_from is not None:
            starts = np.concatenate([self._start[a] + own for a, own in start_from.items()])
        room = min(self._total, _REACH * sum(wanted.values()))
        seen = np.zeros(self._total, dtype=bool)
        walked: list[int] = []
        waiting: deque[int] = deque()
        tries = 0
        while len(walked) < room and tries < room and starts.size:
            if not waiting:
                tries += 1
                start = int(starts[self._generator.integers(starts.size)])
                if seen[start]:
                    continue
                seen[start] = True
                waiting.append(start)
            node = waiting.popleft()
            walked.append(node)
            near = self._neighbours[self._begin[node] : self._begin[node + 1]]
            near = np.unique(near[~seen[near]])
            if near.size > _BRANCHES:
                near = self._generator.choice(near, _BRANCHES, replace=False)
            seen[near] = True
            waiting.extend(near.tolist())
        walked += list(waiting)
        rest = self._generator.permutation(np.setdiff1d(np.arange(self._total), walked))
        everything = np.concatenate([np.array(walked, dtype=np.int64), rest])
        found = {}
        for axis, nodes in self._pool.nodes.items():
            start = self._start[axis]
            own = (everything >= start) & (everything < start + nodes.numel())
            found[axis] = everything[own] - start
        return found


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


class GraphChooser:
    """Chooses whole graphs of a batch."""

    def __init__(self, pool: Pool, generator: np.random.Generator, sizes: Sizes) -> None:
        """``sizes`` gives out the numbers of nodes."""
        self._pool, self._generator, self._sizes = pool, generator, sizes
        self._walker = Walker(pool, generator)
        known = torch.unique(torch.cat(list(pool.batches.values())))
        self._graphs = known.numpy()
        self._largest = {
            axis: int(torch.bincount(graph_of).max()) for axis, graph_of in pool.batches.items()
        }

    def choose(self, number: int, least_nodes: int) -> ChosenNodes:
        """The nodes of sample ``number``.

        Args:
            number: from 0.
            least_nodes: nodes that the sample has at least, of every type that is grouped into graphs.
        """
        count = GRAPHS[number]
        most = self._most(number, count)
        drawn: list[int] = []
        parts: dict[str, list[NDArray[np.int64]]] = {axis: [] for axis in self._pool.nodes}
        while len(drawn) < count or (
            len(drawn) < 8 * SAMPLES * count and self._short(parts, least_nodes)
        ):
            if len(drawn) % len(self._graphs) == 0:
                order = self._generator.permutation(self._graphs)
                if number == _TINY:
                    order = self._by_size(order)
            drawn.append(int(order[len(drawn) % len(self._graphs)]))
            for axis, own in self._nodes_of(drawn[-1], most).items():
                parts[axis].append(own)
        return self._joined(drawn, parts, number, least_nodes)

    def _most(self, number: int, count: int) -> dict[str, int]:
        """By node axis, how many nodes of a graph are taken: all of small graphs."""
        found = {}
        for position, axis in enumerate(self._pool.nodes):
            share = max(2, wished_nodes(position, number) // count)
            largest = self._largest.get(axis, 0)
            found[axis] = largest if largest <= _GRAPH_NODES else share
        return found

    def _nodes_of(self, graph: int, most: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
        """By node axis, nodes of a graph, as ascending positions in the pool: all, or nearby ones of a large graph."""
        own = {
            axis: np.flatnonzero(graph_of.numpy() == graph)
            for axis, graph_of in self._pool.batches.items()
        }
        if all(len(nodes) <= most[axis] for axis, nodes in own.items()):
            return own
        orders = self._walker.order(most, own)
        return {
            axis: np.sort(orders[axis][np.isin(orders[axis], nodes)][: most[axis]])
            for axis, nodes in own.items()
        }

    def _short(self, parts: Mapping[str, list[NDArray[np.int64]]], least_nodes: int) -> bool:
        totals = [sum(map(len, parts[axis])) for axis in self._pool.batches]
        return max(totals) < least_nodes

    def _by_size(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        highest = int(self._graphs.max()) + 1
        sizes = np.zeros(highest, dtype=np.int64)
        for graph_of in self._pool.batches.values():
            sizes += np.bincount(graph_of.numpy(), minlength=highest)
        return order[np.argsort(sizes[order], kind="stable")]

    def _joined(
        self,
        drawn: list[int],
        parts: Mapping[str, list[NDArray[np.int64]]],
        number: int,
        least_nodes: int,
    ) -> ChosenNodes:
        picked, copies = {}, {}
        for position, (axis, nodes) in enumerate(self._pool.nodes.items()):
            if axis in self._pool.batches:
                own = parts[axis]
                inside = np.concatenate(own) if own else np.zeros(0, dtype=np.int64)
                copy = np.repeat(np.arange(len(own)), [len(part) for part in own])
            else:
                wanted = wished_nodes(position, number)
                inside = np.sort(self._generator.integers(nodes.numel(), size=wanted))
                copy = np.zeros(wanted, dtype=np.int64)
            total = self._sizes.take(axis, max(len(inside) + 1, least_nodes))
            last = inside[-1:] if len(inside) else np.zeros(1, dtype=np.int64)
            extra = total - len(inside)
            inside = np.concatenate([inside, np.repeat(last, extra)])
            of_last = copy[-1] if len(copy) and axis not in self._pool.batches else len(drawn) - 1
            copies[axis] = torch.from_numpy(np.concatenate([copy, np.repeat(of_last, extra)]))
            picked[axis] = nodes[torch.from_numpy(inside)]
        return ChosenNodes(picked, copies, torch.tensor(drawn))


_TINY = 2
