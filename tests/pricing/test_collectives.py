from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoplan.pricing.collectives import (
    all_reduce_seconds,
    all_to_all_seconds,
    bucket_sizes,
    ring_all_reduce_seconds,
    tree_all_reduce_seconds,
)
from autoplan.pricing.group import Group
from tests.search.small import cluster

sizes = st.floats(0, 1e10)
counts = st.integers(2, 9)
latencies = st.floats(0, 1e-2)


def group(count: int, latency: float = 1e-5, bandwidth: float = 1e9) -> Group:
    return Group(cluster(count, latency=latency, bandwidth=bandwidth), tuple(range(count)), None)


@given(counts, sizes, sizes, latencies)
def test_more_bytes_never_cost_less(count, first, second, latency):
    few, many = sorted((first, second))
    members = group(count, latency)
    assert all_reduce_seconds(members, few) <= all_reduce_seconds(members, many)
    assert all_to_all_seconds(members, [few] * count, [0.0] * count) <= all_to_all_seconds(
        members, [many] * count, [0.0] * count
    )


@given(counts, sizes, latencies, latencies)
def test_more_latency_never_costs_less(count, size, first, second):
    quick, slow = sorted((first, second))
    assert all_reduce_seconds(group(count, quick), size) <= all_reduce_seconds(
        group(count, slow), size
    )
    rows = [size] * count
    assert all_to_all_seconds(group(count, quick), rows, rows) <= all_to_all_seconds(
        group(count, slow), rows, rows
    )


@given(sizes)
def test_one_device_costs_nothing(size):
    assert all_reduce_seconds(group(1), size) == 0.0
    assert all_to_all_seconds(group(1), [size], [size]) == 0.0


def test_each_collective_has_its_own_formula():
    members = group(4, latency=1e-5, bandwidth=1e9)
    size = 1e6
    assert ring_all_reduce_seconds(members, size) == 6e-5 + 1.5 * 1e-3
    assert tree_all_reduce_seconds(members, size) == 4 * (1e-5 + 1e-3)
    assert all_to_all_seconds(members, [size] * 4, [size] * 4) == 3e-5 + 1e-3


def test_the_busier_direction_and_the_slowest_rank_count():
    members = group(2, latency=0.0)
    assert all_to_all_seconds(members, [1e9, 0.0], [0.0, 3e9]) == 3.0


def test_a_small_all_reduce_takes_the_tree_and_a_large_one_the_ring():
    members = group(8, latency=1e-4)
    assert all_reduce_seconds(members, 8) == tree_all_reduce_seconds(members, 8)
    assert all_reduce_seconds(members, 1e9) == ring_all_reduce_seconds(members, 1e9)


def test_buckets_hold_every_byte_and_the_first_is_small():
    mib = 1 << 20
    buckets = bucket_sizes([30 * mib, 5 * mib, mib, 100])
    assert sum(buckets) == 36 * mib + 100
    assert buckets[0] == mib + 100
    assert bucket_sizes([]) == ()
