"""Graphs that the tests of tracing share."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

NODES, EDGES, FEATURES, CLASSES = 300, 900, 20, 6


def node_graph(**attributes: object) -> Data:
    """A directed graph with 20 features, 6 classes and three disjoint masks; further attributes by name."""
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(NODES, generator=generator)
    masks = torch.zeros(3, NODES, dtype=torch.bool)
    masks[0, order[:40]] = True
    masks[1, order[40:90]] = True
    masks[2, order[90:200]] = True
    graph = Data(
        x=torch.randn(NODES, FEATURES, generator=generator),
        edge_index=torch.randint(0, NODES - 1, (2, EDGES), generator=generator),
        y=torch.randint(0, CLASSES, (NODES,), generator=generator),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
    )
    for name, value in attributes.items():
        graph[name] = value
    return graph
