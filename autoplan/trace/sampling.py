"""Small graphs of the user's schema, drawn from the user's graph, on which a step is recorded (torch).

Sizes are distinct, of mixed residues, and different from every width of the model, so that a recorded integer has one
explanation. Rows are real rows, so that labels, types and vocabularies stay legal; edges are random, with self-loops,
duplicates and an isolated last node; of a batch of graphs they stay within the graphs where the real ones do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from autoplan.opgraph import EDGE, GRAPH, NODE, is_node_axis
from autoplan.trace.attributes import AttributeSpec
from autoplan.trace.counts import is_own_edge_axis
from autoplan.trace.schema import GraphSchema

_SIZES = ((84, 211), (97, 310), (7, 12), (113, 404), (131, 523))
"""Nodes and edges wished for; the last sample is held back for validation."""

_MODULI = (2, 3, 4, 8)
"""No two-valued explanation by a remainder: the samples' sizes differ in these residues."""

_IRREGULAR = (1, 5, 0, 2, 7)
"""Subtracted from shares of a sample's nodes or edges, so that they are no formula of the whole."""

_LEAST_SELECTED = 2
"""Nodes that a mask or list selects at least."""

_GRAPHS = (3, 5, 2, 6, 9)
"""Graphs in each sample, where a ``batch`` vector has several."""


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
        return sum(rows for axis, rows in self.rows.items() if is_own_edge_axis(axis))


def draw_samples(
    graph: Data,
    schema: GraphSchema,
    *,
    widths: Iterable[int] = (),
    seed: int = 0,
    least_nodes: int = 1,
) -> tuple[GraphSample, ...]:
    """Draw five samples from a graph; the third is tiny, the last is meant to be held back.

    The graph's tensors are only indexed: no copy of a large one is made, and no global random state is touched.

    Args:
        graph: any graph of the schema; one node or no edges will do (rows are drawn with replacement).
        schema: its schema.
        widths: sizes that no axis of a sample may have (widths of the model); the schema's own are added.
        seed: of the private generator.
        least_nodes: nodes that every sample has at least.
    """
    tensors = dict(zip(schema.names, schema.tensors(graph), strict=True))
    masks = _true_rows(schema, tensors)
    lists = [spec.axes[0] for spec in schema.attributes if _is_list(spec)]
    fixed = {dim for spec in schema.attributes for dim in spec.dims if isinstance(dim, int)}
    sizes = sample_sizes(
        {*widths, *fixed}, selections=len(masks) + len(lists), least_nodes=least_nodes
    )
    generator = torch.Generator().manual_seed(seed)
    taken = {*widths, *fixed, *(size for pair in sizes for size in pair)}
    chosen: dict[str, list[int]] = {}
    samples = []
    for number, (nodes, edges) in enumerate(sizes):
        selected = _selected(number, nodes, [*masks, *lists])
        rows = _rows(schema, number, nodes, edges, selected, taken, chosen)
        samples.append(_Draw(schema, tensors, masks, selected, rows, generator).sample())
    return tuple(samples)


def sample_sizes(
    widths: Iterable[int], *, selections: int = 0, least_nodes: int = 1
) -> tuple[tuple[int, int], ...]:
    """Nodes and edges of each sample: distinct, unlike the widths, with more than one residue of 2, 3, 4 and 8.

    Sums of the two are kept distinct from other sizes as well: added self-loops make such axes. Every sample has room for
    ``selections`` (masks and lists) of a few nodes each.
    """
    taken = set(widths)
    found: list[tuple[int, int]] = []
    for wished, edges in _SIZES:
        nodes = max(wished, (_LEAST_SELECTED + 1) * selections, least_nodes)
        while nodes in taken or not _mixed([n for n, _ in found], nodes):
            nodes += 1
        taken.add(nodes)
        while edges in taken or edges + nodes in taken or not _mixed([e for _, e in found], edges):
            edges += 1
        taken.update((edges, edges + nodes))
        found.append((nodes, edges))
    return tuple(found)


def _mixed(sizes: list[int], size: int) -> bool:
    """Whether the sizes so far and this one differ in every residue; the first one may be anything."""
    return not sizes or all(len({s % m for s in (*sizes, size)}) > 1 for m in _MODULI)


def _is_list(spec: AttributeSpec) -> bool:
    """Whether it lists nodes (and is not only aligned with such a list)."""
    return spec.kind == "index" and spec.index is not None


