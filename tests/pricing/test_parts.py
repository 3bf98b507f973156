from __future__ import annotations

import numpy as np
import pytest

from autoplan.device import Link
from autoplan.pricing.group import Group
from autoplan.pricing.parts import PartRows, price_parts, same_kind, send_seconds, workers
from autoplan.pricing.table import Pricer, price_table
from autoplan.stages import strategies_of
from tests.search.small import closed, cluster, gcn, profile, stats


def test_forward_and_backward_of_one_part_are_the_table_s_price():
    graph, sizes = gcn(), stats()
    group = Group(cluster(1), (0,), None)
    pricer = Pricer()
    table = price_table(graph, sizes, group, pricer, training=True)
    strategies = strategies_of(graph, {})
    found = price_parts(
        graph, strategies, PartRows(graph, sizes, None), workers(group, 1), pricer, training=True
    )
    for position, op in enumerate(graph.ops):
        price = table.ops[op.index, "R"]
        both = found.forward[:, 0, position, 0] + found.backward[:, 0, position, 0]
        assert both == pytest.approx([price.seconds, price.low, price.high])


def test_a_larger_part_takes_longer_and_all_parts_do_the_whole_work():
    graph = gcn()
    sizes = closed(9_000, 90_000, shares={2: (1.0, 2.0)})
    names = {op.index: "P" if "loss" in op.name else "O" for op in graph.ops}
    strategies = strategies_of(graph, names)
    group = Group(cluster(1), (0,), None)
    rows = PartRows(graph, sizes, sizes.closed[2])
    found = price_parts(graph, strategies, rows, workers(group, 1), Pricer(), training=True)
    small, large = found.forward[0, 0].sum(axis=0)
    assert 1.5 * small < large < 2.1 * small
    assert rows.bytes(graph.tensors["h1"], "O").sum() == 9_000 * 16 * 4


def test_forward_only_has_no_backward():
    graph, sizes = gcn(), stats()
    group = Group(cluster(1), (0,), None)
    found = price_parts(
        graph,
        strategies_of(graph, {}),
        PartRows(graph, sizes, None),
        workers(group, 1),
        Pricer(),
        training=False,
    )
    assert not found.backward.any()


def test_with_few_busy_ranks_a_host_is_shared_by_few():
    group = Group(cluster(4), (0, 1, 2, 3), None)
    assert {worker.concurrency for worker in workers(group, 1)} == {1}
    assert {worker.concurrency for worker in workers(group, 8)} == {4}
    assert {worker.threads for worker in workers(group, 1)} == {1}


def test_nothing_is_sent_in_no_time():
    link = Link(1e-3, 1e6)
    assert send_seconds(link, np.array([0, 1000])) == pytest.approx([0.0, 2e-3])


def test_kinds_are_profiles_and_limits():
    assert same_kind(cluster(3).devices)
    other = cluster(1, kind=profile(name="other")).devices
    assert not same_kind((*cluster(1).devices, *other))
    assert not same_kind((*cluster(1).devices, *cluster(1, memory_bytes=5).devices))
