"""The edges of a sample: the real ones between its nodes, trimmed to size together with their reverse, and a few more (torch).

Every sample has edges that are there twice and, where that is no change of kind, nodes joined with themselves. Where the graph is
too small, its edges are taken once more between copies of their nodes; random pairs come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.trace.sampling.nodes import ChosenNodes
from autoplan.trace.sampling.pool import Pool, PoolRelation

IntArray = NDArray[np.int64]

REPEATED = 2
"""Edges that are there twice, and nodes joined with themselves: torch treats a selection of one row in its own way."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a sample's nodes.

    Attributes:
        source, target: [m] the sample's nodes.
        row: [m] the graph's pair that each of them is, or is like.
    """

    source: IntArray
    target: IntArray
    row: IntArray

    @property
    def count(self) -> int:
        """Number of pairs."""
        return len(self.row)

    def __getitem__(self, chosen: IntArray | NDArray[np.bool_]) -> Pairs:
        """Some of them."""
        return Pairs(self.source[chosen], self.target[chosen], self.row[chosen])

    def with_more(self, *others: Pairs) -> Pairs:
        """These, then others."""
        every = (self, *others)
        return Pairs(
            np.concatenate([pairs.source for pairs in every]),
            np.concatenate([pairs.target for pairs in every]),
            np.concatenate([pairs.row for pairs in every]),
        )


def candidates(pool: Pool, relation: PoolRelation, nodes: ChosenNodes, wanted: int) -> Pairs:
    """The graph's pairs between a sample's nodes; where nodes are there several times, pairs of their copies.

    Args:
        pool: what the sample is cut from.
        relation: which pairs.
        nodes: of the sample.
        wanted: more pairs of copies are made only up to so many.
    """
    found: list[Pairs] = []
    sources = _places(pool, nodes, relation.source)
    targets = _places(pool, nodes, relation.target)
    for copy in sorted(sources.keys() & targets.keys()):
        found.append(_lifted(relation, sources[copy], targets[copy], wanted))
    empty = np.zeros(0, dtype=np.int64)
    return Pairs(empty, empty, empty).with_more(*found)


def _places(
    pool: Pool, nodes: ChosenNodes, axis: str
) -> dict[int, tuple[IntArray, IntArray, IntArray]]:
    """By copy: for each node of the pool, where among its places they begin and how many there are; and the places.

    The last node is left out: it has no edges.
    """
    picked, copy_of = nodes.picked[axis].numpy()[:-1], nodes.copy_of[axis].numpy()[:-1]
    inside = np.searchsorted(pool.nodes[axis].numpy(), picked)
    found = {}
    for copy in np.unique(copy_of):
        places = np.flatnonzero(copy_of == copy)
        counts = np.bincount(inside[places], minlength=pool.nodes[axis].numel())
        order = places[np.argsort(inside[places], kind="stable")]
        found[int(copy)] = (np.cumsum(counts) - counts, counts, order)
    return found


def _lifted(
    relation: PoolRelation,
    sources: tuple[IntArray, IntArray, IntArray],
    targets: tuple[IntArray, IntArray, IntArray],
    wanted: int,
) -> Pairs:
    """The pool's pairs at the places of their ends, the same for a pair and its reverse."""
    source, target = relation.ends.numpy()
    (begin_s, count_s, place_s), (begin_t, count_t, place_t) = sources, targets
    kept = np.flatnonzero((count_s[source] > 0) & (count_t[target] > 0))
    source, target, row = source[kept], target[kept], relation.rows.numpy()[kept]
    many_s, many_t = count_s[source], count_t[target]
    # of a pair and its reverse the same end counts as the lower one
    source_low = (
        source <= target
        if relation.one_type
        else np.full(len(row), relation.source < relation.target)
    )
    found: list[Pairs] = []
    for shift in range(int(np.maximum(many_s, many_t).max(initial=0))):
        if shift and sum(pairs.count for pairs in found) >= wanted:
            break
        usable = np.ones(len(row), dtype=bool)
        if shift:
            usable = (np.minimum(many_s, many_t) > shift) & ~(
                relation.one_type & (source == target)
            )
        times = np.where(usable, np.maximum(many_s, many_t), 0)
        of = np.repeat(np.arange(len(row)), times)
        step = np.arange(len(of)) - np.repeat(np.cumsum(times) - times, times)
        at_s = (step + np.where(source_low[of], 0, shift)) % many_s[of]
        at_t = (step + np.where(source_low[of], shift, 0)) % many_t[of]
        found.append(
            Pairs(place_s[begin_s[source[of]] + at_s], place_t[begin_t[target[of]] + at_t], row[of])
        )
    empty = np.zeros(0, dtype=np.int64)
    return found[0].with_more(*found[1:]) if found else Pairs(empty, empty, empty)


def trimmed(pairs: Pairs, most: int, *, one_type: bool, generator: np.random.Generator) -> Pairs:
    """At most so many of them, at random; what joins the same two nodes, in either direction, stays together."""
    if pairs.count <= most:
        return pairs
    low, high = pairs.source, pairs.target
    if one_type:
        low, high = np.minimum(low, high), np.maximum(low, high)
    _, group = np.unique(low * (int(high.max(initial=0)) + 1) + high, return_inverse=True)
    sizes = np.bincount(group)
    order = generator.permutation(len(sizes))
    taken = np.zeros(len(sizes), dtype=bool)
    taken[order[np.cumsum(sizes[order]) <= most]] = True
    return pairs[taken[group]]


