"""Sizes of sampled neighbourhoods, measured by sampling: NumPy alone. No torch.

Sampling is that of GraphSAGE (Hamilton et al. 2017) as PyG's `NeighborLoader` does it: against the edges, without
replacement, of every relation into a node's type so many neighbours; a node is expanded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.graphstructure import Neighbourhood
from autoplan.partition.ownership import IntArray, Relations, ends_of


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """The edges of one relation by destination.

    Attributes:
        source, destination: node axes.
        start: [N + 1] where each destination's edges begin; nodes: [E] their sources.
    """

    source: str
    destination: str
    start: IntArray
    nodes: NDArray[np.integer]


def incoming(
    nodes: Mapping[str, int],
    edges: Mapping[str, NDArray[np.integer]],
    relations: Relations | None = None,
) -> tuple[Incoming, ...]:
    """Orders the edges of every relation by destination: 16 bytes an edge while it is made, 4 of them kept (below 2^31 nodes)."""
    found = []
    for axis, edge_index in edges.items():
        source, destination = ends_of(relations, axis)
        small = max(nodes[source], nodes[destination]) < 2**31
        dtype = np.int32 if small else np.int64
        ends = edge_index[1].astype(dtype)
        start = np.zeros(nodes[destination] + 1, dtype=np.int64)
        np.cumsum(np.bincount(ends, minlength=nodes[destination]), out=start[1:])
        order = np.argsort(ends, kind="stable")
        del ends
        found.append(Incoming(source, destination, start, edge_index[0].astype(dtype)[order]))
    return tuple(found)


def neighbourhood(
    nodes: Mapping[str, int],
    edges: Sequence[Incoming],
    fan_outs: Sequence[int],
    axis: str,
    *,
    seeds: int = 1024,
    batches: int = 8,
    seed: int = 0,
) -> Neighbourhood:
    """Draws batches and counts; equal arguments give equal counts.

    Args:
        nodes: by node axis, their number.
        edges: of every relation, by destination.
        fan_outs: of each hop; -1: all.
        axis: of the nodes that batches start from.
        seeds: nodes a batch starts from; no more than there are.
        batches: to draw.
        seed: of all draws.
    """
    generator = np.random.default_rng(seed)
    size = min(seeds, nodes[axis])
    after = np.zeros((batches, len(fan_outs) + 1))
    drawn = 0
    for batch in range(batches):
        start = np.empty(0, dtype=np.int64)
        if size:
            start = _distinct(generator, np.full(1, nodes[axis]), size)[0]
        seen = {each: np.zeros(count, dtype=bool) for each, count in nodes.items()}
        seen[axis][start] = True
        frontier = {each: start if each == axis else start[:0] for each in nodes}
        reached = size
        after[batch, 0] = size
        for hop, fan_out in enumerate(fan_outs):
            fresh: dict[str, list[IntArray]] = {each: [] for each in nodes}
            for relation in edges:
                picked = _draw(relation, frontier[relation.destination], fan_out, generator)
                drawn += len(picked)
                fresh[relation.source].append(picked)
            frontier = {each: _new(found, seen[each]) for each, found in fresh.items()}
            reached += sum(map(len, frontier.values()))
            after[batch, hop + 1] = reached
    return Neighbourhood(
        tuple(fan_outs),
        size,
        axis,
        batches,
        tuple(float(mean) for mean in after.mean(axis=0)),
        int(after[:, -1].max(initial=0)),
        drawn / batches,
    )


def _new(found: Sequence[IntArray], seen: NDArray[np.bool_]) -> IntArray:
    """The nodes that were not seen before, once each; they are marked."""
    nodes = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    fresh = np.unique(nodes[~seen[nodes]])
    seen[fresh] = True
    return fresh


def _draw(
    edges: Incoming, nodes: IntArray, fan_out: int, generator: np.random.Generator
) -> IntArray:
    """Neighbours of nodes: all of them where there are no more than the fan-out, else so many edges, none twice."""
    start = edges.start[nodes]
    degree = edges.start[nodes + 1] - start
    many = degree > fan_out if fan_out >= 0 else np.zeros(len(nodes), dtype=bool)
    few = ~many
    ends = np.cumsum(degree[few])
    inside = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - degree[few], degree[few])
    positions = np.repeat(start[few], degree[few]) + inside
    if many.any() and fan_out:
        picked = _distinct(generator, degree[many], fan_out) + start[many][:, None]
        positions = np.concatenate([positions, picked.ravel()])
    found: IntArray = edges.nodes[positions].astype(np.int64)
    return found


def _distinct(generator: np.random.Generator, below: IntArray, count: int) -> IntArray:
    """[len(below), count] numbers of 0 .. below - 1, in no row twice; there must be as many.

    For one long row a permutation; else Floyd's algorithm (Bentley and Floyd 1987) for all rows at once.
    """
    if len(below) == 1:
        first: IntArray = generator.permutation(int(below[0]))[None, :count]
        return first
    chosen = np.empty((len(below), count), dtype=np.int64)
    for place in range(count):
        last = below - count + place
        number = generator.integers(0, last + 1)
        taken = (chosen[:, :place] == number[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, number)
    return chosen
