"""Models of PyG's own layers that every way to spread a model is tested with, by name; each takes the dropout."""

import torch
from torch_geometric.nn.models import GAT, GCN, GIN, PNA, GraphSAGE

HIDDEN, CLASSES, FEATURES = 12, 4, 8
DEGREES = torch.tensor([3, 6, 9, 12, 8, 6, 5, 4, 3, 2, 2])

MODELS = {
    "gcn": lambda p: GCN(FEATURES, HIDDEN, 2, CLASSES, dropout=p),
    "gat": lambda p: GAT(FEATURES, HIDDEN, 2, CLASSES, dropout=p, heads=3),
    "sage_mean": lambda p: GraphSAGE(FEATURES, HIDDEN, 2, CLASSES, dropout=p),
    "sage_max": lambda p: GraphSAGE(FEATURES, HIDDEN, 2, CLASSES, dropout=p, aggr="max"),
    "gin_batch_norm": lambda p: GIN(FEATURES, HIDDEN, 2, CLASSES, dropout=p, norm="batch_norm"),
    "pna": lambda p: PNA(
        FEATURES,
        HIDDEN,
        2,
        CLASSES,
        dropout=p,
        aggregators=["mean", "min", "max", "std"],
        scalers=["identity", "amplification", "attenuation"],
        deg=DEGREES,
    ),
    "gcn_jumping_knowledge": lambda p: GCN(FEATURES, HIDDEN, 3, CLASSES, dropout=p, jk="cat"),
}
