"""Convolutions of a homogeneous graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data

from .case import EDGE_WIDTH, RELATIONS, WIDTH, Call, Case


def perceptron(inside: int = WIDTH, outside: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(inside, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outside))


def with_attribute(*names: str) -> Call:
    """Called with attributes of the edges after ``edge_index``."""

    def call(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
        return layer(h, graph.edge_index, *(graph[name] for name in names))

    return call


def with_weights(make: type[nn.Module], *arguments: object, **options: object) -> Case:
    return Case(lambda: make(*arguments, **options), with_attribute("edge_weight"), "edge_weight")


def with_features(make: type[nn.Module], *arguments: object, **options: object) -> Case:
    return Case(lambda: make(*arguments, **options), with_attribute("edge_attr"), "edge_attr")


def with_types(make: type[nn.Module], *arguments: object, **options: object) -> Case:
    return Case(lambda: make(*arguments, **options), with_attribute("edge_type"), "edge_type")


def with_initial(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
    """Called with the first layer's states, too."""
    return layer(h.relu(), h, graph.edge_index)


def incidence(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
    """Every node stands for a hyperedge, too."""
    return layer(h, graph.edge_index, num_edges=graph.num_nodes)


def mesh(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
    """Edges of a triangular mesh: four neighbours for each, as the layer wants them."""
    count = h.size(0)
    target = torch.arange(count).repeat_interleave(4)
    source = (target + torch.arange(1, 5).repeat(count)) % count
    return layer(h, torch.stack([target, source]))


def colours(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
    return h * layer(graph.node_type, graph.edge_index).unsqueeze(1)


class Messages(gnn.MessagePassing):
    """The base class, called as its subclasses call it."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


DEGREES = torch.tensor([1, 5, 9, 12, 7, 3])

CONVOLUTIONS: dict[str, Case] = {
    "MessagePassing": Case(
        lambda: Messages(aggr="add"),
    ),
    "SimpleConv": with_weights(gnn.SimpleConv, "mean", combine_root="sum"),
    "GCNConv": with_weights(gnn.GCNConv, WIDTH, WIDTH),
    "ChebConv": Case(
        lambda: gnn.ChebConv(WIDTH, WIDTH, 3),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.edge_weight, lambda_max=2.0),
        "edge_weight",
    ),
    "SAGEConv": Case(lambda: gnn.SAGEConv(WIDTH, WIDTH, aggr=["mean", "max"], project=True)),
    "GraphConv": with_weights(gnn.GraphConv, WIDTH, WIDTH),
    "GatedGraphConv": with_weights(gnn.GatedGraphConv, WIDTH, 2),
    "ResGatedGraphConv": with_features(gnn.ResGatedGraphConv, WIDTH, WIDTH, edge_dim=EDGE_WIDTH),
    "GATConv": with_features(gnn.GATConv, WIDTH, 4, heads=2, edge_dim=EDGE_WIDTH),
    "GATv2Conv": with_features(gnn.GATv2Conv, WIDTH, 4, heads=2, edge_dim=EDGE_WIDTH),
    "TransformerConv": with_features(
        gnn.TransformerConv, WIDTH, 4, heads=2, beta=True, edge_dim=EDGE_WIDTH
    ),
    "AGNNConv": Case(gnn.AGNNConv),
    "TAGConv": with_weights(gnn.TAGConv, WIDTH, WIDTH),
    "GINConv": Case(lambda: gnn.GINConv(perceptron(), train_eps=True)),
    "GINEConv": with_features(gnn.GINEConv, perceptron(), edge_dim=EDGE_WIDTH),
    "ARMAConv": with_weights(gnn.ARMAConv, WIDTH, WIDTH, num_stacks=2, num_layers=2),
    "SGConv": with_weights(gnn.SGConv, WIDTH, WIDTH, K=2),
    "SSGConv": with_weights(gnn.SSGConv, WIDTH, WIDTH, alpha=0.1, K=2),
    "APPNP": with_weights(gnn.APPNP, K=3, alpha=0.1, dropout=0.2),
    "MFConv": Case(lambda: gnn.MFConv(WIDTH, WIDTH, max_degree=4)),
    "RGCNConv": with_types(gnn.RGCNConv, WIDTH, WIDTH, RELATIONS),
    "FastRGCNConv": with_types(gnn.FastRGCNConv, WIDTH, WIDTH, RELATIONS, num_bases=2),
    "RGATConv": Case(
        lambda: gnn.RGATConv(WIDTH, WIDTH, RELATIONS, heads=2, edge_dim=EDGE_WIDTH),
        with_attribute("edge_type", "edge_attr"),
        "edge_type edge_attr",
    ),
    "SignedConv": Case(
        lambda: gnn.SignedConv(WIDTH, WIDTH, first_aggr=True),
        with_attribute("neg_edge_index"),
        "neg_edge_index",
    ),
    "DNAConv": Case(
        lambda: gnn.DNAConv(WIDTH, heads=2, groups=2),
        lambda layer, h, graph: layer(torch.stack([h, h.sin()], 1), graph.edge_index),
    ),
    "GMMConv": with_features(gnn.GMMConv, WIDTH, WIDTH, dim=EDGE_WIDTH, kernel_size=3),
    "NNConv": with_features(gnn.NNConv, WIDTH, WIDTH, nn.Linear(EDGE_WIDTH, WIDTH * WIDTH)),
    "CGConv": with_features(gnn.CGConv, WIDTH, dim=EDGE_WIDTH, batch_norm=True),
    "EdgeConv": Case(lambda: gnn.EdgeConv(perceptron(2 * WIDTH))),
    "FeaStConv": Case(lambda: gnn.FeaStConv(WIDTH, WIDTH, heads=2)),
    "HypergraphConv": Case(lambda: gnn.HypergraphConv(WIDTH, WIDTH), incidence),
    "LEConv": with_weights(gnn.LEConv, WIDTH, WIDTH),
    "PNAConv": with_features(
        gnn.PNAConv,
        WIDTH,
        WIDTH,
        ["mean", "min", "max", "std"],
        ["identity", "amplification", "attenuation"],
        DEGREES,
        edge_dim=EDGE_WIDTH,
        towers=2,
    ),
    "ClusterGCNConv": Case(
        lambda: gnn.ClusterGCNConv(WIDTH, WIDTH),
        partly="it adds a row for each node to the edges that are self-loops",
    ),
    "GENConv": with_features(
        gnn.GENConv, WIDTH, WIDTH, learn_t=True, msg_norm=True, edge_dim=EDGE_WIDTH
    ),
    "GCN2Conv": Case(lambda: gnn.GCN2Conv(WIDTH, 0.1, 0.5, 2), with_initial),
    "WLConv": Case(
        gnn.WLConv, colours, "node_type", follows="it numbers colours in a dict of Python"
    ),
    "WLConvContinuous": with_weights(gnn.WLConvContinuous),
    "FiLMConv": with_types(gnn.FiLMConv, WIDTH, WIDTH, RELATIONS),
    "SuperGATConv": Case(
        lambda: gnn.SuperGATConv(WIDTH, 4, heads=2),
        with_attribute("neg_edge_index"),
        "neg_edge_index",
    ),
    "FAConv": Case(lambda: gnn.FAConv(WIDTH), with_initial),
    "EGConv": Case(
        lambda: gnn.EGConv(WIDTH, WIDTH, ["symnorm", "max", "std"], num_heads=2, num_bases=2)
    ),
    "PDNConv": with_features(gnn.PDNConv, WIDTH, WIDTH, EDGE_WIDTH, WIDTH),
    "GeneralConv": with_features(
        gnn.GeneralConv, WIDTH, WIDTH, EDGE_WIDTH, heads=2, attention=True, l2_normalize=True
    ),
    "HEATConv": Case(
        lambda: gnn.HEATConv(WIDTH, WIDTH, RELATIONS, RELATIONS, 5, EDGE_WIDTH, 6, heads=2),
        lambda layer, h, graph: layer(
            h, graph.edge_index, graph.node_type, graph.edge_type, graph.edge_attr
        ),
        "node_type edge_type edge_attr",
    ),
    "LGConv": with_weights(gnn.LGConv),
    "GPSConv": Case(
        lambda: gnn.GPSConv(WIDTH, gnn.GINConv(perceptron()), heads=2),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.batch),
        batch=True,
        partly="attention between all nodes of a graph, padded to the largest",
    ),
    "AntiSymmetricConv": Case(lambda: gnn.AntiSymmetricConv(WIDTH, num_iters=2)),
    "DirGNNConv": Case(lambda: gnn.DirGNNConv(gnn.SAGEConv(WIDTH, WIDTH))),
    "MixHopConv": with_weights(gnn.MixHopConv, WIDTH, WIDTH),
    "MeshCNNConv": Case(
        lambda: gnn.MeshCNNConv(WIDTH, WIDTH),
        mesh,
        single=True,
        partly="four neighbours of each row, one after another",
    ),
    "PointNetConv": Case(
        lambda: gnn.PointNetConv(perceptron(WIDTH + 3), perceptron()),
        lambda layer, h, graph: layer(h, graph.pos, graph.edge_index),
        "pos",
    ),
    "PPFConv": Case(
        lambda: gnn.PPFConv(perceptron(WIDTH + 4), perceptron()),
        lambda layer, h, graph: layer(h, graph.pos, graph.normal, graph.edge_index),
        "pos normal",
    ),
    "PointTransformerConv": Case(
        lambda: gnn.PointTransformerConv(WIDTH, WIDTH),
        lambda layer, h, graph: layer(h, graph.pos, graph.edge_index),
        "pos",
    ),
    "PointGNNConv": Case(
        lambda: gnn.PointGNNConv(perceptron(WIDTH, 3), perceptron(WIDTH + 3), perceptron()),
        lambda layer, h, graph: layer(h, graph.pos, graph.edge_index),
        "pos",
    ),
}
