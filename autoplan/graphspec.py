"""Graphs that are not here, as sizes: enough to plan for, not to run. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoplan.errors import PlanError
from autoplan.opgraph import (
    EDGE,
    NODE,
    edge_axis,
    is_node_axis,
    is_primary_relation,
    node_axis,
    type_of_axis,
)

RelationKey = tuple[str, str, str]
"""Source type, name, destination type, as in a `HeteroData`."""


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """Sizes of a graph, for ``autoplan.optimize(model, GraphSpec.named("ogbn-papers100M"), "8xa100_sxm4_80gb")``.

    The model sees a graph with ``x``, ``edge_index``, and where there are ``classes`` ``y`` and the masks; several types make
    it a `HeteroData`. Plans for it are for reading: `Plan.rebind` with the graph itself makes one that runs.

    Attributes:
        nodes: N; of several types by type.
        edges: columns of ``edge_index``, both directions of an undirected graph; of several types by relation.
        features: width of ``x``; of several types by type, those without are left out.
        classes: labels 0 .. classes - 1 of the nodes, or columns of zeros and ones where they are ``multilabel``; None: no ``y``.
        labelled: share of the nodes in the first of the masks; None: there are no masks.
        masks: boolean node attributes.
        target: of several types, the one that has the labels.
        edge_features: width of ``edge_attr``, where there is one.
        directed: an edge need not have its reverse.
        max_in_degree: where it is known.
        cut: share of the edges that METIS cuts for each doubling of the parts; None: see `autoplan.partition.model`.
        name: for people; source: where the figures are from.
    """

    nodes: int | Mapping[str, int]
    edges: int | Mapping[RelationKey, int]
    features: int | Mapping[str, int]
    classes: int | None = None
    multilabel: bool = False
    labelled: float | None = None
    masks: tuple[str, ...] = ("train_mask", "val_mask", "test_mask")
    target: str | None = None
    edge_features: int | None = None
    directed: bool = True
    max_in_degree: int | None = None
    cut: float | None = None
    name: str = "a graph"
    source: str = "given"

    def __post_init__(self) -> None:
        """Raises PlanError for sizes that no graph has."""
        kinds = {isinstance(each, Mapping) for each in (self.nodes, self.edges, self.features)}
        if len(kinds) > 1:
            raise PlanError(
                f"the GraphSpec of {self.name} gives some of nodes, edges and features by type and some not; "
                "give all three as numbers, or all three as dicts by type"
            )
        for what, numbers, least in (
            ("nodes", self.node_counts.values(), 1),
            ("edges", self.edge_counts.values(), 0),
            ("features", self.widths.values(), 1),
        ):
            for number in numbers:
                if not isinstance(number, int) or isinstance(number, bool) or number < least:
                    raise PlanError(
                        f"the GraphSpec of {self.name} has {what} {number!r}; give whole numbers of at least {least}"
                    )
        for key in self.edge_counts if self.several_types else ():
            missing = {key[0], key[2]} - set(self.node_counts)
            if missing:
                raise PlanError(
                    f"the GraphSpec of {self.name} has edges {key} but no nodes of type {', '.join(sorted(missing))}"
                )
        if self.several_types and self.classes is not None and self.target not in self.node_counts:
            raise PlanError(
                f"the GraphSpec of {self.name} has {self.classes} classes of target={self.target!r}; "
                f"target is one of {', '.join(self.node_counts)}"
            )
        if self.labelled is not None and not 0 < self.labelled <= 1:
            raise PlanError(
                f"the GraphSpec of {self.name} has labelled={self.labelled!r}; it is a share above 0 and at most 1"
            )

    @classmethod
    def named(cls, name: str) -> GraphSpec:
        """A public graph by its name, in any case: see `autoplan.graphsizes`. Raises PlanError for one that is not there."""
        from autoplan.graphsizes import PUBLIC

        for spec in PUBLIC:
            if spec.name.lower() == name.lower():
                return spec
        raise PlanError(
            f"no sizes of {name!r} are known; there are {', '.join(spec.name for spec in PUBLIC)}; "
            "for another graph give its sizes: GraphSpec(nodes=..., edges=..., features=...)"
        )

    @property
    def several_types(self) -> bool:
        """Whether it is a `HeteroData`."""
        return isinstance(self.nodes, Mapping)

    @property
    def node_counts(self) -> Mapping[str, int]:
        """By type; one type is called ``node``."""
        return self.nodes if isinstance(self.nodes, Mapping) else {NODE: self.nodes}

    @property
    def edge_counts(self) -> Mapping[RelationKey, int]:
        """By relation; the only one is ``("node", "edge", "node")``."""
        return self.edges if isinstance(self.edges, Mapping) else {(NODE, EDGE, NODE): self.edges}

    @property
    def widths(self) -> Mapping[str, int]:
        """Of ``x``, by type."""
        return self.features if isinstance(self.features, Mapping) else {NODE: self.features}

    @property
    def attributes(self) -> str:
        """What a model for it must take and give: ``x of 128 columns, 40 classes``."""
        if self.several_types:
            told = [f"{kind}.x of {count} columns" for kind, count in self.widths.items()]
            told += [f"{kind} without x" for kind in self.node_counts if kind not in self.widths]
        else:
            told = [f"x of {self.widths[NODE]} columns"]
        if self.edge_features is not None:
            told.append(f"edge_attr of {self.edge_features} columns")
        if self.classes is not None:
            of = f" of {self.target}" if self.target is not None else ""
            told.append(
                f"{self.classes} {'labels of 0 or 1' if self.multilabel else 'classes'}{of}"
            )
        return ", ".join(told)

    @property
    def total_nodes(self) -> int:
        """Of all types."""
        return sum(self.node_counts.values())

    @property
    def total_edges(self) -> int:
        """Of all relations."""
        return sum(self.edge_counts.values())

    @property
    def mean_degree(self) -> float:
        """Edges over nodes."""
        return self.total_edges / self.total_nodes

    def rows(self, axis: str) -> int | None:
        """Rows of a base axis of nodes or edges; None for any other."""
        kind = type_of_axis(axis)
        if is_node_axis(axis):
            return self.node_counts.get(NODE if kind is None else kind)
        if is_primary_relation(axis):
            named = {edge_axis("__".join(key)): number for key, number in self.edge_counts.items()}
            return sum(self.edge_counts.values()) if kind is None else named.get(axis)
        return None

    @property
    def relations(self) -> Mapping[str, tuple[str, str]]:
        """By edge axis, the node axes of its ends."""
        if not self.several_types:
            return {EDGE: (NODE, NODE)}
        return {
            edge_axis("__".join(key)): (node_axis(key[0]), node_axis(key[2]))
            for key in self.edge_counts
        }

    def with_reverse_edges(self) -> GraphSpec:
        """With every edge's reverse, as PyG's ``ToUndirected`` adds it: of two types as ``rev_NAME``, and within one type twice."""
        if not self.directed:
            return self
        if not isinstance(self.edges, Mapping):
            return replace(self, edges=2 * self.edges, directed=False)
        edges: dict[RelationKey, int] = {}
        for (source, name, destination), number in self.edges.items():
            if source == destination:
                edges[source, name, destination] = 2 * number
            else:
                edges[source, name, destination] = number
                edges[destination, f"rev_{name}", source] = number
        return replace(self, edges=edges, directed=False)

    def cut_share(self, parts: int) -> float:
        """Share of the edges between parts: ``min(k log2 P, 1 - 1/P)``; the second is that of random parts.

        ``k`` is `cut`, or ``0.019 log2 d`` for d edges a node: measured with METIS on five public graphs (Cora, CiteSeer,
        DBLP, Coauthor Physics, Amazon Computers; 2.8 to 36 edges a node; 2 to 32 parts; ``benchmarks/halo_model.py``). There the
        share is 0.95 to 1.5 times the measured one; on CiteSeer, which has 438 components, up to 4 times.
        """
        doubling = self.cut
        if doubling is None:
            doubling = 0.019 * math.log2(max(self.mean_degree, 1.1))
        return min(doubling * math.log2(parts), 1.0 - 1.0 / parts)
