from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoplan.search.check import evaluate, tolerance_bytes
from autoplan.search.exhaustive import enumerate_all
from autoplan.search.ilp import solve
from autoplan.search.solution import SolverLimits
from tests.search.random_problems import random_problem

seeds = st.integers(0, 10**6)
few = settings(max_examples=20, deadline=None, derandomize=True)


@few
@given(seeds)
def test_time_equals_enumeration(seed: int) -> None:
    problem = random_problem(seed)
    best, found = enumerate_all(problem), solve(problem)
    assert best.status == found.status == "optimal"
    assert found.evaluation.seconds == pytest.approx(best.evaluation.seconds, rel=1e-6)
    assert found.bound == pytest.approx(best.evaluation.seconds, rel=1e-5)


@few
@given(seeds, st.sampled_from([0.35, 0.45, 0.55, 0.7]))
def test_time_under_a_memory_limit_equals_enumeration(seed: int, tight: float) -> None:
    problem = random_problem(seed, tight=tight)
    best, found = enumerate_all(problem), solve(problem)
    assert found.status == best.status
    if best.status == "optimal":
        assert found.evaluation.seconds == pytest.approx(best.evaluation.seconds, rel=1e-6)
        limit = problem.limits[0]
        assert max(found.evaluation.peak) <= limit + tolerance_bytes(limit)


@few
@given(seeds)
def test_least_memory_equals_enumeration(seed: int) -> None:
    problem = random_problem(seed)
    best = enumerate_all(problem, objective="memory")
    found = solve(problem, objective="memory")
    assert max(found.evaluation.peak) == pytest.approx(max(best.evaluation.peak), abs=64)


@few
@given(seeds, st.randoms(use_true_random=False))
def test_the_check_agrees_with_the_programme_on_any_assignment(seed: int, random) -> None:
    problem = random_problem(seed)
    choices = [random.randrange(len(options)) for options in problem.blocks]
    fixed = problem.__class__(
        tuple((options[k],) for options, k in zip(problem.blocks, choices, strict=True)),
        problem.tensors,
        problem.required,
        None,
        problem.limits,
        problem.fixed_seconds,
    )
    expected, found = evaluate(problem, choices), solve(fixed)
    if expected.faults:
        assert found.status == "infeasible"
    else:
        assert found.evaluation.seconds == pytest.approx(expected.seconds)
        assert found.bound == pytest.approx(expected.seconds, rel=1e-5)


def test_the_same_problem_gives_the_same_assignment() -> None:
    answers = {solve(random_problem(3, ops=8)).assignment for _ in range(3)}
    assert len(answers) == 1


def test_sharded_takes_a_marked_choice() -> None:
    for seed in range(6):
        problem = random_problem(seed)
        found = solve(problem, sharded=True)
        if found.assignment is not None:
            chosen = [
                options[k] for options, k in zip(problem.blocks, found.assignment, strict=True)
            ]
            assert any(choice.sharded for choice in chosen)


def test_a_stop_without_a_proof_is_not_called_optimal() -> None:
    problem = random_problem(5, ops=60)
    found = solve(problem, limits=SolverLimits(seconds=0.0))
    assert found.status in ("optimal", "unknown", "feasible")
    if found.status == "unknown":
        assert found.assignment is None


def test_the_solver_writes_nothing_to_standard_output() -> None:
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.search.random_problems import random_problem\n"
        "from autoplan.search.ilp import solve\n"
        "print(solve(random_problem(1, ops=12, tight=0.5)).status)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout in ("optimal\n", "infeasible\n")
    assert done.stderr == ""
