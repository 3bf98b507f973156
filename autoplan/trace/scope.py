"""Parts of a graph that hold attributes, and what the attributes of each may count (torch).

A homogeneous graph is one part. A `HeteroData` has one for each node type, one for each relation and one for the graph itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch_geometric.data import Data, HeteroData

from autoplan.opgraph import EDGE, NODE, edge_axis, index_axis, type_of_axis

TypeKey: TypeAlias = str | tuple[str, str, str] | None
"""Which part: a node type, a relation (source, name, destination), or None for the graph itself."""

AnyGraph: TypeAlias = Data | HeteroData
"""A graph of one type, or of several."""

NUM_NODES = "num_nodes"
DERIVED = (NUM_NODES, "ptr")
"""Attributes that follow from others: sizes are read from the tensors, so that a sample or a shard has its own."""


def key_name(key: TypeKey) -> str:
    """``paper``, ``author__writes__paper``, or nothing for the graph itself."""
    if key is None:
        return ""
    return key if isinstance(key, str) else "__".join(key)


def full_name(key: TypeKey, attribute: str) -> str:
    """An attribute's name in a schema: ``paper.x``, ``author__writes__paper.edge_index``, ``x``."""
    return attribute if key is None else f"{key_name(key)}.{attribute}"


def label(key: TypeKey, attribute: str) -> str:
    """How a user writes it: ``graph.x``, ``graph['paper'].x``, ``graph['author', 'writes', 'paper'].edge_index``."""
    if key is None:
        return f"graph.{attribute}"
    inside = repr(key) if isinstance(key, str) else ", ".join(map(repr, key))
    return f"graph[{inside}].{attribute}"


def parts_of(graph: AnyGraph) -> Iterator[tuple[TypeKey, Mapping[str, Any]]]:
    """The parts of a graph with their attributes, derived ones left out; node types first, in the graph's order."""
    if isinstance(graph, Data):
        yield None, _own(graph.to_dict())
        return
    for kind, store in graph.node_items():
        yield kind, _own(store)
    for relation, store in graph.edge_items():
        yield relation, _own(store)
    yield None, _own(graph._global_store)


def store_of(graph: AnyGraph, key: TypeKey) -> Any:
    """What holds a part's attributes: read with ``[name]`` and ``get``, written with ``[name] =``. None where there is none."""
    if isinstance(graph, Data):
        return graph if key is None else None
    if key is None:
        return graph._global_store
    return graph[key] if key in graph.node_types or key in graph.edge_types else None


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in DERIVED}


@dataclass(frozen=True, slots=True)
class Scope:
    """What the attributes of one part of a graph may count.

    Attributes:
        key: the part.
        node: the axis of its nodes; None where it has none (a relation, or the graph of several types).
        edge: the axis of its edges, likewise.
        ends: axes of the sources and destinations of pairs of nodes that lie here; None where that is not said.
        rows: by axis, rows of what can be counted here; grows while the part's lists are found.
    """

    key: TypeKey
    node: str | None
    edge: str | None
    ends: tuple[str, str] | None
    rows: dict[str, int]

    def label(self, attribute: str) -> str:
        """How a user writes an attribute of this part."""
        return label(self.key, attribute)

    def full_name(self, attribute: str) -> str:
        """An attribute's name in the schema."""
        return full_name(self.key, attribute)

    def pairs_axis(self, attribute: str) -> str:
        """The axis of an attribute that lists pairs of nodes."""
        return edge_axis(key_name(self.key) or None, attribute)

    def list_axis(self, attribute: str) -> str:
        """The axis of an attribute that lists nodes."""
        return index_axis(attribute, key_name(self.key) or None)

    def axis(self, asked: str) -> str:
        """What the user's word counts here: ``node`` and ``edge`` are this part's own."""
        if asked == NODE:
            return self.node or asked
        return (self.edge or asked) if asked == EDGE else asked

    def own(self) -> Iterator[tuple[str, str]]:
        """Its own axes, each with the word for its rows: ``node``, ``edge``, ``'paper' node``."""
        for axis, word in ((self.node, NODE), (self.edge, EDGE)):
            if axis is not None:
                yield axis, word if self.key is None else rows_word(axis)


def rows_word(axis: str) -> str:
    """What one row of an axis is, for messages: ``node``, ``'paper' node``, ``'author__writes__paper' edge``."""
    kind, word = type_of_axis(axis), axis.partition("[")[0].partition(":")[0]
    return word if kind is None else f"{kind!r} {word}"
