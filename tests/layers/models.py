"""Models of a homogeneous graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn import models
from torch_geometric.utils import scatter

from .case import CLASSES, EDGE_WIDTH, NODES, WIDTH, Case
from .convolutions import DEGREES, perceptron


class Given(nn.Module):
    """The edges of a molecule as they are on the graph, instead of a search for neighbours."""

    edge_index: Tensor

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        source, target = self.edge_index
        return self.edge_index, (pos[source] - pos[target]).norm(dim=-1)


def schnet(layer: models.SchNet, h: Tensor, graph: Data) -> Tensor:
    layer.interaction_graph.edge_index = graph.edge_index
    return layer(graph.z, graph.pos + h[:, :3], graph.batch)


class EdgeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = perceptron(3 * WIDTH + EDGE_WIDTH, EDGE_WIDTH)

    def forward(
        self, src: Tensor, dst: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor
    ) -> Tensor:
        return self.mlp(torch.cat([src, dst, edge_attr, u[batch]], 1))


class NodeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = perceptron(2 * WIDTH + EDGE_WIDTH)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor
    ) -> Tensor:
        arrived = scatter(edge_attr, edge_index[1], 0, x.size(0), "mean")
        return self.mlp(torch.cat([x, arrived, u[batch]], 1))


class GlobalModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = perceptron(2 * WIDTH)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor
    ) -> Tensor:
        return self.mlp(torch.cat([u, gnn.global_mean_pool(x, batch)], 1))


def meta_layer(layer: models.MetaLayer, h: Tensor, graph: Data) -> tuple[Tensor, ...]:
    u = gnn.global_add_pool(h, graph.batch)
    return layer(h, graph.edge_index, graph.edge_attr, u, graph.batch)


def jumping(layer: models.JumpingKnowledge, h: Tensor, graph: Data) -> Tensor:
    return layer([h, h.sin(), h.cos()])


def infomax(layer: models.DeepGraphInfomax, h: Tensor, graph: Data) -> Tensor:
    return layer.loss(*layer(h, graph.edge_index))


def shuffled(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    return x[torch.randperm(x.size(0))], edge_index


def autoencoder(layer: models.GAE, h: Tensor, graph: Data) -> Tensor:
    z = layer.encode(h, graph.edge_index)
    return layer.recon_loss(z, graph.edge_label_index, graph.neg_edge_index)


def variational(layer: models.VGAE, h: Tensor, graph: Data) -> tuple[Tensor, ...]:
    return autoencoder(layer, h, graph), layer.kl_loss()


def adversarial(layer: models.ARGA, h: Tensor, graph: Data) -> tuple[Tensor, ...]:
    z = layer.encode(h, graph.edge_index)
    loss = layer.recon_loss(z, graph.edge_label_index, graph.neg_edge_index)
    return loss, layer.reg_loss(z), layer.discriminator_loss(z)


def adversarial_variational(layer: models.ARGVA, h: Tensor, graph: Data) -> tuple[Tensor, ...]:
    return *adversarial(layer, h, graph), layer.kl_loss()


class Encoder(nn.Module):
    """Means and logarithms of deviations."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = gnn.GCNConv(WIDTH, WIDTH)
        self.deviation = gnn.GCNConv(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean(x, edge_index), self.deviation(x, edge_index)


def to_captum(layer: nn.Module, h: Tensor, graph: Data) -> Tensor:
    mask = torch.sigmoid(graph.edge_attr[:, 0]).unsqueeze(0)
    return layer(mask, h, graph.edge_index)


def gpse(layer: models.GPSE, h: Tensor, graph: Data) -> object:
    """Positions stand for the statistics that it learns."""
    given = graph.clone()
    given.x = h
    given.y = graph.pos
    given.y_graph = gnn.global_mean_pool(graph.pos[:, :2], graph.batch)
    return layer(given)


def correct_and_smooth(layer: models.CorrectAndSmooth, h: Tensor, graph: Data) -> Tensor:
    soft = h[:, :CLASSES].softmax(-1)
    true = graph.y[graph.mask]
    corrected = layer.correct(soft, true, graph.mask, graph.edge_index)
    return layer.smooth(corrected, true, graph.mask, graph.edge_index)


LINKS = "edge_label_index neg_edge_index"

MODELS: dict[str, Case] = {
    "MLP": Case(lambda: models.MLP([WIDTH, 16, WIDTH]), lambda layer, h, graph: layer(h)),
    "GCN": Case(lambda: models.GCN(WIDTH, 16, 2, CLASSES, norm="batch", jk="cat")),
    "GraphSAGE": Case(lambda: models.GraphSAGE(WIDTH, 16, 2, CLASSES, aggr="max")),
    "GIN": Case(lambda: models.GIN(WIDTH, 16, 2, CLASSES, norm="batch_norm", jk="lstm")),
    "GAT": Case(lambda: models.GAT(WIDTH, 16, 2, CLASSES, v2=True, heads=2, norm="layer")),
    "PNA": Case(
        lambda: models.PNA(
            WIDTH, 16, 2, CLASSES, aggregators=["mean", "std"], scalers=["linear"], deg=DEGREES
        )
    ),
    "EdgeCNN": Case(lambda: models.EdgeCNN(WIDTH, 16, 2, CLASSES)),
    "JumpingKnowledge": Case(lambda: models.JumpingKnowledge("lstm", WIDTH, 2), jumping),
    "MetaLayer": Case(
        lambda: models.MetaLayer(EdgeModel(), NodeModel(), GlobalModel()),
        meta_layer,
        "edge_attr",
        batch=True,
    ),
    "DeepGraphInfomax": Case(
        lambda: models.DeepGraphInfomax(
            WIDTH, gnn.GCNConv(WIDTH, WIDTH), lambda z, *_: z.mean(0).sigmoid(), shuffled
        ),
        infomax,
    ),
    "InnerProductDecoder": Case(
        models.InnerProductDecoder,
        lambda layer, h, graph: layer(h, graph.edge_label_index),
        "edge_label_index",
    ),
    "GAE": Case(lambda: models.GAE(gnn.GCNConv(WIDTH, WIDTH)), autoencoder, LINKS),
    "VGAE": Case(lambda: models.VGAE(Encoder()), variational, LINKS),
    "ARGA": Case(
        lambda: models.ARGA(gnn.GCNConv(WIDTH, WIDTH), perceptron(WIDTH, 1)), adversarial, LINKS
    ),
    "ARGVA": Case(
        lambda: models.ARGVA(Encoder(), perceptron(WIDTH, 1)), adversarial_variational, LINKS
    ),
    "SignedGCN": Case(
        lambda: models.SignedGCN(WIDTH, WIDTH, 2),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.neg_edge_index),
        "neg_edge_index",
    ),
    "GraphUNet": Case(
        lambda: models.GraphUNet(WIDTH, 16, CLASSES, 2),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.batch),
        batch=True,
        partly="which nodes are kept is known from all scores; squares of the adjacency",
    ),
    "SchNet": Case(
        lambda: models.SchNet(16, 16, 2, 10, interaction_graph=Given()),
        schnet,
        "z pos",
        batch=True,
    ),
    "GPSE": Case(
        lambda: models.GPSE(
            WIDTH, 16, 16, layers_mp=3, num_node_targets=3, num_graph_targets=2, virtual_node=False
        ),
        gpse,
        "pos",
        batch=True,
    ),
    "GPSENodeEncoder": Case(
        lambda: models.GPSENodeEncoder(16, WIDTH, 4, WIDTH, expand_x=True),
        lambda layer, h, graph: layer(h, h.sin()),
    ),
    "to_captum_model": Case(
        lambda: models.to_captum_model(models.GraphSAGE(WIDTH, 16, 2, CLASSES), "edge"),
        to_captum,
        "edge_attr",
    ),
    "DeepGCNLayer": Case(
        lambda: models.DeepGCNLayer(
            gnn.GENConv(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), dropout=0.1
        )
    ),
    "LabelPropagation": Case(
        lambda: models.LabelPropagation(3, 0.5),
        lambda layer, h, graph: h[:, :CLASSES] * layer(graph.y, graph.edge_index, graph.mask),
        "y mask",
    ),
    "CorrectAndSmooth": Case(
        lambda: models.CorrectAndSmooth(2, 0.5, 2, 0.5),
        correct_and_smooth,
        "y mask",
    ),
    "AttentiveFP": Case(
        lambda: models.AttentiveFP(WIDTH, 16, CLASSES, EDGE_WIDTH, 2, 2),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.edge_attr, graph.batch),
        "edge_attr",
        batch=True,
    ),
    "RECT_L": Case(lambda: models.RECT_L(WIDTH, 16)),
    "LINKX": Case(
        lambda: models.LINKX(NODES, WIDTH, 16, CLASSES, 2),
    ),
    "LightGCN": Case(
        lambda: models.LightGCN(NODES, WIDTH, 2),
        lambda layer, h, graph: layer(graph.edge_index, graph.edge_label_index),
        "edge_label_index",
    ),
    "MaskLabel": Case(
        lambda: models.MaskLabel(CLASSES, WIDTH),
        lambda layer, h, graph: layer(h, graph.y, graph.mask),
        "y mask",
    ),
    "GroupAddRev": Case(
        lambda: models.GroupAddRev(gnn.SAGEConv(WIDTH // 2, WIDTH // 2), num_groups=2),
    ),
    "PMLP": Case(lambda: models.PMLP(WIDTH, 16, CLASSES, 2)),
    "NeuralFingerprint": Case(
        lambda: models.NeuralFingerprint(WIDTH, 16, CLASSES, 2),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.batch),
        batch=True,
    ),
    "SGFormer": Case(
        lambda: models.SGFormer(WIDTH, 16, CLASSES),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.batch),
        batch=True,
        single=True,
        partly="attention between all nodes of a graph, padded to the largest",
    ),
    "Polynormer": Case(
        lambda: models.Polynormer(WIDTH, 16, CLASSES, local_layers=2, heads=2),
        lambda layer, h, graph: layer(h, graph.edge_index, graph.batch),
        batch=True,
    ),
    "ARLinkPredictor": Case(
        lambda: models.ARLinkPredictor(WIDTH, 16, WIDTH),
        lambda layer, h, graph: layer(h, graph.edge_label_index),
        "edge_label_index",
    ),
}
