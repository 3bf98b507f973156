"""Layers and models of several relations or node types, here on one type of nodes with two relations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn import models

from .case import EDGE_WIDTH, NODES, RELATIONS, WIDTH, Case

METADATA = (["node"], [("node", "to", "node"), ("node", "not", "node")])
STEPS = 4


def typed(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
    """Called with dicts by type of node and edge."""
    edges = dict(zip(METADATA[1], (graph.edge_index, graph.neg_edge_index), strict=True))
    return layer({"node": h}, edges)["node"]


def two_convolutions() -> nn.Module:
    convolutions = (gnn.GATConv(WIDTH, WIDTH), gnn.SAGEConv(WIDTH, WIDTH))
    return gnn.HeteroConv(dict(zip(METADATA[1], convolutions, strict=True)))


def jumping(layer: models.HeteroJumpingKnowledge, h: Tensor, graph: Data) -> dict[str, Tensor]:
    return layer({"node": [h, h.sin()], "other": [h.cos(), h]})


def facts(layer: models.RENet, h: Tensor, graph: Data) -> tuple[Tensor, ...]:
    """Every edge is a fact that one earlier fact of its ends leads to."""
    source, target = graph.edge_index
    numbers = torch.arange(source.size(0))
    history = {
        "sub": source,
        "obj": target,
        "rel": graph.edge_type,
        "h_sub": target,
        "h_sub_t": graph.edge_type,
        "h_sub_batch": numbers,
        "h_obj": source,
        "h_obj_t": graph.edge_type,
        "h_obj_batch": numbers,
    }
    return layer(Data(**history))


def walks(layer: models.MetaPath2Vec, h: Tensor, graph: Data) -> Tensor:
    """One walk from every node, and another one at random."""
    return layer.loss(graph.walk, graph.random_walk)


def metapath2vec() -> models.MetaPath2Vec:
    every = torch.arange(NODES).repeat(2, 1)
    kind = ("node", "to", "node")
    return models.MetaPath2Vec({kind: every}, WIDTH, [kind], walk_length=2, context_size=2)


def memory() -> models.TGNMemory:
    message = models.tgn.IdentityMessage(EDGE_WIDTH, WIDTH, WIDTH)
    return models.TGNMemory(NODES, EDGE_WIDTH, WIDTH, WIDTH, message, models.tgn.LastAggregator())


def remembered(layer: models.TGNMemory, h: Tensor, graph: Data) -> Tensor:
    return h + layer(torch.arange(h.size(0)))[0]


def ranks(layer: models.LPFormer, h: Tensor, graph: Data) -> Tensor:
    """Given every edge's weight as the personalised rank of its target."""
    nodes = h.size(0)
    weights = torch.sparse_coo_tensor(graph.edge_index, graph.edge_weight, (nodes, nodes))
    return layer(graph.edge_index, h, graph.edge_index, weights.coalesce())


SEVERAL: dict[str, Case] = {
    "HeteroConv": Case(two_convolutions, typed, "neg_edge_index"),
    "HGTConv": Case(
        lambda: gnn.HGTConv(WIDTH, WIDTH, METADATA, heads=2),
        typed,
        "neg_edge_index",
    ),
    "HANConv": Case(lambda: gnn.HANConv(WIDTH, WIDTH, METADATA, heads=2), typed, "neg_edge_index"),
    "HeteroJumpingKnowledge": Case(
        lambda: models.HeteroJumpingKnowledge(["node", "other"], "lstm", WIDTH, 2), jumping
    ),
    "RENet": Case(
        lambda: models.RENet(NODES, RELATIONS, WIDTH, STEPS),
        facts,
        "edge_type",
        partly="a row for each fact and time step; scores of all nodes for each fact",
    ),
    "MetaPath2Vec": Case(metapath2vec, walks, "walk random_walk"),
    "TGNMemory": Case(
        memory,
        remembered,
        single=True,
        follows="it keeps the messages of each node in a dict of Python",
    ),
    "LPFormer": Case(
        lambda: models.LPFormer(WIDTH, WIDTH, transformer_dropout=0.0),
        ranks,
        "edge_weight",
        partly="pairs found in a sparse matrix of nodes by nodes",
    ),
}
