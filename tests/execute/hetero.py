"""A small graph of three node types and five relations, and models on it as steps over its tensors in the order of `SPECS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as gnn
from torch_geometric.data import HeteroData

from autoplan.opgraph import IndexInto, OpGraph, edge_axis, node_axis
from autoplan.partition.halo import Shard, build_shards
from autoplan.program.ir import Program
from autoplan.trace.build import build_opgraph
from autoplan.trace.core import generalise_module

WIDTHS = {"author": 5, "paper": 6, "venue": 4}
CLASSES = 3
RELATIONS = (
    ("author", "writes", "paper"),
    ("paper", "written_by", "author"),
    ("paper", "cites", "paper"),
    ("venue", "hosts", "paper"),
    ("paper", "hosted_by", "venue"),
)
METADATA = (list(WIDTHS), list(RELATIONS))
SIZES = (
    {"author": 31, "paper": 42, "venue": 13},
    {"author": 24, "paper": 57, "venue": 16},
    {"author": 37, "paper": 50, "venue": 11},
    {"author": 28, "paper": 53, "venue": 15},
)
EDGES = (
    (101, 93, 77, 59, 61),
    (118, 105, 86, 68, 66),
    (127, 92, 79, 64, 67),
    (109, 97, 83, 71, 55),
)


@dataclass(frozen=True)
class Spec:
    name: str
    dims: tuple[str | int, ...]
    index: IndexInto | None = None


def key(relation: tuple[str, str, str]) -> str:
    return "__".join(relation)


ENDS = {edge_axis(key(r)): (node_axis(r[0]), node_axis(r[2])) for r in RELATIONS}
SPECS = (
    *(Spec(f"{kind}.x", (node_axis(kind), width)) for kind, width in WIDTHS.items()),
    *(
        Spec(f"{key(r)}.edge_index", (2, axis), IndexInto(ENDS[axis], ("src", "dst")))
        for r, axis in zip(RELATIONS, ENDS, strict=True)
    ),
    Spec("paper.y", ("node[paper]",)),
    Spec("paper.train_mask", ("node[paper]",)),
)


def graph(sizes: dict[str, int], edges: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Directed and asymmetric, with duplicate edges, loops, and isolated nodes at the end of every type."""
    generator = torch.Generator().manual_seed(sum(edges))
    features = [
        torch.randn(sizes[kind], width, generator=generator, dtype=torch.float64)
        for kind, width in WIDTHS.items()
    ]
    pairs = []
    for (source, _, destination), count in zip(RELATIONS, edges, strict=True):
        ends = [
            torch.randint(0, sizes[end] - 2, (count,), generator=generator)
            for end in (source, destination)
        ]
        index = torch.stack(ends)
        index[1, : count // 3] %= 5
        index[:, 10:20] = index[:, 20:30]
        pairs.append(index)
    pairs[2][:, :5] = pairs[2][:1, :5]
    labels = torch.randint(0, CLASSES, (sizes["paper"],), generator=generator)
    mask = torch.rand(sizes["paper"], generator=generator) < 0.5
    return (*features, *pairs, labels, mask)


class Step(nn.Module):
    """Loss and logits of the papers."""

    def __init__(self, model: nn.Module, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        x_dict = dict(zip(WIDTHS, tensors, strict=False))
        edges = dict(zip(RELATIONS, tensors[3:8], strict=True))
        out = self.call(self.model, x_dict, edges)
        labels, mask = tensors[8:]
        return F.cross_entropy(out[mask], labels[mask]), out


def hetero_conv(model: nn.Module, x_dict: Any, edges: Any) -> Tensor:
    x_dict = {kind: x.relu() for kind, x in model[0](x_dict, edges).items()}
    x_dict = {kind: F.dropout(x, 0.4, model.training) for kind, x in x_dict.items()}
    return model[1](x_dict, edges)["paper"]


def convolutions(make: Callable[[tuple[str, str, str], int], nn.Module]) -> nn.Module:
    first = {relation: make(relation, 8) for relation in RELATIONS}
    second = {relation: make(relation, CLASSES) for relation in RELATIONS}
    return nn.ModuleList([gnn.HeteroConv(first), gnn.HeteroConv(second, aggr="mean")])


def record(model: nn.Module, call: Callable[..., Tensor]) -> tuple[Program, OpGraph]:
    """The program of a training step in float64, and its operator graph."""
    step = Step(model, call).double().train()
    samples = [graph(*size) for size in zip(SIZES, EDGES, strict=True)]
    traced = generalise_module(step, samples)
    assert traced.program is not None, traced.reason
    rows = [
        {
            **{node_axis(kind): count for kind, count in sizes.items()},
            **dict(zip(ENDS, edges, strict=True)),
        }
        for sizes, edges in zip(SIZES, EDGES, strict=True)
    ]
    opgraph = build_opgraph(traced.program, SPECS, rows[:-1], has_loss=True, training=True)
    return traced.program, opgraph


def shards_of(tensors: dict[str, Tensor], parts: int) -> tuple[Shard, ...]:
    """Unequal; the last rank owns no destination of the venues' relation, so that it has none of its edges."""
    generator = np.random.default_rng(parts)
    shares = np.arange(1, parts + 1)[::-1] / (parts * (parts + 1) / 2)
    owner = {
        node_axis(kind): generator.choice(parts, len(tensors[f"{kind}.x"]), p=shares)
        for kind in WIDTHS
    }
    edges = {
        axis: tensors[f"{key(r)}.edge_index"].numpy()
        for r, axis in zip(RELATIONS, ENDS, strict=True)
    }
    hosted = edges[edge_axis("venue__hosts__paper")][1]
    owner["node[paper]"][hosted] %= max(parts - 1, 1)
    shards = build_shards(owner, edges, {}, relations=ENDS, parts=parts)
    assert parts == 1 or not len(shards[-1].rows(edge_axis("venue__hosts__paper")))
    return shards


def typed_data(sizes: dict[str, int], edges: tuple[int, ...]) -> HeteroData:
    """`graph` as PyG has it, in float32."""
    tensors = graph(sizes, edges)
    data = HeteroData()
    for kind, x in zip(WIDTHS, tensors, strict=False):
        data[kind].x = x.float()
    for relation, index in zip(RELATIONS, tensors[3:8], strict=True):
        data[relation].edge_index = index
    data["paper"].y, data["paper"].train_mask = tensors[8:]
    return data
