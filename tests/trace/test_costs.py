"""FLOPs of products equal what torch counts, saved bytes what autograd's hooks see, on networks of many kinds.

Conventions of saved bytes, on both sides: each storage once (views are what they look at), parameters left out, inputs of
the graph included, copies that autograd makes of what is written in place included.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import Data
from torch_geometric.nn import (
    GCN,
    ARMAConv,
    GATv2Conv,
    GCNConv,
    GPSConv,
    JumpingKnowledge,
    NNConv,
    PNAConv,
    RGCNConv,
    SAGEConv,
    TransformerConv,
)

from autoplan.analysis import analyse
from autoplan.program.modes import portable
from autoplan.trace.rules.registry import base_name
from tests.trace.layers import NETWORKS, described, edges, sizes

NODES, EDGES, WIDTH, CLASSES = 120, 700, 16, 5
COUNTED = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution"})
"""What torch's counter has formulas for and the networks have (attention is taken apart into these)."""


class Chain(nn.Module):
    """Convolutions that read the node features and the named attributes."""

    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def run(self, x: Tensor, *edges: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, *edges).relu()
        return self.convs[-1](x, *edges)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.run(x, edge_index)


class Attributed(Chain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.run(x, edge_index, edge_attr)


class Typed(Chain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.run(x, edge_index, edge_type)


class Batchnormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = GCN(WIDTH, WIDTH, 2, CLASSES, dropout=0.5, norm="batch")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.net(x, edge_index)


class Places(nn.Module):
    """Convolutions over features, one of them transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(WIDTH, 16)
        self.down = nn.Conv1d(1, 4, 3, padding=1, stride=2)
        self.up = nn.ConvTranspose1d(4, 2, 2)
        self.lin = nn.Linear(18, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index).unsqueeze(1)
        return self.lin(self.up(self.down(h)).flatten(1))


class Products(nn.Module):
    """Every product that torch's counter knows: single, with an addend, batched, of attention, over two places."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.addend = nn.Parameter(torch.randn(4, 4))
        self.conv = nn.Conv2d(1, 3, (3, 2), padding=1)
        self.lin = nn.Linear(60, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        tables = (x @ self.weight).reshape(-1, 4, 4)
        tables = torch.baddbmm(self.addend, tables, torch.bmm(tables, tables.mT))
        heads = tables.unsqueeze(1)
        attended = F.scaled_dot_product_attention(heads, heads, heads)
        return self.lin(self.conv(attended).flatten(1))


class Jumping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, WIDTH)
        self.jump = JumpingKnowledge("lstm", WIDTH, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index).relu()
        return self.jump([h, self.second(h, edge_index).relu()])


def pna() -> nn.Module:
    degrees = torch.tensor([1, 2, 5, 3])
    aggregators, scalers = ["mean", "max", "std"], ["identity", "amplification"]
    return Chain(PNAConv(WIDTH, CLASSES, aggregators, scalers, degrees))


def edge_network() -> nn.Module:
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, WIDTH * CLASSES))
    return Attributed(NNConv(WIDTH, CLASSES, network))


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda make=make: make(WIDTH, 2) for name, make in NETWORKS.items()},
    "batch norm, dropout": Batchnormed,
    "SAGE, maximum": lambda: Chain(SAGEConv(WIDTH, WIDTH, aggr="max"), SAGEConv(WIDTH, CLASSES)),
    # how many of the sampled edges are self-loops, and so replaced, is an estimate
    "GATv2": lambda: Attributed(
        GATv2Conv(WIDTH, 8, heads=2, edge_dim=2, dropout=0.3, add_self_loops=False)
    ),
    "transformer": lambda: Attributed(TransformerConv(WIDTH, 8, heads=2, edge_dim=2)),
    "GPS": lambda: Chain(GPSConv(WIDTH, GCNConv(WIDTH, WIDTH), heads=2, dropout=0.1)),
    "convolutions": Places,
    "products": Products,
    "RGCN": lambda: Typed(RGCNConv(WIDTH, WIDTH, 3), RGCNConv(WIDTH, CLASSES, 3)),
    "LSTM": Jumping,
    "PNA": pna,
    "edge network": edge_network,
    "ARMA": lambda: Chain(ARMAConv(WIDTH, CLASSES, num_stacks=2, num_layers=2)),
}


def graph() -> Data:
    torch.manual_seed(1)
    return Data(
        x=torch.randn(NODES, WIDTH),
        edge_index=edges(NODES, EDGES),
        edge_attr=torch.rand(EDGES, 2),
        edge_type=torch.randint(0, 3, (EDGES,)),
        y=torch.randint(0, CLASSES, (NODES,)),
    )


def cross_entropy(out: Tensor, data: Data) -> Tensor:
    return F.cross_entropy(out, data.y)


class Saved:
    """What autograd keeps, by storage."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.kept: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        at = tensor.untyped_storage().data_ptr()
        if at not in self.parameters:
            self.kept[at] = tensor
        return tensor

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self.kept.values())


def test_every_product_that_torch_counts_is_among_them():
    program = described(Products(), graph(), cross_entropy)
    assert {base_name(op.name) for op in program.ops} >= COUNTED


@pytest.mark.parametrize("name", MODELS)
def test_products_and_saved_bytes_are_what_torch_sees(name: str):
    torch.manual_seed(0)
    model, data = MODELS[name](), graph()
    program = described(model, data, cross_entropy)
    figures = analyse(program, sizes({"node": NODES, "edge": EDGES}))
    products = [op for op in figures.ops if base_name(op.name) in COUNTED]
    assert products
    wanted = inspect.signature(model.forward).parameters
    arguments = {key: data[key] for key in wanted if key in data}
    saved = Saved(model)
    forward, backward = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with portable():
        with (
            forward,
            torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor),
        ):
            loss = cross_entropy(model(**arguments), data)
        with backward:
            loss.backward()
    assert sum(op.forward.flops for op in products) == forward.get_total_flops()
    assert sum(op.backward.flops for op in products if op.backward) == backward.get_total_flops()
    assert figures.total.saved_bytes == pytest.approx(saved.bytes, rel=0.05)
    assert figures.total.unknown == 0
