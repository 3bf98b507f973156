"""The lock-step check: a strategy with wrong numbers is rejected by name, and the plan is right all the same."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_add_pool, global_mean_pool

from autoplan.cluster import parse_cluster
from autoplan.opgraph import OpGraph, OpStrategy
from autoplan.planner.check import Checker, uneven_owner
from autoplan.planner.choose import choose
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import StepRequest, Workload, make_workload
from tests.closed import Classifier, batch_of, gin, owned_choices
from tests.integration.graphs import awkward_graph


class Net(nn.Module):
    """Its ``cumsum`` over the nodes must run on all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(8, 6)
        self.lin = nn.Linear(6, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(self.conv(x, edge_index).tanh().cumsum(0))


def cross_entropy(out: Tensor, graph) -> Tensor:
    return F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])


@pytest.fixture
def workload() -> Workload:
    torch.manual_seed(0)
    return make_workload(Net(), awkward_graph(), StepRequest(loss=cross_entropy))


def with_wrong_strategy(opgraph: OpGraph) -> tuple[OpGraph, int]:
    """The graph, in which some rule says that a cumulative sum may run on owned rows."""
    wrong = OpStrategy("O", ("O",), ("O",), "O")
    found = next(op for op in opgraph.ops if op.name == "aten.cumsum.default")
    ops = tuple(
        replace(op, strategies=(*op.strategies, wrong)) if op is found else op for op in opgraph.ops
    )
    name = found.outputs[0]
    tensors = dict(opgraph.tensors)
    tensors[name] = replace(tensors[name], states=("R", "O", "H"))
    return replace(opgraph, ops=ops, tensors=tensors), found.index


def test_a_wrong_strategy_is_rejected_and_named(workload: Workload) -> None:
    opgraph, cumsum = with_wrong_strategy(workload.opgraph)
    faulty = replace(workload, opgraph=opgraph)
    model, graph = Net(), awkward_graph()
    measured = MeasuredGraph.of(graph, workload.traced.schema, (3,))

    choice = choose(
        model,
        graph,
        faulty,
        measured,
        parse_cluster("3xcpu"),
        (),
        optimizer="adam",
        strategy="data",
        objective="time",
    )

    assert [m.denied for m in choice.mismatches] == [{cumsum: frozenset({"O"})}]
    assert f"op {cumsum} aten.cumsum.default" in str(choice.mismatches[0])
    best = choice.result.best
    assert best.choices is not None
    assert best.choices[cumsum] == "R"
    assert "O" in set(best.choices.values())


def test_right_strategies_pass(workload: Workload) -> None:
    model, graph = Net(), awkward_graph()
    sharded = {
        op.index: "O"
        for op in workload.opgraph.ops
        if op.module == "lin" and any(s.name == "O" for s in op.strategies)
    }

    assert sharded
    assert Checker(model, graph, workload).check(sharded) is None


def test_shards_of_the_check_are_uneven() -> None:
    counts = torch.tensor(uneven_owner(131, 3)).bincount(minlength=3)

    assert counts[0] > counts[1] > counts[2] > 0


def test_closed_partitions_are_checked_on_whole_graphs() -> None:
    torch.manual_seed(0)
    model, batch = Classifier(gin, global_mean_pool), batch_of()
    workload = make_workload(model, batch, StepRequest())
    choices = owned_choices(workload.opgraph)
    checker = Checker(model, batch, workload)

    assert checker.check(choices, closed=True) is None
    mismatch = checker.check(choices)
    assert mismatch is not None
    assert "written for a partition that is closed" in str(mismatch)


def test_a_strategy_with_wrong_numbers_of_graphs_is_found() -> None:
    """A readout that is right where graphs are numbered as a whole is wrong on parts."""
    torch.manual_seed(0)
    model, batch = Classifier(gin, global_add_pool), batch_of()
    workload = make_workload(model, batch, StepRequest())
    partial = [op for op in workload.opgraph.ops if any(s.name == "partial" for s in op.strategies)]
    (pool,) = partial
    forged = tuple(replace(s, closed=None) for s in pool.strategies)
    ops = tuple(replace(op, strategies=forged) if op is pool else op for op in workload.opgraph.ops)
    workload = replace(workload, opgraph=replace(workload.opgraph, ops=ops))
    choices = owned_choices(workload.opgraph) | {pool.index: "partial"}
    zeros = next(op for op in workload.opgraph.ops if pool.inputs[0] in op.outputs)
    after = [op.index for op in workload.opgraph.ops if op.index > pool.index]
    choices |= dict.fromkeys(after, "R") | {zeros.index: "S"}

    mismatch = Checker(model, batch, workload).check(choices, closed=True)

    assert mismatch is not None
    assert pool.index in mismatch.denied
