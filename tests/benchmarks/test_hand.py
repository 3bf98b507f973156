"""Hand-lowered models equal plain PyG in float64, outputs and gradients: duplicate edges, isolated nodes, an empty relation."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

from benchmarks.steps import graphs, hand
from benchmarks.steps.models import MODELS, make_model
from benchmarks.steps.sides import cross_entropy, forward

SIZES = graphs.Sizes(nodes=300, edges=1_500, features=12, classes=4)
BOUND = 1e-9


def graph_of(name: str) -> Data | HeteroData | list[Data]:
    if name == "RGCN":
        return graphs.relational(SIZES, empty=3)
    if name == "HGT":
        return graphs.heterogeneous(SIZES, empty=True)
    if name != "GIN-graphs":
        return graphs.community(SIZES)
    parts = [graphs.community(graphs.Sizes(70, 90, 5, 3), seed=seed) for seed in range(4)]
    for place, part in enumerate(parts):
        part.y = torch.tensor([place % 2])
    return parts


def doubled(graph: Data | HeteroData) -> Data | HeteroData:
    return graph.apply(lambda value: value.double() if value.is_floating_point() else value)


@pytest.mark.parametrize("name", MODELS)
def test_hand_lowered_equals_plain(name: str) -> None:
    graph = graph_of(name)
    model = make_model(name, graph, hidden=16, heads=2).double()
    whole = doubled(Batch.from_data_list(graph) if isinstance(graph, list) else graph)
    found = []
    for run in (lambda batch: forward(model, batch), hand.lowered(name, model, whole)):
        model.zero_grad()
        out = run(whole)
        cross_entropy(out, whole).backward()
        gradients = [
            torch.zeros_like(each) if each.grad is None else each.grad.clone()
            for each in model.parameters()
        ]
        found.append([out.detach(), *gradients])
    names = ["output", *dict(model.named_parameters())]
    largest = max(float(each.abs().max()) for each in found[0][1:])
    for each, plain, lowered in zip(names, *found, strict=True):
        scale = float(plain.abs().max()) if each == "output" else largest
        assert float((plain - lowered).abs().max()) <= BOUND * scale, each
