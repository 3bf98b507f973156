"""Samples of a graph: sizes, nodes, edges, and then every attribute's rows (torch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autoplan.opgraph import GRAPH, is_node_axis, is_primary_relation
from autoplan.trace.sampling.edges import EdgeMaker, Pairs, candidates, trimmed
from autoplan.trace.sampling.graphs import GraphChooser
from autoplan.trace.sampling.nodes import ChosenNodes, NodeChooser
from autoplan.trace.sampling.pool import Pool, PoolRelation
from autoplan.trace.sampling.sizes import (
    SAMPLES,
    Sizes,
    fixed_widths,
    node_sizes,
    selected,
    wished_edges,
)
from autoplan.trace.sampling.values import Values
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph

_SPARSE = 2
"""A sample has at least one edge for so many of its nodes; where the graph has not, random ones are added."""


@dataclass(frozen=True, slots=True)
class GraphSample:
    """One small graph.

    Attributes:
        tensors: in schema order.
        rows: rows of every axis.
    """

    tensors: tuple[Tensor, ...]
    rows: Mapping[str, int]

    @property
    def nodes(self) -> int:
        """Nodes of all types."""
        return sum(rows for axis, rows in self.rows.items() if is_node_axis(axis))

    @property
    def edges(self) -> int:
        """The graph's own edges, of all relations."""
        return sum(rows for axis, rows in self.rows.items() if is_primary_relation(axis))


def draw_samples(
    graph: AnyGraph,
    schema: GraphSchema,
    *,
    widths: Iterable[int] = (),
    seed: int = 0,
    least_nodes: int = 1,
) -> tuple[GraphSample, ...]:
    """Draw five samples from a graph; the third is tiny, the last is meant to be held back.

    Args:
        graph: any graph of the schema; one node or no edges will do (rows are then taken several times).
        schema: its schema.
        widths: sizes that no axis of a sample may have (widths of the model); the schema's own are added.
        seed: of private generators; no global random state is touched.
        least_nodes: nodes that every sample has at least, of a type that has as many.
    """
    pool = Pool.of(graph, schema, seed=seed)
    return samples_of(pool, widths=widths, seed=seed, least_nodes=least_nodes)


def samples_of(
    pool: Pool, *, widths: Iterable[int] = (), seed: int = 0, least_nodes: int = 1
) -> tuple[GraphSample, ...]:
    """Draw samples from a graph that has been read; as `draw_samples`."""
    drawing = _Drawing(pool, {*widths, *fixed_widths(pool.schema)}, seed)
    return drawing.samples(least_nodes)


