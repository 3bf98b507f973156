"""What a graph is like beyond its sizes: degrees, components, cuts, growth by hops, sampled neighbourhoods. Frozen, no torch.

Planning needs none of it: it is computed when it is asked for (`autoplan.planner.structure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DegreeStats:
    """How many edges of a relation the nodes at one of its ends have.

    Attributes:
        mean, median, p99, max: p99: 99 of 100 nodes have no more.
        gini: inequality (Gini 1912): 0 where all have equally many, near 1 where one node has nearly all.
        without: nodes that have none.
    """

    mean: float
    median: float
    p99: float
    max: int
    gini: float
    without: int


@dataclass(frozen=True, slots=True)
class RelationStructure:
    """One relation.

    Attributes:
        edges: E; self_loops: edges from a node to itself (of one type).
        incoming: degrees of the destinations; outgoing: of the sources.
    """

    edges: int
    self_loops: int
    incoming: DegreeStats
    outgoing: DegreeStats


@dataclass(frozen=True, slots=True)
class PartStructure:
    """One partition.

    Attributes:
        parts: P; method, cut_edges: as in `PartitionStats`.
        cut_share: of all edges; edge_balance, node_balance: the fullest part over the mean, at least 1.
        reached: [L + 1][P] nodes of each part with all that 0, 1, ... L hops against the edges reach: row 0 are the owned ones.
    """

    parts: int
    method: str
    cut_edges: int
    cut_share: float
    edge_balance: float
    node_balance: float
    reached: tuple[tuple[int, ...], ...]

    @property
    def growth(self) -> tuple[float, ...]:
        """[L + 1] for 0 to L hops, the nodes of all parts together over all nodes: how often a node is there."""
        owned = sum(self.reached[0])
        return tuple(sum(row) / owned if owned else 1.0 for row in self.reached)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What sampling with given fan-outs takes, measured on seeded draws.

    Attributes:
        fan_outs: neighbours drawn at most for each node of the hop before, -1 for all; of each relation, where there are several.
        seeds: nodes that a batch starts from; axis: the node axis that all of them are of; batches: how many were drawn.
        nodes: [L + 1] mean number of distinct nodes after 0, 1, ... L hops; most: the largest batch's.
        edges: mean number of drawn edges, all hops together.
    """

    fan_outs: tuple[int, ...]
    seeds: int
    axis: str
    batches: int
    nodes: tuple[float, ...]
    most: int
    edges: float


@dataclass(frozen=True, slots=True)
class GraphStructure:
    """A graph, described.

    Attributes:
        nodes: by node axis; relations: by edge axis, the graph's own edges.
        components: of all types and relations together; largest: nodes of the largest one.
        partitions: one entry for each measured partition, the fewest parts first.
        neighbourhoods: one for each list of fan-outs and each node type that edges lead to.
    """

    nodes: Mapping[str, int]
    relations: Mapping[str, RelationStructure]
    components: int
    largest: int
    partitions: tuple[PartStructure, ...]
    neighbourhoods: tuple[Neighbourhood, ...]
