"""What the search and the prices know of a graph and of its partitions. Frozen, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autoplan.opgraph import Axis, State, is_node_axis, is_primary_relation


@dataclass(frozen=True, slots=True)
class ShardSizes:
    """Rows of one rank's shard.

    Attributes:
        owned_rows: by base or index axis, the rows this rank owns (edges live with their destination's owner).
        halo_rows: by node axis, rows of other owners that its edges read (absent: none).
        sent_rows: by node axis, rows this rank sends to all peers in one halo exchange (absent: none).
    """

    owned_rows: Mapping[str, int]
    halo_rows: Mapping[str, int]
    sent_rows: Mapping[str, int]

    @property
    def nodes(self) -> int:
        """Owned nodes of all types."""
        return sum(n for axis, n in self.owned_rows.items() if is_node_axis(axis))

    @property
    def halo(self) -> int:
        """Halo rows of all types."""
        return sum(self.halo_rows.values())

    @property
    def edges(self) -> int:
        """Owned edges of every relation; pairs of nodes in further attributes are not among them."""
        return sum(n for axis, n in self.owned_rows.items() if is_primary_relation(axis))


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition of one graph, measured.

    Attributes:
        parts: number of ranks (of a pipeline: replicas times micro-batches); method: ``metis``, ``given``, ``single``,
            ``closed`` (whole graphs or connected components: nothing is cut, no halo) or ``model`` (sizes that are expected of a
            graph that is not here); seed: what it was made with.
        cut_edges: edges whose ends have different owners.
        shards: one entry per rank.
    """

    parts: int
    method: str
    seed: int
    cut_edges: int
    shards: tuple[ShardSizes, ...]

    @property
    def closed(self) -> bool:
        """Whether every edge and every graph lies within one part, so that rows of the graph axis have owners, too."""
        return self.method == "closed"


@dataclass(frozen=True, slots=True)
class GraphStats:
    """Sizes of a graph.

    Attributes:
        rows: by base or index axis, the rows of the whole graph.
        max_in_degree, mean_in_degree: of the nodes; isolated_nodes: neither end of any edge.
        attribute_bytes: by graph attribute.
        partitions: by number of parts, cut anywhere; closed: by number of parts, along whole units only.
        units: how many graphs (or connected components) there are that no edge joins; unit: which of the two.
    """

    rows: Mapping[str, int]
    max_in_degree: int
    mean_in_degree: float
    isolated_nodes: int
    attribute_bytes: Mapping[str, int]
    partitions: Mapping[int, PartitionStats]
    closed: Mapping[int, PartitionStats] = field(default_factory=dict)
    units: int = 1
    unit: Literal["graph", "component"] = "component"

    @property
    def nodes(self) -> int:
        """Nodes of all types."""
        return sum(rows for axis, rows in self.rows.items() if is_node_axis(axis))


def axis_rows(
    axes: Mapping[str, Axis], stats: GraphStats, state: State, shard: ShardSizes | None
) -> dict[str, float]:
    """Rows of every axis on one rank in a state: whole in R (and S), the shard's own in O, own + halo in H.

    Derived axes follow their parts; an ``other`` axis has no place in a partition and always has its whole size.
    Sizes of ``select`` axes are estimates: the share of rows seen on the samples times the parent's rows.
    """
    whole = {name: float(rows) for name, rows in stats.rows.items()}
    if state in ("R", "S") or shard is None:
        base = whole
    else:
        base = {name: float(shard.owned_rows.get(name, rows)) for name, rows in stats.rows.items()}
        if state == "H":
            base = {name: rows + shard.halo_rows.get(name, 0) for name, rows in base.items()}
    rows: dict[str, float] = {}

    def of(name: str) -> float:
        if name in rows:
            return rows[name]
        axis = axes[name]
        if axis.kind in ("base", "index"):
            value = base[name]
        elif axis.kind == "concat":
            value = sum(of(part) for part in axis.parts)
        elif axis.kind == "blocks":
            value = axis.width * of(axis.parts[0])
        elif axis.kind == "select":
            parent = axes[axis.parts[0]]
            parent_whole = parent.count(whole)
            share = axis.count(whole) / parent_whole if parent_whole else 0.0
            value = share * of(axis.parts[0])
        else:
            value = axis.count(whole)
        rows[name] = value
        return value

    for name in axes:
        of(name)
    return rows
