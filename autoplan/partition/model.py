"""The halo of a graph that is not here: a stated model instead of a partition. No torch.

Of E edges, of which a share c crosses (`GraphSpec.cut_share`), each of P parts reads the sources of c E / P edges. Were they drawn
from the n = N (1 - 1/P) nodes of the other parts alike, ``n (1 - exp(-c E / (P n)))`` of them would be distinct (balls into
bins). Real ones lie at the borders and are shared, the more so the denser the graph, so there are ``min(d, 40) ** 0.3`` times
fewer, d = E / N.

Fitted to METIS on five public graphs (2.8 to 36 edges a node, 2 to 32 parts, ``benchmarks/halo_model.py``): the modelled halo is 0.86 to
1.32 times the measured one, on CiteSeer, which has 438 components, 1.2 to 3.4 times. Of denser graphs and of more parts it is an
extrapolation. Of several node types the model holds for each type's nodes and the edges out of them, with one c and d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autoplan.graphspec import GraphSpec
from autoplan.graphstats import PartitionStats, ShardSizes
from autoplan.opgraph import is_node_axis

METHOD = "model"
"""Of such a partition."""

DENSEST = 40.0
"""Edges a node above which the divisor grows no more."""


def modelled_partition(spec: GraphSpec, rows: Mapping[str, int], parts: int) -> PartitionStats:
    """The sizes of the shards that METIS is expected to make, all alike.

    Args:
        spec: of the graph.
        rows: of every base axis.
        parts: P.
    """
    share = spec.cut_share(parts) if parts > 1 else 0.0
    halo = {
        axis: round(halo_rows(spec, axis, count, parts))
        for axis, count in rows.items()
        if is_node_axis(axis) and parts > 1
    }
    shards = tuple(
        ShardSizes(
            {axis: _share_of(count, parts, rank) for axis, count in rows.items()}, halo, halo
        )
        for rank in range(parts)
    )
    return PartitionStats(
        parts, METHOD if parts > 1 else "single", 0, round(share * spec.total_edges), shards
    )


def halo_rows(spec: GraphSpec, axis: str, nodes: int, parts: int) -> float:
    """Rows of a node axis that each of the parts reads of the others (see above)."""
    edges = sum(spec.rows(name) or 0 for name, ends in spec.relations.items() if ends[0] == axis)
    others = nodes * (1.0 - 1.0 / parts)
    crossing = spec.cut_share(parts) * edges / parts
    if not others:
        return 0.0
    distinct = others * -math.expm1(-crossing / others)
    return distinct / math.pow(_denser(spec.mean_degree), 0.3)


def formula(spec: GraphSpec) -> str:
    """The model in words, with the numbers that it has for a graph."""
    doubling = spec.cut_share(2) if spec.cut is None else spec.cut
    degree = spec.mean_degree
    origin = (
        "as given" if spec.cut is not None else f"0.019 x log2 of its {degree:.1f} edges a node"
    )
    return (
        f"the halo (rows that a part reads of others) is modelled, not measured, as the graph is not here: over P parts "
        f"{100 * doubling:.1f} % x log2(P) of the edges run between parts ({origin}; at most 1 - 1/P), so c of them lead into "
        "each part, out of the n nodes of the other parts; they start from n x (1 - exp(-c / n)) distinct nodes if these "
        f"are spread evenly, and from {math.pow(_denser(degree), 0.3):.1f} times fewer (edges a node, at most 40, to the "
        "power 0.3) as neighbours share them; fitted to METIS on five public graphs of 2.8 to 36 edges a node and 2 to 32 "
        "parts: 0.9 to 1.3 times the measured halo, 3.4 times at worst"
    )


def _denser(degree: float) -> float:
    """Edges a node, as far as they count for how much of the halo is shared."""
    return max(1.0, min(degree, DENSEST))


def _share_of(count: int, parts: int, rank: int) -> int:
    """Rows of a rank where all have equally many."""
    return count // parts + (rank < count % parts)
