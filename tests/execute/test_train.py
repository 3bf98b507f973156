"""Training on worker processes. Each run starts processes (seconds each), so one run serves several tests."""

from __future__ import annotations

import tempfile
import time

import pytest
import torch

from autoplan.errors import ExecutionError, PlanError
from autoplan.execute.train import TrainResult, run_training
from tests.execute.jobs import HandWritten, make, planned_bytes

CHECK_COLLECTIVES = (
    "import importlib; importlib.import_module('tests.execute.collectives').check(context)"
)
EXTRA_ALL_REDUCE = (
    "torch.distributed.is_initialized() and torch.distributed.all_reduce(torch.zeros(5))"
)


@pytest.fixture(scope="module")
def alone() -> TrainResult:
    made = make(1, evaluate_every=2)
    return run_training(made.job, made.parts, workers=1, planned_bytes=[0])


@pytest.fixture(scope="module")
def both() -> tuple[HandWritten, TrainResult]:
    made = make(2, evaluate_every=2, extra=CHECK_COLLECTIVES)
    result = run_training(made.job, made.parts, workers=2, planned_bytes=planned_bytes(made))
    return made, result


def test_two_workers_train_to_the_numbers_of_one(
    alone: TrainResult, both: tuple[HandWritten, TrainResult]
) -> None:
    _, result = both
    assert result.losses == pytest.approx(alone.losses, rel=1e-12)
    assert result.losses[-1] < result.losses[0]
    assert list(result.parameters) == ["conv.lin.weight", "conv.bias", "scale"]
    for name, value in alone.parameters.items():
        torch.testing.assert_close(result.parameters[name], value, rtol=1e-12, atol=1e-12)
    assert int(result.buffers["steps"]) == int(alone.buffers["steps"]) == 6


def test_evaluations_are_made_when_asked_for(
    alone: TrainResult, both: tuple[HandWritten, TrainResult]
) -> None:
    _, result = both
    assert [e.epoch for e in result.evaluations] == [2, 4, 6]
    assert result.metrics == result.evaluations[-1].metrics
    assert result.metrics["total"] == pytest.approx(alone.metrics["total"], rel=1e-12)


def test_counted_payload_is_the_payload_worked_out_by_hand(
    alone: TrainResult, both: tuple[HandWritten, TrainResult]
) -> None:
    made, result = both
    assert result.communication_bytes == tuple(planned_bytes(made))
    assert result.ran_as_planned
    assert [call.name for call in result.ranks[1].collectives] == [
        "alltoall_base_",
        "allreduce_",
        "allreduce_",
        "alltoall_base_",
        "allreduce_",
    ]
    assert alone.communication_bytes == (0,)
    assert alone.ran_as_planned


def test_an_extra_collective_is_noticed() -> None:
    made = make(2, extra=EXTRA_ALL_REDUCE)
    planned = planned_bytes(made)
    result = run_training(made.job, made.parts, workers=2, planned_bytes=planned)
    assert result.communication_bytes == tuple(5 * 4 + bytes_ for bytes_ in planned)
    assert result.ran_as_planned is False


def test_steps_and_memory_are_measured(both: tuple[HandWritten, TrainResult]) -> None:
    _, result = both
    assert len(result.ranks[0].step_seconds) == 6
    assert 0 < result.step_seconds < 5
    for rank in result.ranks:
        # weights, frozen scale, gradients, two moments and the two step counts of Adam
        assert rank.resident_bytes >= 8 * (18 * 4 + 1) + 2 * 4
        assert rank.peak_bytes > rank.resident_bytes


def test_the_jobs_own_tensors_are_left_alone(
    alone: TrainResult, both: tuple[HandWritten, TrainResult]
) -> None:
    made, _ = both
    assert torch.equal(made.job.parameters["conv.bias"], torch.zeros(3, dtype=torch.float64))
    assert int(made.job.buffers["steps"]) == 0
    assert torch.get_default_dtype() == torch.float32


def test_a_failing_worker_ends_all_with_its_own_traceback(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = make(
        2,
        epochs=1000,
        extra="if context.communicator.rank == 1 and context.step == 3: raise KeyError('boom')",
    )
    started = time.monotonic()
    with pytest.raises(
        ExecutionError, match=r"worker 1 of 2 .* failed: KeyError: 'boom'"
    ) as caught:
        run_training(made.job, made.parts, workers=2)
    assert time.monotonic() - started < 30
    assert caught.value.rank == 1
    assert "line 2, in step" in caught.value.worker_traceback
    assert caught.value.worker_traceback in str(caught.value)
    assert not list(tmp_path.iterdir())  # type: ignore[attr-defined]


def test_a_killed_worker_is_told_apart() -> None:
    made = make(
        2,
        epochs=1000,
        extra="if context.communicator.rank == 1: import os; os.kill(os.getpid(), 9)",
    )
    with pytest.raises(
        ExecutionError, match=r"worker 1 of 2 .* killed \(SIGKILL\).*memory"
    ) as caught:
        run_training(made.job, made.parts, workers=2)
    assert caught.value.rank == 1


def test_parts_must_match_the_workers() -> None:
    made = make(2)
    with pytest.raises(PlanError, match="2 parts of the graph for 3 workers"):
        run_training(made.job, made.parts, workers=3)


@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
def test_short_runs_are_audited_too(epochs: int) -> None:
    made = make(1, epochs=epochs)
    result = run_training(made.job, made.parts, workers=1)
    assert len(result.losses) == epochs
    assert result.step_seconds > 0
    assert result.peak_bytes[0] > result.ranks[0].resident_bytes
    assert result.ran_as_planned is None
