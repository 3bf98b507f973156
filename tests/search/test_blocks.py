from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.search.blocks import contract
from autoplan.search.check import evaluate
from autoplan.search.exhaustive import enumerate_all
from autoplan.search.ilp import solve
from autoplan.search.optimise import optimise
from autoplan.search.solution import SolverLimits
from tests.search.random_problems import followers, random_problem

few = settings(max_examples=20, deadline=None, derandomize=True)


@few
@given(st.integers(0, 10**6))
def test_contraction_keeps_the_optimum_in_time(seed: int) -> None:
    problem = random_problem(seed)
    contraction = contract(problem, followers(problem))
    best = enumerate_all(problem).evaluation.seconds
    small = solve(contraction.problem)
    assert small.evaluation.seconds == pytest.approx(best)
    expanded = evaluate(problem, contraction.expand(small.assignment))
    assert not expanded.faults
    assert expanded.seconds == pytest.approx(best)


@few
@given(st.integers(0, 10**6), st.sampled_from([0.4, 0.55, 0.7]))
def test_optimise_equals_enumeration_under_a_limit(seed: int, tight: float) -> None:
    problem = random_problem(seed, tight=tight)
    best = enumerate_all(problem)
    found = optimise(
        problem,
        followers=followers(problem),
        objective="time",
        sharded=False,
        limits=SolverLimits(),
    )
    assert found.status == best.status
    if best.evaluation is not None:
        assert found.evaluation.seconds == pytest.approx(best.evaluation.seconds)


def test_contraction_makes_fewer_blocks() -> None:
    problem = random_problem(4, ops=12)
    assert len(contract(problem, followers(problem)).problem.blocks) < len(problem.blocks)
