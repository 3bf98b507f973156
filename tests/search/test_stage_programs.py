"""What plans of stages price is what programs send: bytes of every rank, counted where they leave."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, SAGEConv, global_mean_pool

from autoplan.execute.point_to_point import ThreadPeers
from autoplan.execute.stage_program import stage_programs
from autoplan.execute.stages_in_threads import run_stages
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import StepRequest, make_workload, model_tensors
from autoplan.search import solve
from autoplan.search.assemble import estimated_sends, stage_plans
from autoplan.search.layouts import closed_parts
from autoplan.stages import check_stages
from tests.search.small import cluster

FEATURES, CLASSES = 6, 3


class Classifier(nn.Module):
    """A skip over two layers, so that a tensor passes a stage by."""

    def __init__(self, conv=SAGEConv):
        super().__init__()
        self.convs = nn.ModuleList([conv(FEATURES, FEATURES) for _ in range(3)])
        self.head = nn.Linear(2 * FEATURES, CLASSES)

    def forward(self, x, edge_index, batch):
        first = self.convs[0](x, edge_index).relu()
        h = first
        for conv in self.convs[1:]:
            h = conv(h, edge_index).relu()
        return self.head(global_mean_pool(torch.cat([h, first], dim=1), batch))


def graphs(number: int) -> Batch:
    torch.manual_seed(0)
    sizes = range(4, 4 + number)
    return Batch.from_data_list(
        [
            Data(
                x=torch.randn(n, FEATURES),
                edge_index=torch.randint(0, n, (2, 3 * n)),
                y=torch.randint(0, CLASSES, (1,)),
            )
            for n in sizes
        ]
    )


@functools.cache
def planned(conv):
    graph = graphs(9)
    workload = make_workload(Classifier(conv), graph, StepRequest())
    measured = MeasuredGraph.of(
        graph, workload.traced.schema, (2, 3, 4), closed_parts=closed_parts(9, 4)
    )
    return workload, measured


@pytest.mark.parametrize("conv", [SAGEConv, GCNConv])
@pytest.mark.parametrize(("family", "devices"), [("model", 3), ("pipeline", 3), ("hybrid", 4)])
def test_bytes_are_those_that_are_sent(conv, family, devices, monkeypatch):
    torch.set_num_threads(1)
    workload, measured = planned(conv)
    best = solve(
        workload.opgraph,
        measured.stats,
        cluster(devices),
        [],
        parameters=model_tensors(workload),
        optimizer="adam",
        strategy=family,
    ).best
    check_stages(workload.opgraph, best.stage_of)
    parts = best.replicas * best.micro_batches
    programs = stage_programs(
        workload.traced.program,
        workload.opgraph,
        best.choices,
        best.stage_of,
        partial_loss=parts > 1,
    )
    sent: Counter[int] = Counter()
    send, add = ThreadPeers.send, ThreadPeers.sum

    def counted_send(self, target, buffer, what):
        sent[self.rank] += buffer.numel() * buffer.element_size()
        send(self, target, buffer, what)

    def counted_sum(self, ranks, tensor):
        sent[self.rank] += tensor.numel() * tensor.element_size()
        return add(self, ranks, tensor)

    monkeypatch.setattr(ThreadPeers, "send", counted_send)
    monkeypatch.setattr(ThreadPeers, "sum", counted_sum)
    run_stages(
        programs,
        best.schedule,
        measured.shards(parts, closed=parts > 1),
        measured.tensors,
        *state_of(workload),
        replicas=best.replicas,
        micro_batches=best.micro_batches,
    )
    found = tuple(sent[rank] for rank in range(len(best.ranks)))
    assert not estimated_sends(best, workload.opgraph)
    assert found == best.prediction.communication_bytes
    names = [name for name, _ in Classifier(conv).named_parameters()]
    for stage, program in zip(
        stage_plans(best, workload.opgraph, parameters=names), programs, strict=True
    ):
        held = {path.removeprefix("model.") for path in program.program.parameters}
        assert set(stage.parameters) == held
        assert dict(stage.inputs).keys() <= {i.attribute for i in program.program.inputs} | {"x"}
        assert {i.attribute for i in program.program.inputs} == {name for name, _ in stage.inputs}
