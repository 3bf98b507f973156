"""How large samples are: sizes that no width of the model and no other axis has, so that a recorded integer has one reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoplan.trace.schema import GraphSchema

SAMPLES = 5
"""Samples that are drawn; the third is tiny, the last is held back for validation."""

_NODES = (84, 97, 7, 113, 131)
_EDGES = (211, 310, 12, 404, 523)
"""Rows wished for in each sample."""

_SHARES = (1.0, 0.71, 0.87, 0.58, 0.93, 0.64, 0.79)
"""Of the wish, what one axis after another gets: in every sample another one, so that no axis is a formula of another."""

GRAPHS = (3, 5, 2, 6, 9)
"""Graphs in each sample, where a ``batch`` vector has several."""

_MODULI = (2, 3, 4, 8)
"""No two-valued explanation by a remainder: the samples' sizes differ in these residues."""

_IRREGULAR = (1, 5, 0, 2, 7)
"""Subtracted from shares of a sample's nodes, so that they are no formula of the whole."""

LEAST_SELECTED = 2
"""Nodes that a mask or list selects at least."""

_LEAST_ROWS = 5


class Sizes:
    """Sizes given out so far: every one is given once, those along one axis have mixed residues."""

    def __init__(self, widths: Iterable[int] = ()) -> None:
        """``widths`` are sizes that nothing may have."""
        self._taken = set(widths)
        self._along: dict[str, list[int]] = {}

    def take(self, axis: str, wanted: int, sums: Iterable[int] = ()) -> int:
        """The least free size from ``wanted`` on; its sums with others (edges and added self-loops) are given out with it."""
        along, others = self._along.setdefault(axis, []), tuple(sums)
        size = wanted
        while (
            size in self._taken
            or any(size + other in self._taken for other in others)
            or not _mixed(along, size)
        ):
            size += 1
        self._taken.update((size, *(size + other for other in others)))
        along.append(size)
        return size


def _mixed(sizes: list[int], size: int) -> bool:
    """Whether the sizes so far and this one differ in every residue; the first one may be anything."""
    return not sizes or all(len({s % m for s in (*sizes, size)}) > 1 for m in _MODULI)


def fixed_widths(schema: GraphSchema) -> set[int]:
    """Sizes of the graph's tensors that are the same in every sample."""
    return {dim for spec in schema.attributes for dim in spec.dims if isinstance(dim, int)}


def wished_nodes(position: int, number: int) -> int:
    """Nodes wished for along the node axis at ``position`` among all, in sample ``number``."""
    return max(_LEAST_ROWS, round(_share(position, number) * _NODES[number]))


def wished_edges(position: int, number: int) -> int:
    """Pairs of nodes wished for along the relation at ``position`` among all, in sample ``number``."""
    return max(_LEAST_ROWS, round(_share(position, number) * _EDGES[number]))


def _share(position: int, number: int) -> float:
    """All of it for the first axis."""
    return 1.0 if position == 0 else _SHARES[(3 * position + number * (position % 5 + 1)) % 7]


def selected(number: int, nodes: int, names: list[str]) -> dict[str, int]:
    """How many nodes each mask and list of a type selects in sample ``number``: no formula of the nodes or of one another."""
    share = nodes // (len(names) + 1)
    return {
        name: max(LEAST_SELECTED, share - 2 * position - _IRREGULAR[(number + 2 * position) % 5])
        for position, name in enumerate(names)
    }


def node_sizes(
    sizes: Sizes, schema: GraphSchema, selections: Mapping[str, int], least_nodes: int
) -> tuple[dict[str, int], ...]:
    """Per sample, the nodes along every node axis; there is room for the nodes that masks and lists select.

    Args:
        sizes: gives them out.
        schema: of the graph.
        selections: by node axis, how many masks and lists it has.
        least_nodes: nodes that every sample has at least, along an axis that has as many.
    """
    found = []
    for number in range(SAMPLES):
        rows = {}
        for position, axis in enumerate(schema.node_axes):
            least = min(least_nodes, schema.rows[axis] + 1)
            room = (LEAST_SELECTED + 1) * selections.get(axis, 0)
            wanted = max(wished_nodes(position, number), room, least)
            rows[axis] = sizes.take(axis, wanted)
        found.append(rows)
    return tuple(found)
