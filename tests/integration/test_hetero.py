"""Graphs of several types from `optimize` to workers: one graph shared out, and many graphs through a pipeline."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, HeteroData

import autoplan
from autoplan.plan import PlanData
from tests.execute.hetero import CLASSES, METADATA, RELATIONS, typed_data


def convolution(width: int) -> nn.Module:
    return gnn.HeteroConv({relation: gnn.SAGEConv((-1, -1), width) for relation in RELATIONS})


class Papers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.HGTConv({"author": 5, "paper": 6, "venue": 4}, 8, METADATA, heads=2)
        self.second = convolution(CLASSES)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: Any) -> Tensor:
        hidden = self.first(x_dict, edge_index_dict)
        hidden = {kind: F.dropout(x.relu(), 0.3, self.training) for kind, x in hidden.items()}
        papers: Tensor = self.second(hidden, edge_index_dict)["paper"]
        return papers


class Graphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = convolution(8)
        self.last = nn.Linear(16, 2)

    def forward(self, x_dict: Any, edge_index_dict: Any, batch_dict: Any) -> Tensor:
        hidden = {kind: x.relu() for kind, x in self.first(x_dict, edge_index_dict).items()}
        graphs = int(batch_dict["paper"].max()) + 1
        pooled = [
            gnn.global_mean_pool(hidden["paper"], batch_dict["paper"]),
            gnn.global_add_pool(hidden["author"], batch_dict["author"], size=graphs),
        ]
        out: Tensor = self.last(torch.cat(pooled, dim=1))
        return out


def of_papers(out: Tensor, graph: HeteroData) -> Tensor:
    mask = graph["paper"].train_mask
    return F.cross_entropy(out[mask], graph["paper"].y[mask])


def materialised(model: nn.Module, *arguments: Any) -> nn.Module:
    with torch.no_grad():
        model(*arguments)
    return model


def test_one_graph_shared_out() -> None:
    torch.manual_seed(0)
    graph = typed_data({"author": 90, "paper": 130, "venue": 40}, (400, 300, 350, 130, 120))
    model = materialised(Papers(), graph.x_dict, graph.edge_index_dict)
    plan = autoplan.optimize(model, graph, "2xcpu", loss=of_papers, strategy="data")

    assert autoplan.verify(plan, model, graph).ok
    cut = plan.data.partition
    assert [rows.axis for rows in cut.types] == ["node[author]", "node[paper]", "node[venue]"]
    for total, each in zip(
        (cut.owned_nodes, cut.halo_nodes),
        ([rows.owned for rows in cut.types], [rows.halo for rows in cut.types]),
        strict=True,
    ):
        assert total == tuple(map(sum, zip(*each, strict=True)))
    assert PlanData.from_json(plan.data.to_json()) == plan.data

    alone = autoplan.optimize(model, graph, "1xcpu", loss=of_papers)
    expected = alone.train(model, graph, epochs=3, lr=0.05, seed=3).losses
    torch.manual_seed(0)
    again = materialised(Papers(), graph.x_dict, graph.edge_index_dict)
    trained = plan.train(again, graph, epochs=3, lr=0.05, seed=3)
    # dropout draws each row of each type once, whatever the number of workers
    torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(expected))
    assert trained.communication_bytes == plan.predicted.communication_bytes


def test_many_graphs_through_a_pipeline() -> None:
    graphs = []
    for number in range(5):
        sizes = {"author": 12 + number, "paper": 17 + 2 * number, "venue": 7}
        graph = typed_data(sizes, (40, 35, 33, 31, 30))
        del graph["paper"].y, graph["paper"].train_mask
        graph.label = torch.tensor([number % 2])
        graphs.append(graph)
    batch = Batch.from_data_list(graphs)
    torch.manual_seed(0)
    model = materialised(Graphs(), batch.x_dict, batch.edge_index_dict, batch.batch_dict)
    plan = autoplan.optimize(
        model,
        batch,
        "2xcpu",
        loss=lambda out, graph: F.cross_entropy(out, graph.label),
        strategy="pipeline",
    )

    assert plan.data.pipeline.micro_batches > 1
    assert plan.data.partition.method == "closed"
    assert not any(sum(rows.halo) for rows in plan.data.partition.types)
    assert autoplan.verify(plan, model, batch).ok


def test_a_relation_without_edges_and_a_type_of_one_node() -> None:
    torch.manual_seed(0)
    graph = typed_data({"author": 30, "paper": 41, "venue": 3}, (90, 80, 70, 60, 50))
    graph["venue"].x = graph["venue"].x[:1]
    graph["paper", "hosted_by", "venue"].edge_index[1] = 0
    graph["venue", "hosts", "paper"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    model = materialised(Papers(), graph.x_dict, graph.edge_index_dict)
    plan = autoplan.optimize(model, graph, "2xcpu", loss=of_papers, strategy="data")
    assert autoplan.verify(plan, model, graph).ok
