from __future__ import annotations

import pickle

import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.stage_program import stage_programs
from autoplan.stages import crossings
from tests.execute.cuts import even
from tests.execute.hand_made import Step, choices, opgraph_of, traced


@pytest.fixture(scope="module")
def recorded():
    torch.manual_seed(0)
    program = traced(Step().double())
    return program, opgraph_of(program)


def test_each_stage_reads_only_its_own(recorded):
    program, opgraph = recorded
    cut = even(opgraph, 2)
    first, second = stage_programs(program, opgraph, {}, cut, partial_loss=False)
    assert set(first.program.parameters).isdisjoint(second.program.parameters)
    assert {*first.program.parameters, *second.program.parameters} == {
        t.source for t in opgraph.tensors.values() if t.origin == "parameter"
    }
    assert first.program.written == ("steps",)
    assert second.program.buffers == ()
    assert (first.positions, second.positions) == ((), (0, 1))
    assert second.program.has_loss
    assert not first.program.has_loss
    assert first.sends == second.receives == crossings(opgraph, {}, cut)
    assert "y" not in {read.attribute for read in first.program.inputs}
    copy = pickle.loads(pickle.dumps(second))
    assert copy.program.source == second.program.source


def test_parts_of_a_batch_must_not_need_each_other(recorded):
    program, opgraph = recorded
    cut = even(opgraph, 2)
    whole = choices(opgraph, "O", "S")
    with pytest.raises(
        PlanError, match=r"op \d+ aten.nll_loss_forward.* needs the rows of the whole"
    ):
        stage_programs(program, opgraph, whole, cut, partial_loss=True)
    alone = {o: "R" if "nll_loss" in opgraph_op(opgraph, o).name else s for o, s in whole.items()}
    with pytest.raises(PlanError, match="the loss is no sum over the parts"):
        stage_programs(program, opgraph, alone, cut, partial_loss=True)


def opgraph_op(opgraph, index):
    return next(op for op in opgraph.ops if op.index == index)
