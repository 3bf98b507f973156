from __future__ import annotations

import math

import pytest

from autoplan.cost import Cost
from autoplan.errors import DeviceError
from autoplan.pricing.group import Group
from autoplan.pricing.table import Pricer, price_table
from tests.search.small import cluster, gcn, profile, stats


class Model:
    def __init__(self, name, accuracy, answer):
        self.name = name
        self._accuracy = accuracy
        self._answer = answer

    def accuracy(self, work, device):
        return self._accuracy

    def estimate(self, work, device):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def table(models, count=1, training=True, **devices):
    sizes = stats()
    graph = gcn()
    members = cluster(count, **devices)
    group = Group(members, tuple(range(count)), sizes.partitions.get(count))
    return graph, price_table(graph, sizes, group, Pricer(models), training=training)


def test_the_most_accurate_model_wins():
    rough = Model("rough", 0.5, Cost(1.0, 0.0, 1.0, 1.0))
    fine = Model("fine", 0.9, Cost(2.0, 0.0, 2.0, 2.0))
    graph, prices = table([rough, fine], training=False)
    assert {p.models for p in prices.ops.values()} == {("fine",)}
    assert prices.ops[graph.ops[0].index, "R"].seconds == 2.0


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (RuntimeError("no driver"), "no driver"),
        (Cost(math.nan, 0.0, 0.0, 1.0), "nan"),
        (Cost(-1.0, 0.0, 0.0, 1.0), "-1.0"),
        (Cost(1.0, 0.0, 2.0, 3.0), "low <= seconds"),
    ],
)
def test_a_failing_model_falls_through_and_is_recorded(answer, word):
    _, prices = table([Model("broken", 1.0, answer)])
    assert {p.models for p in prices.ops.values()} == {("roofline",)}
    assert len(prices.failures) == 1
    assert prices.failures[0].model == "broken"
    assert word in prices.failures[0].reason


def test_a_model_that_declines_is_no_failure():
    _, prices = table([Model("shy", 0.9, None), Model("elsewhere", None, None)])
    assert prices.failures == ()


def test_an_accuracy_that_is_none_is_nonsense():
    _, prices = table([Model("boastful", 7.0, Cost(1.0, 0.0, 1.0, 1.0))])
    assert "7.0" in prices.failures[0].reason


def test_no_price_is_an_error_that_says_what_is_missing():
    with pytest.raises(DeviceError, match="test_cpu has no launch_seconds"):
        table([], kind=profile(launch_seconds=None))


def test_the_slowest_rank_counts_and_training_includes_backward():
    graph, both = table([], count=2)
    _, forward = table([], count=2, training=False)
    dense = graph.ops[0].index
    price = both.ops[dense, "O"]
    assert price.per_rank[1] > price.per_rank[0]
    assert price.seconds == price.per_rank[1]
    assert price.seconds == pytest.approx(2 * forward.ops[dense, "O"].seconds)
    assert price.low < price.seconds < price.high


def test_one_rank_prices_only_r():
    _, prices = table([])
    assert {name for _, name in prices.ops} == {"R"}


def test_a_kernel_s_own_collectives_are_priced_and_counted():
    graph, prices = table([], count=2)
    loss = graph.ops[-1].index
    assert prices.ops[loss, "O"].payload == 16
    assert prices.ops[loss, "O"].communication > 0
    assert prices.ops[loss, "R"].communication == 0
