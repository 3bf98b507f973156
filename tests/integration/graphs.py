"""Graphs that hide nothing: directed, asymmetric, with self-loops, duplicate edges, isolated nodes, uneven labels."""

import torch
from torch_geometric.data import Data


def awkward_graph(
    num_nodes: int = 60,
    num_edges: int = 260,
    num_features: int = 8,
    num_classes: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Data:
    """A directed graph whose last three nodes are isolated, with 5 self-loops and 9 duplicate edges.

    The labelled nodes lie among the first third, so that some shards of a partition hold none or few of them.
    """
    generator = torch.Generator().manual_seed(seed)
    connected = num_nodes - 3
    # a skewed source distribution: few hubs send to many
    source = (torch.rand(num_edges - 14, generator=generator) ** 2 * connected).long()
    target = torch.randint(0, connected, (num_edges - 14,), generator=generator)
    loops = torch.randint(0, connected, (5,), generator=generator)
    edges = torch.stack([source, target])
    edge_index = torch.cat([edges, torch.stack([loops, loops]), edges[:, :9]], dim=1)
    train_mask = torch.zeros(num_nodes, dtype=torch.bool)
    train_mask[: num_nodes // 3] = torch.rand(num_nodes // 3, generator=generator) < 0.6
    train_mask[0] = True
    return Data(
        x=torch.randn(num_nodes, num_features, generator=generator, dtype=dtype),
        edge_index=edge_index,
        y=torch.randint(0, num_classes, (num_nodes,), generator=generator),
        train_mask=train_mask,
        test_mask=~train_mask,
    )
