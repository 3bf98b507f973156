"""An order of a pool's nodes in which those that come early are close together (torch)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autoplan.trace.sampling.pool import Pool

_BRANCHES = 8
"""Neighbours that a walk goes on with from one node: a hub does not fill a sample with its leaves."""

_REACH = 6
"""A walk sees so many times the nodes that are wanted of each type, so that there is a choice."""


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
