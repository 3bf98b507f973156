"""All of them by class name, and those that this machine lacks a package for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn import models

from .case import WIDTH, Case
from .convolutions import CONVOLUTIONS
from .models import MODELS
from .relations import SEVERAL

CASES: dict[str, Case] = {**CONVOLUTIONS, **MODELS, **SEVERAL}

NODES = torch.zeros(9, WIDTH)
EDGES = torch.zeros(2, 20, dtype=torch.int64)
KINDS = torch.ones(9, dtype=torch.int64)
PLACES = torch.zeros(9, 3)
BATCH = torch.zeros(9, dtype=torch.int64)

LACKING: dict[str, tuple[str, Callable[[], object]]] = {
    "CuGraphSAGEConv": ("pylibcugraphops", lambda: gnn.conv.CuGraphSAGEConv(WIDTH, WIDTH)),
    "CuGraphGATConv": ("pylibcugraphops", lambda: gnn.conv.CuGraphGATConv(WIDTH, WIDTH)),
    "CuGraphRGCNConv": ("pylibcugraphops", lambda: gnn.conv.CuGraphRGCNConv(WIDTH, WIDTH, 3)),
    "FusedGATConv": (
        "dgNN",
        lambda: gnn.conv.FusedGATConv(WIDTH, WIDTH, add_self_loops=False)(NODES, (), (), EDGES),
    ),
    "GravNetConv": ("pyg-lib", lambda: gnn.GravNetConv(WIDTH, WIDTH, 3, 3, 4)),
    "DynamicEdgeConv": ("pyg-lib", lambda: gnn.DynamicEdgeConv(nn.Linear(2 * WIDTH, WIDTH), 4)),
    "XConv": ("pyg-lib", lambda: gnn.XConv(WIDTH, WIDTH, 3, 4)),
    "SplineConv": ("pyg-lib", lambda: gnn.SplineConv(WIDTH, WIDTH, 2, 3)),
    "PANConv": ("torch-sparse", lambda: gnn.PANConv(WIDTH, WIDTH, 2)(NODES, EDGES)),
    "Node2Vec": ("pyg-lib", lambda: models.Node2Vec(EDGES, WIDTH, 5, 3)),
    "DimeNet": (
        "pyg-lib",
        lambda: models.DimeNet(WIDTH, 4, 2, 2, 3, 4)(KINDS, PLACES, BATCH),
    ),
    "DimeNetPlusPlus": (
        "pyg-lib",
        lambda: models.DimeNetPlusPlus(WIDTH, 4, 2, 4, 4, 8, 3, 4)(KINDS, PLACES, BATCH),
    ),
    "GNNFF": ("pyg-lib", lambda: models.GNNFF(WIDTH, WIDTH, 2)(KINDS, PLACES, BATCH)),
    "ViSNet": ("pyg-lib", lambda: models.ViSNet()(KINDS, PLACES, BATCH)),
}
"""By class: the package it asks for, and what asks for it."""

CONVERSIONS = frozenset({"to_captum_input", "captum_output_to_dicts"})
"""Functions on tensors among the models, not models."""
