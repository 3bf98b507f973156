from __future__ import annotations

import pytest

from autoplan.pricing.fixed import fixed_costs
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor
from autoplan.pricing.table import Pricer
from tests.search.small import cluster, profile, stats

WEIGHTS = (ModelTensor("w", 4_000_000, True), ModelTensor("running_mean", 4000, False))


def costs(count, optimizer="adam", training=True, **devices):
    members = cluster(count, **devices)
    group = Group(members, tuple(range(count)), stats().partitions.get(count))
    return fixed_costs(WEIGHTS, optimizer, group, Pricer(), training=training)


def test_one_device_synchronises_nothing():
    found = costs(1)
    assert found.synchronisation.seconds == found.synchronisation.payload == 0
    assert found.optimizer.seconds > 0


def test_gradients_are_the_payload():
    found = costs(2)
    assert found.synchronisation.payload == 4_000_000
    assert found.synchronisation.communication == found.synchronisation.seconds > 0


def test_adam_moves_seven_times_the_weights():
    free = costs(1, kind=profile(launch_seconds=1e-15))
    assert free.optimizer.seconds == pytest.approx(7 * 4_000_000 / 1e10, rel=1e-6)
    assert costs(1, "sgd").optimizer.seconds < costs(1).optimizer.seconds


def test_evaluation_ends_with_forward():
    assert costs(2, training=False).seconds == 0.0


def test_a_gpu_updates_all_parameters_at_once():
    small = tuple(ModelTensor(f"w{i}", 4, True) for i in range(10))

    def seconds(kind):
        members = cluster(1, kind=profile(kind=kind, launch_seconds=1e-3))
        group = Group(members, (0,), None)
        return fixed_costs(small, "adam", group, Pricer(), training=True).optimizer.seconds

    assert seconds("cpu") == pytest.approx(10 * seconds("gpu"), rel=1e-3)
