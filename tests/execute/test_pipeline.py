from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, JumpingKnowledge, SAGEConv

from autoplan.errors import GuardError
from autoplan.execute.lockstep import StepResult, run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.execute.stage_program import stage_programs
from autoplan.execute.stages_in_threads import run_stages
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import StepRequest, Workload, make_workload
from tests import models
from tests.execute.cuts import even, scattered
from tests.integration.graphs import awkward_graph

FEATURES, HIDDEN, CLASSES = 8, 6, 4


class Skips(nn.Module):
    """Case h07: four layers with residuals, jumping knowledge, a head."""

    def __init__(self, p):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(FEATURES, FEATURES) for _ in range(4)])
        self.jk = JumpingKnowledge("cat")
        self.head = nn.Linear(4 * FEATURES, CLASSES)
        self.dropout = nn.Dropout(p)

    def forward(self, x, edge_index):
        keep = []
        for conv in self.convs:
            x = torch.tanh(conv(self.dropout(x), edge_index)) + x
            keep.append(x)
        return self.head(self.jk(keep))


class Tied(nn.Module):
    """One weight at the beginning and at the end; a batch norm used twice; numbers read from tensors."""

    def __init__(self, p):
        super().__init__()
        self.conv = GraphConv(FEATURES, FEATURES)
        self.norm = nn.BatchNorm1d(FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)
        self.dropout = nn.Dropout(p)

    def forward(self, x, edge_index):
        scale = edge_index.max().item()
        h = self.norm(self.conv(x, edge_index).relu())
        h = self.norm(self.conv(self.dropout(h), edge_index) * torch.tensor(1.0 + scale))
        return self.head(self.conv(h, edge_index)) / scale


class Ids(nn.Module):
    """Case h08: integers, booleans and positions cross."""

    def __init__(self, p):
        super().__init__()
        self.first, self.second = GraphConv(FEATURES, HIDDEN), GraphConv(HIDDEN, HIDDEN)
        self.table = nn.Embedding(101, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)
        self.dropout = nn.Dropout(p)

    def forward(self, x, edge_index, node_id):
        large = node_id + 2**53 + 1
        odd = (large % 2).bool()
        heavy = edge_index[:, edge_index[0] % 3 != 0]
        h = self.second(self.dropout(self.first(x, edge_index).relu()), heavy)
        h = h + self.table((large - 2**53) % 101)
        kept = self.dropout(h[odd])
        h = h.masked_scatter(odd.unsqueeze(1), kept.relu())
        return self.head(torch.where(odd.unsqueeze(1), h, -h))


MODELS = {
    **models.MODELS,
    "skips": Skips,
    "tied": Tied,
    "ids": Ids,
}


@dataclass
class Case:
    workload: Workload
    measured: MeasuredGraph

    @property
    def tensors(self):
        return self.measured.tensors

    def alone(self, step: int = 0) -> StepResult:
        program = rank_program(self.workload.traced.program, self.workload.opgraph, {})
        return run_lockstep(
            program,
            self.measured.shards(1),
            self.tensors,
            *state_of(self.workload),
            seed=5,
            step=step,
        )

    def staged(self, stage_of, schedule="gpipe", step: int = 0) -> StepResult:
        programs = stage_programs(
            self.workload.traced.program, self.workload.opgraph, {}, stage_of, partial_loss=False
        )
        return run_stages(
            programs,
            schedule,
            self.measured.shards(1),
            self.tensors,
            *state_of(self.workload),
            seed=5,
            step=step,
        )


def case_of(model: nn.Module, graph: Data) -> Case:
    workload = make_workload(model, graph, StepRequest())
    assert workload.shardable, workload.opgraph.reason
    return Case(workload, MeasuredGraph.of(graph, workload.traced.schema, (1,)))


@pytest.fixture(scope="module", params=[(name, p) for name in MODELS for p in (0.0, 0.5)], ids=str)
def case(request) -> Case:
    name, p = request.param
    torch.manual_seed(3)
    graph = awkward_graph(dtype=torch.float64)
    graph.node_id = torch.randint(0, 2**40, (graph.num_nodes,))
    return case_of(MODELS[name](p).double(), graph)


def assert_equal(found: StepResult, expected: StepResult) -> None:
    assert torch.allclose(found.loss, expected.loss, rtol=1e-12, atol=1e-12)
    for mine, wanted in zip(found.outputs, expected.outputs, strict=True):
        assert torch.allclose(mine, wanted, rtol=0, atol=1e-12)
    assert found.gradients.keys() == expected.gradients.keys()
    for name, wanted in expected.gradients.items():
        assert torch.allclose(found.gradients[name], wanted, rtol=1e-10, atol=1e-11), name
    assert found.buffers.keys() == expected.buffers.keys()
    for name, wanted in expected.buffers.items():
        assert torch.allclose(found.buffers[name], wanted, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_give_one_devices_numbers(case, stages):
    for step in (0, 1):
        assert_equal(case.staged(even(case.workload.opgraph, stages), step=step), case.alone(step))


@pytest.mark.parametrize("seed", range(2))
def test_any_cut_gives_one_devices_numbers(case, seed):
    stage_of = scattered(case.workload.opgraph, 4, seed)
    assert_equal(case.staged(stage_of, "1f1b"), case.alone())


def test_every_op_is_reported_once_with_one_devices_values(case):
    seen: dict[tuple[int, str], torch.Tensor] = {}

    def note(part, op, tensor, state, value, keys):
        assert (part, state, keys) == (0, "R", None)
        assert (op, tensor) not in seen
        seen[op, tensor] = value.detach().clone()

    workload, shards, state = case.workload, case.measured.shards(1), state_of(case.workload)
    program, opgraph = workload.traced.program, workload.opgraph
    whole = rank_program(program, opgraph, {}, capture=True)
    run_lockstep(whole, shards, case.tensors, *state, seed=5, capture=note)
    expected, seen = seen, {}
    cut = even(opgraph, 3)
    programs = stage_programs(program, opgraph, {}, cut, partial_loss=False, capture=True)
    run_stages(programs, "gpipe", shards, case.tensors, *state, seed=5, capture=note)
    assert seen.keys() == expected.keys()
    for key, value in seen.items():
        assert torch.allclose(value, expected[key], rtol=0, atol=1e-12, equal_nan=True), key


class Decides(nn.Module):
    """Looks at its features in the middle."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        h = self.first(x)
        if x.sum() > 1e6:
            h = -h
        return self.last(h)


def test_a_decision_that_comes_out_differently_ends_all_ranks():
    graph = awkward_graph(dtype=torch.float64)
    case = case_of(Decides().double(), graph)
    graph.x += 1e6
    opgraph = case.workload.opgraph
    programs = stage_programs(
        case.workload.traced.program, opgraph, {}, even(opgraph, 2), partial_loss=False
    )
    with pytest.raises(GuardError, match=r"in forward: .* was False when recorded"):
        run_stages(
            programs, "1f1b", case.measured.shards(1), case.tensors, *state_of(case.workload)
        )