class _Drawing:
    """All samples of a graph: they share sizes that no two of them have."""

    def __init__(self, pool: Pool, widths: set[int], seed: int) -> None:
        self._pool, self._schema = pool, pool.schema
        self._sizes = Sizes(widths)
        self._numbers = np.random.default_rng(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._lists = list(pool.lists)

    def samples(self, least_nodes: int) -> tuple[GraphSample, ...]:
        """Five of them."""
        if self._pool.batches:
            graphs = GraphChooser(self._pool, self._numbers, self._sizes)
            chosen = [graphs.choose(number, least_nodes) for number in range(SAMPLES)]
            return tuple(self._sample(number, nodes, None) for number, nodes in enumerate(chosen))
        selecting = self._selecting()
        selections = {axis: len(names) for axis, names in selecting.items()}
        sizes = node_sizes(self._sizes, self._schema, selections, least_nodes)
        chooser = NodeChooser(self._pool, self._numbers)
        found = []
        for number, rows in enumerate(sizes):
            wanted = {
                axis: selected(number, rows[axis], names) for axis, names in selecting.items()
            }
            flat = {name: count for own in wanted.values() for name, count in own.items()}
            listed = {axis: self._sizes.take(axis, flat[axis]) for axis in self._lists}
            nodes = chooser.choose({**rows, **listed}, wanted)
            found.append(self._sample(number, nodes, flat))
        return tuple(found)

    def _selecting(self) -> dict[str, list[str]]:
        """By node axis, the masks (by name) and lists (by index axis) that select nodes of it."""
        found: dict[str, list[str]] = {}
        for name in self._pool.masks:
            found.setdefault(str(self._schema[name].dims[0]), []).append(name)
        for axis, known in self._pool.lists.items():
            found.setdefault(known.nodes, []).append(axis)
        return found

    def _sample(
        self, number: int, nodes: ChosenNodes, wanted: Mapping[str, int] | None
    ) -> GraphSample:
        """The sample of these nodes; ``wanted``: how many of them each mask selects."""
        rows = {axis: picked.numel() for axis, picked in nodes.picked.items()}
        if nodes.graphs is not None:
            rows[GRAPH] = nodes.graphs.numel()
            self._pick_lists(number, nodes, rows)
        rows.update({axis: entries.numel() for axis, entries in nodes.entries.items()})
        pairs: dict[str, Pairs] = {}
        for position, relation in enumerate(self._pool.relations):
            pairs[relation.axis] = self._pairs(number, position, relation, nodes, pairs)
            rows[relation.axis] = pairs[relation.axis].count
        for axis, real in self._schema.rows.items():
            if axis not in rows:
                assert real == 1, axis  # the graph axis of a batch of one
                rows[axis] = 1
        picked = {
            **nodes.picked,
            **nodes.entries,
            **{axis: torch.from_numpy(own.row) for axis, own in pairs.items()},
        }
        if GRAPH in rows:
            picked[GRAPH] = torch.zeros(1).long() if nodes.graphs is None else nodes.graphs
        values = Values(self._schema, picked, nodes, pairs, wanted or {}, self._generator)
        tensors = [
            values.of(spec, self._pool.tensors[spec.name]) for spec in self._schema.attributes
        ]
        return GraphSample(tuple(tensors), rows)

    def _pick_lists(self, number: int, nodes: ChosenNodes, rows: Mapping[str, int]) -> None:
        """Of a batch, entries whose nodes are in the sample's graphs; random ones where there are none."""
        for name, known in self._pool.lists.items():
            picked = nodes.picked[known.nodes][:-1].contiguous()
            wanted = selected(number, rows[known.nodes], [name])[name]
            count = self._sizes.take(name, wanted)
            at = torch.searchsorted(*_sorted(picked, known.values))
            order = picked.argsort(stable=True)
            inside = picked[order[at.clamp(max=len(picked) - 1)]] == known.values
            chosen = inside.nonzero().view(-1)
            if not chosen.numel():
                nodes.entries[name] = self._integers(max(1, self._schema.rows[name]), count)
                nodes.places[name] = self._integers(len(picked), count)
                continue
            chosen = chosen[torch.arange(count) % chosen.numel()]
            places = order[at[chosen]]
            entries = known.rows[chosen]
            if known.ascending:
                by_place = places.argsort(stable=True)
                places, entries = places[by_place], entries.sort().values
            nodes.entries[name], nodes.places[name] = entries, places

    def _pairs(
        self,
        number: int,
        position: int,
        relation: PoolRelation,
        nodes: ChosenNodes,
        before: Mapping[str, Pairs],
    ) -> Pairs:
        """The pairs of one relation: real ones, trimmed, and what is added to them."""
        ends = {axis: copy.numpy() for axis, copy in nodes.copy_of.items()}
        count = max(len(ends[relation.source]), len(ends[relation.target]))
        wish = wished_edges(position, number)
        if self._pool.batches:
            wish = 8 * max(wish, count)
        real = candidates(self._pool, relation, nodes, wish)
        reversed_one = self._pool.reverse_of.get(relation.axis)
        if reversed_one is not None:
            real = _mirrored(real, before[reversed_one])
        else:
            real = trimmed(real, wish - 4, one_type=relation.one_type, generator=self._numbers)
        maker = EdgeMaker(relation, real, ends, self._numbers, loops=self._may_loop(relation))
        least = wish if not relation.rows.numel() else max(5, min(wish, count // _SPARSE))
        invented = 0 if reversed_one is not None else max(0, least - maker.least)
        if not relation.facts.within:
            invented = max(invented, 2)
        sums = {len(ends[relation.source]), len(ends[relation.target])}
        size = self._sizes.take(relation.axis, maker.least + invented, sums)
        return maker.made(size, invented=invented)

    def _may_loop(self, relation: PoolRelation) -> bool:
        """Whether nodes are joined with themselves: not where distances between positions would then be zero."""
        if relation.facts.loops:
            return True
        kinds = {"pos"}
        return not any(
            spec.attribute in kinds and spec.axes[:1] == (relation.source,)
            for spec in self._schema.attributes
        )

    def _integers(self, below: int, count: int) -> Tensor:
        return torch.randint(0, below, (count,), generator=self._generator)


def _sorted(picked: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return picked.sort().values, values


def _mirrored(real: Pairs, other: Pairs) -> Pairs:
    """The pairs of another relation the other way round, once each; rows of real pairs where there are such, else of any."""
    row_of = dict(
        zip(
            zip(real.source.tolist(), real.target.tolist(), strict=True),
            real.row.tolist(),
            strict=True,
        )
    )
    ends = np.unique(np.stack([other.target, other.source]), axis=1)
    anything = next(iter(row_of.values()), 0)
    rows = [row_of.get((source, target), anything) for source, target in ends.T.tolist()]
    return Pairs(ends[0], ends[1], np.array(rows, dtype=np.int64))
