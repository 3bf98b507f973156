"""Pipelines over parts of a closed partition: micro-batches and replicas give one device's numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

from autoplan.errors import PlanError
from autoplan.execute.lockstep import StepResult, run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.execute.stage_program import stage_programs
from autoplan.execute.stages_in_threads import run_stages
from autoplan.opgraph import OpGraph
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import StepRequest, Workload, make_workload
from tests.execute.cuts import even
from tests.execute.test_pipeline import CLASSES, FEATURES, HIDDEN, assert_equal

SIZES = ((9, 30), (4, 7), (15, 60), (1, 0), (6, 9), (2, 3), (11, 20))


def components(sizes=SIZES) -> Data:
    """Graphs that no edge joins, as one graph."""
    torch.manual_seed(1)
    graphs = [
        Data(
            x=torch.randn(nodes, FEATURES, dtype=torch.float64),
            edge_index=torch.randint(0, nodes, (2, edges)),
            y=torch.randn(nodes, CLASSES, dtype=torch.float64),
        )
        for nodes, edges in sizes
    ]
    whole = Batch.from_data_list(graphs)
    return Data(x=whole.x, edge_index=whole.edge_index, y=whole.y)


class Counted(GraphSAGE):
    """Counts its steps: a buffer that every micro-batch writes alike."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x, edge_index):
        self.steps += 1
        return super().forward(x, edge_index)


MODELS = {
    "gcn": lambda: GCN(FEATURES, HIDDEN, 3, CLASSES, dropout=0.5, jk="cat"),
    "gat": lambda: GAT(FEATURES, HIDDEN, 2, CLASSES, dropout=0.5, heads=2),
    "sage_max": lambda: Counted(FEATURES, HIDDEN, 2, CLASSES, dropout=0.5, aggr="max"),
}


def square_error(out, graph):
    return (out - graph.y).pow(2).mean()


def own_rows(graph: OpGraph) -> dict[int, str]:
    """Every op in a way that needs no other part's rows, where it has one."""
    chosen = {}
    for op in graph.ops:
        silent = [s.name for s in op.strategies if not s.collectives]
        chosen[op.index] = next((w for w in ("O", "S") if w in silent), "R")
    return chosen


@dataclass
class Case:
    workload: Workload
    graph: Data

    def alone(self, step=0) -> StepResult:
        program = rank_program(self.workload.traced.program, self.workload.opgraph, {})
        measured = MeasuredGraph.of(self.graph, self.workload.traced.schema, (1,))
        state = state_of(self.workload)
        shards = measured.shards(1)
        return run_lockstep(program, shards, measured.tensors, *state, seed=5, step=step)

    def piped(self, stages, schedule, replicas, micro_batches, step=0) -> StepResult:
        parts = replicas * micro_batches
        measured = MeasuredGraph.of(
            self.graph, self.workload.traced.schema, (1,), closed_parts=(parts,)
        )
        opgraph = self.workload.opgraph
        programs = stage_programs(
            self.workload.traced.program,
            opgraph,
            own_rows(opgraph),
            even(opgraph, stages),
            partial_loss=True,
        )
        return run_stages(
            programs,
            schedule,
            measured.shards(parts, closed=True),
            measured.tensors,
            *state_of(self.workload),
            replicas=replicas,
            micro_batches=micro_batches,
            seed=5,
            step=step,
        )


@pytest.fixture(scope="module", params=MODELS)
def case(request) -> Case:
    torch.manual_seed(3)
    graph = components()
    model: nn.Module = MODELS[request.param]().double()
    workload = make_workload(model, graph, StepRequest(square_error))
    assert workload.shardable, workload.opgraph.reason
    return Case(workload, graph)


@pytest.mark.parametrize(
    ("stages", "schedule", "replicas", "micro_batches"),
    [
        (2, "gpipe", 1, 2),
        (3, "1f1b", 1, 3),
        (2, "1f1b", 1, 5),
        (2, "gpipe", 2, 2),
        (3, "1f1b", 2, 5),
        (1, "gpipe", 3, 1),
        (1, "gpipe", 1, 4),
    ],
)
def test_parts_give_one_devices_numbers(case, stages, schedule, replicas, micro_batches):
    for step in (0, 1):
        found = case.piped(stages, schedule, replicas, micro_batches, step)
        assert_equal(found, case.alone(step))


def test_batch_norm_refuses_parts():
    graph = components()
    model = GCN(FEATURES, HIDDEN, 2, CLASSES, norm="batch_norm").double()
    case = Case(make_workload(model, graph, StepRequest(square_error)), graph)
    with pytest.raises(PlanError, match="batch cannot run in parts"):
        case.piped(2, "gpipe", 1, 2)
