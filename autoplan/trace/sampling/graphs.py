"""Which graphs of a batch a sample has: whole ones, or nearby nodes of large ones (torch)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from autoplan.trace.sampling.nodes import ChosenNodes
from autoplan.trace.sampling.pool import Pool
from autoplan.trace.sampling.sizes import GRAPHS, SAMPLES, Sizes, wished_nodes
from autoplan.trace.sampling.walk import Walker

_GRAPH_NODES = 64
"""Larger graphs of a batch are cut down to nearby nodes."""

_TINY = 2
"""The sample that has the smallest graphs."""


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
