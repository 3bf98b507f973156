"""Positions moved past the rows of other types: what they point into, and what refuses to be told."""

from __future__ import annotations

from collections import Counter

import pytest

from autoplan.opgraph import IndexInto
from autoplan.trace.rules.axes import AxisTable
from autoplan.trace.rules.shifts import is_moved, joined_axis, parts_between, points_into, shifted

A, B, C = "node[a]", "node[b]", "node[c]"
ROWS = [{A: 5, B: 7, C: 11, "edge[a__to__b]": 20}, {A: 6, B: 9, C: 4, "edge[a__to__b]": 31}]


@pytest.fixture
def axes() -> AxisTable:
    return AxisTable.of(ROWS)


def test_moved_positions_point_into_the_part_that_follows(axes):
    joined = axes.concat([A, B, C])
    sources = shifted(axes, IndexInto((C,), ("src",)), [B, A])
    assert sources is not None
    assert is_moved(sources)
    assert points_into(axes, sources, joined)
    assert not points_into(axes, sources, axes.concat([A, C, B]))
    assert not points_into(axes, sources, C)
    twice = shifted(axes, shifted(axes, IndexInto((C,), ("src",)), [A]), [B])
    assert twice == sources


def test_unmoved_positions_point_into_the_first_part(axes):
    first = IndexInto((A,), ("dst",))
    assert shifted(axes, first, []) == first
    assert points_into(axes, first, axes.concat([A, B]))
    assert not points_into(axes, first, axes.concat([B, A]))


def test_positions_of_several_types_in_one_tensor(axes):
    owned = shifted(axes, IndexInto((B,), ("dst",)), [A])
    name = joined_axis(axes, [(A, "dst"), (owned.axes[0], "dst")])
    assert name is not None
    assert points_into(axes, IndexInto((name,), ("dst",)), axes.concat([A, B]))
    assert not points_into(axes, IndexInto((name,), ("dst",)), axes.concat([B, A]))


def test_sources_and_owned_ends_were_moved_by_other_rows(axes):
    sources = shifted(axes, IndexInto((B,), ("src",)), [A])
    owned = shifted(axes, IndexInto((B,), ("dst",)), [A])
    assert sources.axes != owned.axes
    assert joined_axis(axes, [(sources.axes[0], "src"), (owned.axes[0], "dst")]) is None


@pytest.mark.parametrize(
    ("index", "before"),
    [
        (IndexInto((A,), ("any",)), [B]),
        (IndexInto((A, B), ("src", "dst")), [C]),
        (IndexInto((A,), ("src",)), ["edge[a__to__b]"]),
        (IndexInto(("edge[a__to__b]",), ("self",)), [A]),
    ],
)
def test_what_says_nothing(axes, index, before):
    assert shifted(axes, index, before) is None


def test_whole_parts_of_a_joined_axis(axes):
    joined = axes.concat([A, B, B, C])
    assert parts_between(axes, joined, Counter(), Counter([A])) == (A,)
    assert parts_between(axes, joined, Counter([A, B]), Counter([A, B, B])) == (B,)
    assert parts_between(axes, joined, Counter([A]), Counter([A, B, B])) == (B, B)
    assert parts_between(axes, joined, Counter([B]), Counter([A, B])) is None
