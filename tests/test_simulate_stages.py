from __future__ import annotations

import itertools

import numpy as np
import pytest

from autoplan.plan import MemorySheet
from autoplan.simulate_stages import (
    Arrival,
    GradientSum,
    PipelineCosts,
    predict_pipeline,
    run_pipeline,
)

SHEET = MemorySheet(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None)


def costs(
    stages=3, micro_batches=4, replicas=1, schedule="1f1b", forward=1.0, backward=2.0, **more
):
    """Equal stages in a row, each reading the one before; messages take no time unless given."""
    shape = (3, stages, replicas, micro_batches)
    nothing = np.zeros((3, replicas, micro_batches))
    given = {
        "schedule": schedule,
        "training": True,
        "forward": np.full(shape, forward),
        "backward": np.full(shape, backward),
        "arrivals": tuple(Arrival(s, s + 1, nothing, nothing, True) for s in range(stages - 1)),
        "sums": (),
        "optimizer": np.zeros((3, stages * replicas)),
        **more,
    }
    return PipelineCosts(**given)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8])
def test_equal_stages_have_the_textbook_bubble(schedule, stages, micro_batches):
    run = run_pipeline(costs(stages, micro_batches, schedule=schedule))
    assert run.seconds == pytest.approx(3 * (micro_batches + stages - 1))
    assert run.bubble == pytest.approx((stages - 1) / (micro_batches + stages - 1))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_ranks_do_one_thing_at_a_time_and_wait_for_what_they_read(schedule):
    rng = np.random.default_rng(0)
    shape = (3, 4, 2, 5)
    given = costs(4, 5, 2, schedule, forward=0.0, backward=0.0)
    given = costs(
        4,
        5,
        2,
        schedule,
        arrivals=(
            *given.arrivals,
            Arrival(0, 3, np.full((3, 2, 5), 0.5), np.full((3, 2, 5), 0.25), True),
        ),
    )
    given = PipelineCosts(
        schedule,
        True,
        rng.random(shape),
        rng.random(shape),
        given.arrivals,
        (),
        given.optimizer,
    )
    run = run_pipeline(given)
    ends = {}
    for entry in run.entries:
        ends[entry.kind, entry.rank, entry.micro_batch] = entry.start + entry.seconds
    for rank in range(8):
        mine = [entry for entry in run.entries if entry.rank == rank]
        assert len(mine) == 10
        for before, after in itertools.pairwise(mine):
            assert before.start + before.seconds <= after.start + 1e-12
    for entry in run.entries:
        replica, stage = divmod(entry.rank, 4)
        for arrival in given.arrivals:
            if entry.kind == "forward" and arrival.target == stage:
                assert (
                    ends["forward", replica * 4 + arrival.source, entry.micro_batch] <= entry.start
                )
            if entry.kind == "backward" and arrival.source == stage:
                assert (
                    ends["backward", replica * 4 + arrival.target, entry.micro_batch] <= entry.start
                )


def test_one_micro_batch_waits_for_everything():
    shape = (3, 1, 1)
    there, back = np.full(shape, 0.5), np.full(shape, 0.25)
    run = run_pipeline(costs(2, 1, arrivals=(Arrival(0, 1, there, back, True),)))
    assert run.seconds == pytest.approx(2 * 3 + 0.75)
    assert sum(e.communication for e in run.entries) == pytest.approx(0.75)


def test_gradients_are_summed_when_all_holders_are_done():
    sums = (
        GradientSum((0, 2), 100, np.array([1.0, 1.0, 1.0])),
        GradientSum((1, 3), 100, np.array([2.0, 2.0, 2.0])),
    )
    optimizer = np.full((3, 4), 0.5)
    slow = costs(2, 1, 2, sums=sums, optimizer=optimizer)
    slow.forward[:, :, 1] *= 3
    run = run_pipeline(slow)
    # the second replica takes 3 + 3 forward and 2 + 2 backward; its first stage is done last
    assert run.seconds == pytest.approx(10 + 1 + 0.5)
    starts = {(e.kind, e.rank): e.start for e in run.entries if e.micro_batch is None}
    assert starts["gradients", 0] == starts["gradients", 2] == pytest.approx(10)
    assert starts["gradients", 1] == starts["gradients", 3] == pytest.approx(8)
    assert starts["optimizer", 1] == pytest.approx(10)


def test_forward_only_runs_no_backward():
    run = run_pipeline(costs(3, 4, training=False))
    assert run.seconds == pytest.approx(6)
    assert {entry.kind for entry in run.entries} == {"forward"}


def test_the_prediction_has_its_range_and_what_the_busiest_ranks_do():
    messages = np.full((3, 1, 2), 0.25)
    given = costs(2, 2, arrivals=(Arrival(0, 1, messages, messages, True),))
    given.forward[1] *= 0.5
    given.forward[2] *= 4
    given.forward[:, 0] *= 2
    prediction, run = predict_pipeline(given, (SHEET, SHEET), (7, 9))
    assert (
        prediction.step_seconds.low < prediction.step_seconds.value < prediction.step_seconds.high
    )
    assert prediction.step_seconds.value == run.seconds
    # the first stage computes longest and never waits for a message; the second communicates
    assert prediction.compute_seconds == pytest.approx(2 * (2 + 2))
    assert prediction.communication_seconds == pytest.approx(4 * 0.25)
    assert prediction.communication_bytes == (7, 9)
    assert len(prediction.peak_bytes) == 2
