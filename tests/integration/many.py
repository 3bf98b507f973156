"""Many small graphs, and a model that classifies them."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool


class Classifier(nn.Module):
    """Three convolutions, a readout, dropout before the head."""

    def __init__(self, features: int, classes: int, *, dropout: float = 0.3) -> None:
        super().__init__()
        widths = [features, 16, 16, 16]
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b)))
            for a, b in itertools.pairwise(widths)
        )
        self.head = nn.Linear(16, classes)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        x = global_add_pool(x, batch)
        return self.head(F.dropout(x, self.dropout, self.training))


def small_graphs(count: int = 9) -> list[Data]:
    """Of 3, 4, ... nodes, labelled in turn."""
    generator = torch.Generator().manual_seed(2)
    graphs = []
    for number in range(count):
        nodes = 3 + number
        edges = torch.randint(0, nodes, (2, 4 * nodes), generator=generator)
        x = torch.randn(nodes, 5, generator=generator)
        graphs.append(Data(x=x, edge_index=edges, y=torch.tensor([number % 3])))
    return graphs
