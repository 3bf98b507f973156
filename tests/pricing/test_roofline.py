from __future__ import annotations

from dataclasses import replace

import pytest

from autoplan.cost import CostModel, WorkSizes
from autoplan.pricing.roofline import Roofline
from tests.search.small import profile

DENSE = WorkSizes("aten.mm", "dense", "float32", 2e9, 1e6, 1e6, 0, 0, threads=4)
GATHER = WorkSizes("aten.index_select", "gather", "float32", 0, 5e6, 5e6, 1e5, 50, threads=4)


def test_it_is_a_cost_model():
    assert isinstance(Roofline(), CostModel)


def test_dense_is_bound_by_flops_and_elementwise_by_bytes():
    model, device = Roofline(), profile()
    assert model.estimate(DENSE, device).seconds == pytest.approx(5e-6 + 2e9 / 2e11)
    moved = replace(DENSE, kind="elementwise", flops=1.0)
    assert model.estimate(moved, device).seconds == pytest.approx(5e-6 + 2e6 / 1e10)


def test_one_thread_of_four_has_a_quarter_of_the_peak():
    model, device = Roofline(), profile(launch_seconds=1e-12)
    quarter = model.estimate(replace(DENSE, threads=1), device).seconds
    assert quarter == pytest.approx(4 * model.estimate(DENSE, device).seconds, rel=1e-6)


def test_workers_of_one_host_share_its_bandwidth():
    model, device = Roofline(), profile(launch_seconds=1e-12)
    alone = model.estimate(GATHER, device).seconds
    assert model.estimate(replace(GATHER, concurrency=2), device).seconds == pytest.approx(
        2 * alone, rel=1e-6
    )


def test_irregular_rows_see_less_bandwidth_and_narrow_ones_cost_a_line():
    model = Roofline()
    device = profile(kind="gpu", launch_seconds=1e-12)
    streamed = model.estimate(replace(GATHER, kind="elementwise"), device).seconds
    wide = model.estimate(GATHER, device).seconds
    narrow = model.estimate(replace(GATHER, row_width_bytes=4), device).seconds
    scattered = model.estimate(replace(GATHER, kind="scatter"), device).seconds
    assert wide == pytest.approx(streamed / 0.2, rel=1e-6)
    assert narrow > wide
    assert scattered > wide


def test_a_profile_s_own_figures_win_over_shares():
    device = profile(launch_seconds=1e-12, gather_bytes_per_s=1e6)
    assert Roofline().estimate(replace(GATHER, row_width_bytes=64), device).seconds == (
        pytest.approx(1e7 / 1e6, rel=1e-6)
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"launch_seconds": None}, "launch_seconds"),
        ({"bytes_per_s": None}, "bytes_per_s"),
        ({"flop_per_s": {}}, "flop_per_s for float32"),
    ],
)
def test_a_missing_figure_is_no_price_and_is_named(change, word):
    model, device = Roofline(), profile(**change)
    assert model.estimate(DENSE, device) is None
    assert model.accuracy(DENSE, device) is None
    assert word in model.missing(DENSE, device)


def test_float64_on_a_gpu_is_not_guessed():
    work = replace(DENSE, dtype="float64")
    assert Roofline().estimate(work, profile(kind="gpu")) is None
    assert Roofline().estimate(work, profile()).seconds > 0


@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        "gather",
        "scatter",
        "spmm",
        "elementwise",
        "reduce",
        "random",
        "sort",
        "view",
        "other",
    ],
)
def test_every_kind_has_a_range_around_a_positive_price(kind):
    cost = Roofline().estimate(replace(GATHER, kind=kind), profile())
    assert 0 < cost.low < cost.seconds < cost.high
