from __future__ import annotations

from dataclasses import replace

import pytest

from autoplan.pricing.group import Group
from autoplan.pricing.moves import price_moves
from autoplan.pricing.table import Pricer
from tests.search.small import cluster, gcn, stats, tensor


def moves(name, count=2, latency=1e-5):
    graph, sizes = gcn(hidden=16), stats(1000, 8000)
    group = Group(cluster(count, latency=latency), tuple(range(count)), sizes.partitions[count])
    rows = group.row_table(graph, sizes)
    found = price_moves(graph.tensors[name], graph, rows, group, Pricer())
    return {(m.transition.source, m.transition.target): m for m in found}, sizes.partitions[count]


@pytest.mark.parametrize("count", [2, 3])
def test_a_halo_exchange_sends_what_others_ask_for_and_gets_the_halo_back(count):
    found, cut = moves("h1", count)
    row = 16 * 4
    assert found["O", "H"].forward_bytes == tuple(s.sent_rows["node"] * row for s in cut.shards)
    assert found["O", "H"].backward_bytes == tuple(s.halo_rows["node"] * row for s in cut.shards)


@pytest.mark.parametrize("count", [2, 3])
def test_an_all_gather_sends_its_rows_to_every_peer(count):
    found, cut = moves("h1", count)
    owned = [s.owned_rows["node"] for s in cut.shards]
    row = 16 * 4
    assert found["O", "R"].forward_bytes == tuple(n * (count - 1) * row for n in owned)
    assert found["O", "R"].backward_bytes == tuple((1000 - n) * row for n in owned)


def test_edges_are_gathered_by_their_own_rows():
    found, cut = moves("a1_message")
    assert found["O", "R"].forward_bytes == tuple(s.owned_rows["edge"] * 64 for s in cut.shards)


def test_slices_send_nothing_and_still_take_time():
    found, _ = moves("h1")
    for step in (("R", "O"), ("R", "H"), ("H", "O")):
        assert not any(found[step].forward_bytes + found[step].backward_bytes)
        assert found[step].forward.seconds > 0
        assert found[step].forward.communication == 0


def test_a_partial_sum_is_all_reduced_both_ways():
    graph, sizes = gcn(), stats()
    group = Group(cluster(2), (0, 1), sizes.partitions[2])
    total = tensor("t", 3, 5, states=("R", "S"))
    (move,) = price_moves(total, graph, group.row_table(graph, sizes), group, Pricer())
    assert move.forward_bytes == move.backward_bytes == (60, 60)
    assert move.forward.communication > 0


def test_latency_flips_halo_against_all_gather():
    cheap, _ = moves("h1", latency=0.0)
    assert cheap["O", "H"].forward.communication < cheap["O", "R"].forward.communication


def test_a_partial_sum_of_half_width_travels_in_float32():
    graph, sizes = gcn(), stats()
    group = Group(cluster(2), (0, 1), sizes.partitions[2])
    total = tensor("t", 3, 5, states=("R", "S"), dtype="bfloat16")
    (move,) = price_moves(total, graph, group.row_table(graph, sizes), group, Pricer())
    assert move.forward_bytes == (60, 60)


def test_a_halo_that_is_empty_everywhere_costs_nothing():
    graph, sizes = gcn(hidden=16), stats(1000, 8000)
    parts = sizes.partitions[2]
    shards = tuple(
        replace(shard, halo_rows={"node": 0}, sent_rows={"node": 0}) for shard in parts.shards
    )
    closed = replace(parts, method="closed", shards=shards)
    group = Group(cluster(2), (0, 1), closed)
    rows = group.row_table(graph, sizes)
    (halo,) = [
        move
        for move in price_moves(graph.tensors["h1"], graph, rows, group, Pricer())
        if move.transition.exchange == "halo_exchange"
    ]
    assert (halo.forward.seconds, halo.backward.seconds) == (0, 0)
    assert halo.forward_bytes == halo.backward_bytes == halo.buffer_bytes == (0, 0)
