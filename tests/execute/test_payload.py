"""What is worked out is what ranks hand to each other."""

from __future__ import annotations

import pytest
from torch_geometric.nn.models import GCN, GraphSAGE

from autoplan.execute.payload import step_payload
from autoplan.execute.point_to_point import ThreadPeers
from autoplan.execute.stage_program import stage_programs
from autoplan.execute.stages_in_threads import run_stages
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import StepRequest, make_workload
from tests.execute.cuts import even
from tests.execute.test_micro_batches import components, own_rows, square_error
from tests.execute.test_pipeline import CLASSES, FEATURES, HIDDEN


@pytest.mark.parametrize(("stages", "replicas", "micro_batches"), [(2, 1, 3), (3, 2, 5)])
def test_every_byte_is_known(stages, replicas, micro_batches, monkeypatch):
    parts = replicas * micro_batches
    graph = components()
    model = GraphSAGE(FEATURES, HIDDEN, 3, CLASSES, dropout=0.5).double()
    workload = make_workload(model, graph, StepRequest(square_error))
    measured = MeasuredGraph.of(graph, workload.traced.schema, (1,), closed_parts=(parts,))
    shards = measured.shards(parts, closed=True)
    cut = even(workload.opgraph, stages)
    programs = stage_programs(
        workload.traced.program,
        workload.opgraph,
        own_rows(workload.opgraph),
        cut,
        partial_loss=True,
    )
    counted = [0] * (stages * replicas)
    send, total = ThreadPeers.send, ThreadPeers.sum

    def counting_send(self, target, buffer, what):
        counted[self.rank] += buffer.nbytes
        send(self, target, buffer, what)

    def counting_sum(self, ranks, tensor):
        counted[self.rank] += tensor.nbytes
        return total(self, ranks, tensor)

    monkeypatch.setattr(ThreadPeers, "send", counting_send)
    monkeypatch.setattr(ThreadPeers, "sum", counting_sum)
    state = state_of(workload)
    run_stages(
        programs,
        "1f1b",
        shards,
        measured.tensors,
        *state,
        replicas=replicas,
        micro_batches=micro_batches,
    )
    assert step_payload(programs, shards, state[0], replicas=replicas) == tuple(counted)


def test_rows_that_only_the_data_tells_are_not_guessed():
    graph = components()
    model = GCN(FEATURES, HIDDEN, 2, CLASSES).double()
    workload = make_workload(model, graph, StepRequest(square_error))
    measured = MeasuredGraph.of(graph, workload.traced.schema, (1,))
    opgraph = workload.opgraph
    scatter = [op.index for op in opgraph.ops if "scatter_add" in op.name][-1]
    cut = {op.index: int(op.index >= scatter - 3) for op in opgraph.ops}
    programs = stage_programs(workload.traced.program, opgraph, {}, cut, partial_loss=False)
    state = state_of(workload)
    assert step_payload(programs, measured.shards(1), state[0], replicas=1) is None