class EdgeMaker:
    """Brings a relation of one sample to its size."""

    def __init__(
        self,
        relation: PoolRelation,
        real: Pairs,
        nodes: Mapping[str, IntArray],
        generator: np.random.Generator,
        *,
        loops: bool,
    ) -> None:
        """Starts from real pairs.

        Args:
            relation: which.
            real: pairs of the graph.
            nodes: by node axis, the copy of each of the sample's nodes.
            generator: of the sample.
            loops: nodes may be joined with themselves.
        """
        self._relation, self._nodes, self._generator = relation, nodes, generator
        self._real = real
        self._loops = loops and relation.one_type and relation.primary
        self._mirrored = relation.one_type and relation.facts.symmetric

    @property
    def least(self) -> int:
        """Pairs there are at least: the real ones, repeated ones, self-loops."""
        loops = REPEATED if self._loops else 0
        return self._real.count + (REPEATED if self._real.count else 0) + loops

    def made(self, size: int, *, invented: int) -> Pairs:
        """So many pairs; ``invented`` of them are random ones."""
        parts = [self._real]
        if self._loops:
            parts.append(self._self_loops(REPEATED))
        if not self._real.count:
            invented = size - sum(pairs.count for pairs in parts)
        if invented:
            parts.append(self._random(invented))
        missing = size - sum(pairs.count for pairs in parts)
        if missing:
            parts.append(self._repeated(missing))
        pairs = parts[0].with_more(*parts[1:])
        return self._ordered(self._directed(pairs))

    def _self_loops(self, count: int) -> Pairs:
        """Random nodes joined with themselves; like an edge that ends there, if there is one."""
        joinable = max(1, len(self._nodes[self._relation.target]) - 1)
        places = self._generator.choice(joinable, count, replace=joinable < count)
        return Pairs(places, places.copy(), self._rows_like(places))

    def _rows_like(self, targets: IntArray) -> IntArray:
        """Real pairs with these destinations, or any."""
        rows = self._relation.rows.numpy()
        if not rows.size:
            return np.zeros(len(targets), dtype=np.int64)
        found = self._generator.choice(rows, len(targets))
        for position, target in enumerate(targets):
            own = self._real.row[self._real.target == target]
            if own.size:
                found[position] = own[0]
        return found

    def _random(self, count: int) -> Pairs:
        """Random pairs, within one copy where the graph's are and between two where they are not; none at the last nodes."""
        copies_s, copies_t = (
            self._nodes[axis][:-1] for axis in (self._relation.source, self._relation.target)
        )
        target = self._generator.integers(max(1, len(copies_t)), size=count)
        source = self._generator.integers(max(1, len(copies_s)), size=count)
        within = self._relation.facts.within
        for position, at in enumerate(target):
            same = copies_s == copies_t[at] if len(copies_t) else copies_s == 0
            own = np.flatnonzero(same if within else ~same)
            if own.size:
                source[position] = own[source[position] % own.size]
        row = self._rows_like(target)
        if self._mirrored and count > 1:
            half = count // 2
            source = np.concatenate([source[:half], target[:half], source[half + half :]])
            target = np.concatenate([target[:half], source[:half], source[half + half :]])
        return Pairs(source, target, row)

    def _repeated(self, count: int) -> Pairs:
        """Real pairs once more; with their reverse, where every pair has one."""
        if not self._mirrored:
            return self._real[self._generator.integers(self._real.count, size=count)]
        reverse = {
            (int(s), int(t)): at
            for at, (s, t) in enumerate(zip(self._real.target, self._real.source, strict=True))
        }
        chosen: list[int] = []
        while len(chosen) < count:
            at = int(self._generator.integers(self._real.count))
            back = reverse.get((int(self._real.source[at]), int(self._real.target[at])), at)
            chosen += [at, back] if back != at and len(chosen) + 2 <= count else [at]
        return self._real[np.array(chosen)]

    def _directed(self, pairs: Pairs) -> Pairs:
        """Not symmetric where the graph is not: one direction of one pair gives way to another pair's repetition."""
        if not self._relation.one_type or self._mirrored:
            return pairs
        there = set(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))
        if any((target, source) not in there for source, target in there):
            return pairs
        joined = np.flatnonzero(pairs.source != pairs.target)
        if len(joined) < 3:
            return pairs
        first = joined[0]
        gone = (pairs.source == pairs.source[first]) & (pairs.target == pairs.target[first])
        left = pairs[~gone]
        return left.with_more(
            left[np.flatnonzero(left.source != left.target)[-1:]][
                np.zeros(int(gone.sum()), dtype=np.int64)
            ]
        )

    def _ordered(self, pairs: Pairs) -> Pairs:
        """In the order of the graph's: along an end, or graph by graph."""
        facts = self._relation.facts
        for end in facts.ordered:
            return pairs[np.argsort((pairs.source, pairs.target)[end], kind="stable")]
        if facts.grouped and facts.within:
            copy = self._nodes[self._relation.source][pairs.source]
            return pairs[np.argsort(copy, kind="stable")]
        return pairs
