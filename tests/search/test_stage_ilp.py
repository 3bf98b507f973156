from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.search.exhaustive import enumerate_stages
from autoplan.search.result import SearchOptions
from autoplan.search.solution import SolverLimits
from autoplan.search.stage_cuts import best_cuts
from autoplan.search.stage_ilp import solve_stages
from autoplan.search.stage_problem import evaluate_stages
from autoplan.search.stage_refine import Cuts, least_possible, refine
from tests.search.random_stages import random_stages

seeds = st.integers(0, 10**6)
few = settings(max_examples=20, deadline=None, derandomize=True)
TIGHT = st.sampled_from([0.3, 0.4, 0.5, 0.7])


def value(problem, stage_of, objective="time"):
    found = evaluate_stages(problem, stage_of)
    assert not found.faults
    assert found.fits
    return found.seconds if objective == "time" else max(found.bytes)


@few
@given(seeds, st.integers(2, 3))
def test_time_equals_enumeration(seed, stages):
    problem = random_stages(seed, stages=stages)
    best, found = enumerate_stages(problem), solve_stages(problem)
    assert found.status == "optimal"
    assert found.evaluation.seconds == pytest.approx(best.bound, rel=1e-6)
    assert found.bound == pytest.approx(best.bound, rel=1e-5)


@few
@given(seeds, TIGHT)
def test_time_under_a_memory_limit_equals_enumeration(seed, tight):
    problem = random_stages(seed, tight=tight)
    best, found = enumerate_stages(problem), solve_stages(problem)
    assert found.status == best.status
    if best.status == "optimal":
        assert value(problem, found.stage_of) == pytest.approx(best.bound, rel=1e-6)


@few
@given(seeds)
def test_least_memory_equals_enumeration(seed):
    problem = random_stages(seed)
    best = enumerate_stages(problem, objective="memory")
    found = solve_stages(problem, objective="memory")
    assert max(found.evaluation.bytes) == pytest.approx(best.bound, rel=1e-6)


@few
@given(seeds, st.sampled_from(["time", "memory"]))
def test_a_known_value_cuts_nothing_off(seed, objective):
    problem = random_stages(seed)
    best = enumerate_stages(problem, objective=objective)
    found = solve_stages(problem, objective=objective, at_most=best.bound)
    assert value(problem, found.stage_of, objective) == pytest.approx(best.bound, rel=1e-6)
    assert solve_stages(problem, objective=objective, at_most=best.bound * 0.99).stage_of is None


@few
@given(seeds, st.sampled_from([None, 0.4, 0.5, 0.7]), st.sampled_from(["time", "memory"]))
def test_cuts_of_chains_are_the_best_assignments(seed, tight, objective):
    problem = random_stages(seed, chain=True, tight=tight)
    best = enumerate_stages(problem, objective=objective)
    cuts = best_cuts(problem, objective=objective)
    assert (cuts is None) == (best.stage_of is None)
    if cuts is not None:
        assert value(problem, cuts, objective) == pytest.approx(best.bound, rel=1e-9)


@few
@given(seeds, st.sampled_from([None, 0.5, 0.7]))
def test_cuts_are_the_best_contiguous_ones(seed, tight):
    problem = random_stages(seed, tight=tight)
    best = enumerate_stages(problem)
    cuts = best_cuts(problem)
    contiguous = _best_contiguous(problem)
    assert (cuts is None) == (contiguous is None)
    if cuts is not None:
        assert value(problem, cuts) == pytest.approx(contiguous, rel=1e-9)
        assert value(problem, cuts) >= best.bound * (1 - 1e-12)


def _best_contiguous(problem):
    count = len(problem.blocks)
    found = [
        evaluate_stages(problem, (0,) * first + (1,) * (second - first) + (2,) * (count - second))
        for first in range(1, count - 1)
        for second in range(first + 1, count)
    ]
    return min((f.seconds for f in found if f.fits and not f.faults), default=None)


@few
@given(seeds)
def test_refined_cuts_are_the_best_and_say_so(seed):
    problem = random_stages(seed)
    cuts = best_cuts(problem)
    if cuts is None:
        return
    modules = dict.fromkeys(range(len(problem.blocks)), "layer")
    found = refine(
        Cuts(problem, cuts), modules, objective="time", options=SearchOptions(), exact=True
    )
    best = enumerate_stages(problem)
    assert value(problem, found.stage_of) == pytest.approx(best.bound, rel=1e-6)
    assert found.status == "optimal"
    assert found.gap <= 1e-5
    assert least_possible(problem, "time") <= best.bound * (1 + 1e-12)
    assert least_possible(problem, "memory") <= enumerate_stages(problem, objective="memory").bound


def test_blocks_that_were_merged_prove_nothing():
    problem = random_stages(1, blocks=40)
    modules = {block: f"layer{block // 4}" for block in range(40)}
    found = refine(
        Cuts(problem, best_cuts(problem)),
        modules,
        objective="time",
        options=SearchOptions(),
        exact=True,
    )
    assert found.status == "feasible"
    assert 0 < found.gap < 1


def test_fewer_blocks_than_stages_is_infeasible():
    problem = random_stages(2, blocks=2)
    assert solve_stages(problem).status == "infeasible"
    assert best_cuts(problem) is None


def test_a_stop_without_a_proof_is_not_called_optimal():
    problem = random_stages(5, blocks=30, stages=4, micro_batches=5)
    found = solve_stages(problem, limits=SolverLimits(nodes=1, seconds=0.0))
    assert found.status in ("unknown", "feasible")


def test_the_same_problem_gives_the_same_assignment():
    problem = random_stages(7, blocks=12)
    assert len({solve_stages(problem).stage_of for _ in range(3)}) == 1
