"""Traces three steps and prints digests of what came of them: run in new processes, whose hash seeds differ (torch)."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, HeteroConv, SAGEConv, TopKPooling, global_mean_pool

from autoplan.program.codegen import generate
from autoplan.search.fingerprint import digest
from autoplan.trace.build import build_opgraph
from autoplan.trace.step import TracedStep, trace_step
from tests.trace.graphs import CLASSES, FEATURES, masked_loss, node_graph, typed_graph


class Attention(nn.Module):
    """With dropout, a norm over nodes and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = GATConv(8, 4, heads=2, dropout=0.3)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.first(x, edge_index)).relu()
        return self.out(h + self.second(h, edge_index))


class Pooled(nn.Module):
    """Drops nodes, so that sizes follow values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = SAGEConv(FEATURES, 8)
        self.pool = TopKPooling(8, 0.6)
        self.out = nn.Linear(8, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h, edge_index, _, batch, *_ = self.pool(self.first(x, edge_index).relu(), edge_index)
        return self.out(global_mean_pool(h, batch))


class Typed(nn.Module):
    """Two layers over three relations, lazily sized."""

    def __init__(self) -> None:
        super().__init__()
        relations = typed_graph().edge_types
        self.layers = nn.ModuleList(
            HeteroConv({relation: SAGEConv((-1, -1), 8) for relation in relations})
            for _ in range(2)
        )
        self.out = nn.Linear(8, 3)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        for layer in self.layers:
            x_dict = {kind: h.relu() for kind, h in layer(x_dict, edge_index_dict).items()}
        return self.out(x_dict["paper"])


def typed_loss(out: Tensor, graph: Any) -> Tensor:
    """Over the papers of the mask."""
    mask = graph["paper"].train_mask
    return nn.functional.cross_entropy(out[mask], graph["paper"].y[mask])


def square(out: Tensor, _graph: Any) -> Tensor:
    """Of the one number that pooling leaves."""
    return out.square().sum()


STEPS = {
    "attention": (Attention, node_graph, masked_loss),
    "pooled": (Pooled, node_graph, square),
    "typed": (Typed, typed_graph, typed_loss),
}


def digest_of(step: TracedStep) -> str:
    """Of a step's program, as it is run, and of its dataflow graph, as it is planned and written."""
    assert step.program is not None, step.reason
    opgraph = build_opgraph(
        step.program,
        step.schema.attributes,
        step.sample_rows,
        has_loss=step.has_loss,
        training=step.training,
    )
    program = generate(step.program)
    whole = hashlib.blake2b(digest_size=16)
    described = (digest(opgraph), digest(step.schema.summary), repr(step.sample_rows))
    for text in (program.source, *described):
        whole.update(text.encode())
    return whole.hexdigest()


def main() -> None:
    """One line for each step: name, digest."""
    for name, (make, graph, loss) in STEPS.items():
        torch.manual_seed(0)
        print(name, digest_of(trace_step(make(), graph(), loss)))


if __name__ == "__main__":
    main()
