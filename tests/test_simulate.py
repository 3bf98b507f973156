from __future__ import annotations

import pytest

from autoplan.search import solve
from tests.search.small import cluster, gcn, parameters, stats


@pytest.fixture(scope="module")
def best():
    graph = gcn()
    return solve(
        graph,
        stats(100_000, 1_000_000),
        cluster(2),
        [],
        parameters=parameters(graph),
        optimizer="adam",
        strategy="data",
    ).best


def test_the_timeline_adds_up_to_the_prediction(best):
    end = best.timeline[-1].start + best.timeline[-1].seconds
    assert end == pytest.approx(best.prediction.step_seconds.value)
    starts = [entry.start for entry in best.timeline]
    assert starts == sorted(starts)
    assert best.prediction.compute_seconds + best.prediction.communication_seconds == (
        pytest.approx(best.prediction.step_seconds.value)
    )


def test_every_op_and_move_is_in_the_timeline(best):
    kinds = [entry.kind for entry in best.timeline]
    assert kinds.count("op") == len(best.choices)
    forward = len(best.transitions)
    adjoints = sum(any(t.backward_bytes) for t in best.transitions)
    assert kinds.count("move") == forward + adjoints
    assert kinds[-2:] == ["synchronisation", "optimizer"]


def test_the_range_holds_the_value(best):
    expected = best.prediction.step_seconds
    assert expected.low < expected.value < expected.high
    for peak, sheet in zip(best.prediction.peak_bytes, best.memory, strict=True):
        assert peak.value == sheet.peak
        assert peak.low < peak.value < peak.high


def test_transitions_add_up_to_the_payload(best):
    gradients = 4 * (256 * 16 + 16 * 8)
    loss = 16
    for rank, total in enumerate(best.prediction.communication_bytes):
        moved = sum(t.forward_bytes[rank] + t.backward_bytes[rank] for t in best.transitions)
        assert total == moved + gradients + loss
