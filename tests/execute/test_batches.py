from __future__ import annotations

import numpy as np
import pytest

from autoplan.errors import PlanError
from autoplan.execute.batches import BatchOrder


def test_an_epoch_visits_every_graph_once() -> None:
    order = BatchOrder(graphs=10, batch_size=4, seed=3)
    assert order.steps_per_epoch == 3
    for epoch in range(3):
        batches = [order.batch(3 * epoch + position) for position in range(3)]
        assert [len(batch) for batch in batches] == [4, 4, 2]
        assert sorted(np.concatenate(batches)) == list(range(10))


def test_epochs_differ_and_repeat_from_the_seed() -> None:
    first, again, other = (BatchOrder(50, 10, seed) for seed in (1, 1, 2))
    epochs = [np.concatenate([first.batch(5 * e + s) for s in range(5)]) for e in range(3)]
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[1], epochs[2])
    # asked in another order
    for step in (14, 0, 7):
        np.testing.assert_array_equal(again.batch(step), first.batch(step))
    assert not np.array_equal(other.batch(0), first.batch(0))


def test_all_graphs_at_once_keep_their_order() -> None:
    order = BatchOrder(6, 6, seed=5)
    assert order.steps_per_epoch == 1
    for step in (0, 1, 9):
        assert order.batch(step).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("size", [0, -1, 7])
def test_a_batch_has_at_least_one_graph_and_no_more_than_there_are(size: int) -> None:
    with pytest.raises(PlanError, match=f"takes {size} of 6 graphs"):
        BatchOrder(6, size)
