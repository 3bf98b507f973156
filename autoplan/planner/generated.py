"""A small random graph with the attributes that a `GraphSpec` tells: what is traced where the graph is not here (torch)."""

from __future__ import annotations

import torch
from torch_geometric.data import Data, HeteroData

from autoplan.graphspec import GraphSpec
from autoplan.trace.scope import AnyGraph

_NODES, _STEP = 611, 38
"""Nodes of the first type of a generated graph, and how many more each further one has."""
_EDGES_A_NODE = 4
_LEAST_LABELLED = 0.2


def generated_graph(spec: GraphSpec) -> AnyGraph:
    """A small random graph with the attributes of a spec; equal ones for equal specs.

    No number of nodes is a width of the spec, so that what counts nodes is told from what does not.
    """
    generator = torch.Generator().manual_seed(0)
    counts: dict[str, int] = {}
    taken = {*spec.widths.values(), spec.classes, spec.edge_features}
    for kind in spec.node_counts:
        count = _NODES + _STEP * len(counts)
        while count in taken:
            count += 1
        taken.add(count)
        counts[kind] = count
    graph: AnyGraph = HeteroData() if spec.several_types else Data()
    for kind, count in counts.items():
        _fill_nodes(
            graph[kind] if isinstance(graph, HeteroData) else graph, spec, kind, count, generator
        )
    for number, key in enumerate(spec.edge_counts):
        store = graph[key] if isinstance(graph, HeteroData) else graph
        edges = _EDGES_A_NODE * _NODES + _STEP * number + 1
        ends = [
            torch.randint(counts[kind], (edges,), generator=generator) for kind in (key[0], key[2])
        ]
        if key[0] == key[2] and not spec.directed:
            ends = [torch.cat(ends), torch.cat(ends[::-1])]
        store.edge_index = torch.stack(ends)
        if spec.edge_features is not None:
            store.edge_attr = torch.randn(len(ends[0]), spec.edge_features, generator=generator)
    return graph


def _fill_nodes(
    store: object, spec: GraphSpec, kind: str, count: int, generator: torch.Generator
) -> None:
    """Features of one type, and labels and masks where it has them."""
    values: dict[str, object] = {}
    if kind in spec.widths:
        values["x"] = torch.randn(count, spec.widths[kind], generator=generator)
    else:
        values["num_nodes"] = count
    if spec.classes is not None and spec.target in (kind, None):
        if spec.multilabel:
            values["y"] = torch.randint(2, (count, spec.classes), generator=generator).float()
        else:
            values["y"] = torch.randint(spec.classes, (count,), generator=generator)
        if spec.labelled is not None:
            share = max(spec.labelled, _LEAST_LABELLED)
            draws = torch.rand(count, generator=generator)
            for name in spec.masks:
                values[name] = draws < share if name == spec.masks[0] else draws >= share
    for name, value in values.items():
        setattr(store, name, value)
