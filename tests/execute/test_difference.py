from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from autoplan.execute.difference import difference, first_difference
from autoplan.opgraph import OpStrategy
from autoplan.program import exchange
from tests.execute.hand_made import Step, choices, opgraph_of, traced
from tests.execute.test_rewrite import GRAPH, shards_of


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    module = Step(select=True).double()
    program = traced(module)
    return module, program, opgraph_of(program)


def compare(model, opgraph, chosen, parts=3):
    module, program, _ = model
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    return first_difference(
        program, opgraph, chosen, shards_of(parts), GRAPH, parameters, buffers, seed=5
    )


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("way", [(), ("O", "S"), ("H", "O")])
def test_right_strategies_differ_nowhere(model, parts, way):
    assert compare(model, model[2], choices(model[2], *way), parts) is None


def with_strategy(opgraph, name, strategy):
    """The graph where the last op of that name offers one more strategy, and the op."""
    op = [op for op in opgraph.ops if op.name == name][-1]
    ops = tuple(
        replace(other, strategies=(*other.strategies, strategy)) if other is op else other
        for other in opgraph.ops
    )
    return replace(opgraph, ops=ops), op


def test_the_op_with_a_wrong_strategy_is_named(model):
    # a mean of the rank's own rows, said to be the whole mean
    wrong = OpStrategy("wrong", ("O",), ("R",), "O")
    opgraph, op = with_strategy(model[2], "aten.mean.default", wrong)
    found = compare(model, opgraph, choices(opgraph, "wrong", "O"))
    assert found is not None
    assert found.what == f"op {op.index} aten.mean.default"
    assert found.strategy == "wrong"
    assert "hand_made.py" in found.where
    assert "differs from one device by" in str(found)


def test_stale_halo_rows_are_found(model):
    # an aggregation's halo rows are not complete, whoever says so
    wrong = OpStrategy("wrong", ("H", "O", "O"), ("H",), "H")
    opgraph, op = with_strategy(model[2], "aten.index_add.default", wrong)
    found = compare(model, opgraph, choices(opgraph, "wrong", "H", "O"))
    assert found is not None
    assert found.what == f"op {op.index} aten.index_add.default"


def test_a_wrong_gradient_names_its_parameter(model, monkeypatch):
    right = exchange.all_reduce

    def forgets_the_others(context, tensor):
        return tensor + right(context, tensor.detach()) - tensor.detach()

    monkeypatch.setattr(exchange, "all_reduce", forgets_the_others)
    found = compare(model, model[2], choices(model[2], "O", "S"))
    assert found is not None
    assert found.what.startswith("the gradient of first.lin.")
    assert 0 < found.error < math.inf


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([math.nan, math.inf], [math.nan, math.inf], 0.0),
        ([math.nan], [1.0], math.inf),
        ([-math.inf], [1.0], math.inf),
        ([1], [2], math.inf),
        ([True], [True], 0.0),
        ([1.0], [1.0, 1.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_difference(found, expected, error):
    assert difference(torch.tensor(found), torch.tensor(expected)) == error
