"""Graphs that the tests of tracing share."""

from __future__ import annotations

import torch
from torch_geometric.data import Data, HeteroData

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


WRITES, WRITTEN, CITES = (
    ("author", "writes", "paper"),
    ("paper", "rev_writes", "author"),
    ("paper", "cites", "paper"),
)


def typed_graph(papers: int = 60, authors: int = 40) -> HeteroData:
    """Papers (4 features, 3 classes, a mask and a list) and authors (5 features); authors write papers, papers cite papers."""
    generator = torch.Generator().manual_seed(3)

    def drawn(below: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, below, shape, generator=generator)

    graph = HeteroData()
    graph["paper"].x = torch.randn(papers, 4, generator=generator)
    graph["author"].x = torch.randn(authors, 5, generator=generator)
    graph["paper"].y = drawn(3, papers)
    graph["paper"].train_mask = torch.rand(papers, generator=generator) < 0.5
    writes = torch.stack([drawn(authors, 170), drawn(papers, 170)])
    graph[WRITES].edge_index = writes
    graph[WRITTEN].edge_index = writes.flip(0)
    graph[CITES].edge_index = drawn(papers, 2, 210)
    return graph


SIZES = (FEATURES, 16, 2, CLASSES)
"""Features, hidden width, layers and classes of a model for `node_graph`."""


def masked_loss(out, graph):
    return torch.nn.functional.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])