def _selected(number: int, nodes: int, names: list[str]) -> dict[str, int]:
    """How many nodes each mask and list selects in sample ``number``: no formula of the nodes or of one another."""
    share = nodes // (len(names) + 1)
    return {
        name: max(_LEAST_SELECTED, share - 2 * position - _IRREGULAR[(number + 2 * position) % 5])
        for position, name in enumerate(names)
    }


def _rows(
    schema: GraphSchema,
    number: int,
    nodes: int,
    edges: int,
    selected: Mapping[str, int],
    taken: set[int],
    chosen: dict[str, list[int]],
) -> dict[str, int]:
    """Rows of every axis of sample ``number``; sizes of further axes are distinct from all others, and mixed.

    ``taken`` are the sizes in use and ``chosen`` those of further axes so far; both grow.
    """
    rows = {NODE: nodes, EDGE: edges}
    for axis, real in schema.rows.items():
        if axis in rows:
            continue
        if axis == GRAPH:
            rows[axis] = 1 if real == 1 else _GRAPHS[number]
            continue
        wanted = selected.get(axis, max(5, edges // 4 - _IRREGULAR[number]))
        before = chosen.setdefault(axis, [])
        while wanted in taken or not _mixed(before, wanted):
            wanted += 1
        taken.add(wanted)
        before.append(wanted)
        rows[axis] = wanted
    return rows


def _true_rows(schema: GraphSchema, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Per boolean node mask: the real nodes that it selects (its first column, if it has several)."""
    found = {}
    for spec in schema.attributes:
        tensor = tensors[spec.name]
        if spec.dtype == "bool" and spec.dims[:1] == (NODE,) and spec.kind == "node":
            column = tensor.reshape(tensor.size(0), -1)[:, 0]
            found[spec.name] = column.nonzero().view(-1).cpu()
    return found


class _Draw:
    """One sample in the making: which real rows its rows are.

    Attributes:
        picked: by axis, the real row of each of the sample's rows.
        places: by list of nodes, where in the sample its nodes are.
    """

    def __init__(
        self,
        schema: GraphSchema,
        tensors: Mapping[str, Tensor],
        masks: Mapping[str, Tensor],
        selected: Mapping[str, int],
        rows: Mapping[str, int],
        generator: torch.Generator,
    ) -> None:
        self._schema = schema
        self._tensors = tensors
        self._rows = rows
        self._selected = selected
        self._generator = generator
        self.picked: dict[str, Tensor] = {}
        self.places: dict[str, Tensor] = {}
        self._graph_of = self._batch() if GRAPH in rows else torch.zeros(rows[NODE]).long()
        for axis, count in rows.items():
            if axis != NODE:
                self.picked[axis] = self._integers(schema.rows[axis], count)
        self._pick_nodes(masks)

    def sample(self) -> GraphSample:
        """The sample's tensors."""
        found = []
        for spec in self._schema.attributes:
            original = self._tensors[spec.name]
            value = self._value(spec, original).cpu()
            found.append(value.requires_grad_(original.requires_grad))
        return GraphSample(tuple(found), dict(self._rows))

    def _value(self, spec: AttributeSpec, original: Tensor) -> Tensor:
        if spec.name == "edge_index":
            return self._edges()
        if spec.index is not None and spec.index.axis == GRAPH:
            return self._graph_of.to(original.dtype)
        if spec.index is not None and spec.kind == "index":
            return self.places[spec.name].to(original.dtype)
        if spec.index is not None:
            pairs = self._pairs(self._rows[NODE], self._rows[spec.axes[0]], spec.name)
            return pairs.to(original.dtype)
        value = original.detach().clone() if not spec.axes else original.detach()
        for dimension, axis in enumerate(spec.dims):
            if isinstance(axis, str):
                value = self._take(value, dimension, self.picked[axis])
        if spec.dtype == "bool" and spec.dims and isinstance(spec.dims[0], str):
            value = self._some_true(spec, value)
        return value.contiguous()

    def _take(self, value: Tensor, dimension: int, picked: Tensor) -> Tensor:
        if value.size(dimension):
            return value.index_select(dimension, picked.to(value.device))
        shape = (*value.shape[:dimension], picked.numel(), *value.shape[dimension + 1 :])
        if value.is_floating_point():
            return torch.randn(shape, generator=self._generator).to(value.dtype)
        return torch.zeros(shape, dtype=value.dtype)

    def _edges(self) -> Tensor:
        """Random pairs with self-loops and duplicates, none at the last node, no symmetry; ordered if the graph's are.

        Self-loops and duplicates are two or more: torch treats a selection of one row in its own way.
        """
        nodes, count = self._rows[NODE], self._rows[EDGE]
        edges = self._pairs(max(nodes - 1, 1), count, "edge_index")
        edges[:, :2] = torch.tensor([[0, 1], [0, 1]])
        edges[:, -2:] = edges[:, -4:-2]
        real = self._tensors["edge_index"]
        for end in (1, 0):
            if bool((real[end, 1:] >= real[end, :-1]).all()) and real.size(1) > 1:
                return edges[:, edges[end].argsort(stable=True)]
        return edges

    def _pairs(self, nodes: int, count: int, relation: str) -> Tensor:
        """[2, count] random pairs of the first nodes, both of one graph where the real relation's are."""
        pairs = self._integers(nodes, 2 * count).view(2, count)
        if self._rows.get(GRAPH, 1) == 1 or not self._within_graphs(relation):
            return pairs
        graph_of = self._graph_of[:nodes]
        size = torch.bincount(graph_of)
        start = size.cumsum(0) - size
        graph = graph_of[pairs[1]]
        pairs[0] = start[graph] + pairs[0] % size[graph]
        return pairs

    def _within_graphs(self, relation: str) -> bool:
        """Whether every pair of the real relation lies within one graph."""
        batch = self._tensors["batch"]
        ends = batch[self._tensors[relation].long()]
        return torch.equal(ends[0], ends[1])

    def _batch(self) -> Tensor:
        """Ascending graph numbers, each at least once."""
        nodes, graphs = self._rows[NODE], self._rows[GRAPH]
        every = torch.arange(graphs)
        return torch.cat([every, self._integers(graphs, nodes - graphs)]).sort().values

    def _pick_nodes(self, masks: Mapping[str, Tensor]) -> None:
        """Choose real nodes: some of every mask and list, the rest at random; their order is random."""
        nodes, real = self._rows[NODE], self._schema.rows[NODE]
        order = torch.randperm(nodes, generator=self._generator)
        picked = self._integers(real, nodes)
        position = 0
        for name, true in masks.items():
            count = min(self._selected[name], nodes - position)
            if true.numel() and count > 0:
                chosen = order[position : position + count]
                picked[chosen] = true[self._integers(true.numel(), count)]
                position += count
        for spec in self._schema.attributes:
            if _is_list(spec):
                self._pick_list(spec, picked, order.roll(-position))
                position += self._rows[spec.axes[0]]
        self.picked[NODE] = picked

    def _pick_list(self, spec: AttributeSpec, picked: Tensor, order: Tensor) -> None:
        """Choose entries of a list of nodes and put their nodes at places of the sample, ascending if the list ascends.

        Args:
            spec: the list.
            picked: the real node of each of the sample's rows; changed.
            order: the sample's rows, those not yet used for something else first.
        """
        axis = spec.axes[0]
        listed = self._tensors[spec.name].long().cpu()
        entries = self.picked[axis]
        places = order[torch.arange(entries.numel()) % order.numel()]
        if listed.numel():
            ascending = bool((listed[1:] >= listed[:-1]).all())
            if ascending:
                places, entries = places.sort().values, entries.sort().values
                self.picked[axis] = entries
            picked[places] = listed[entries]
        self.places[spec.name] = places

    def _some_true(self, spec: AttributeSpec, value: Tensor) -> Tensor:
        """The mask with the wished number of True rows where there are more; never all or none of them True."""
        value = value.clone()
        rows = value.view(value.size(0), -1)
        wanted = self._selected.get(spec.name, max(1, value.size(0) // 2))
        for column in range(rows.size(1)):
            true = rows[:, column].nonzero().view(-1)
            if column == 0 or true.numel() == value.size(0):
                rows[true[wanted:], column] = False
            if not true.numel():
                rows[: min(wanted, value.size(0) - 1), column] = True
        return value

    def _integers(self, below: int, count: int) -> Tensor:
        """Random integers in [0, below); zeros where ``below`` is 0."""
        return torch.randint(0, max(below, 1), (count,), generator=self._generator)
