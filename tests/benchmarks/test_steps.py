"""The step benchmark: its statistics in closed form, its gates, its rounds, its cases, and the counts of its ceilings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.steps import bounds, cases, dense, graphs, results
from benchmarks.steps.protocol import Times, TooSlowError, rounds, warm_up
from benchmarks.steps.ratios import ratio
from benchmarks.steps.run_case import Outcome
from benchmarks.steps.timing import Clock


def test_equal_rounds_have_an_interval_of_no_width() -> None:
    found = ratio([4.0, 8.0, 2.0], [2.0, 4.0, 1.0])
    assert (found.median, found.low, found.high, found.half_width) == (2.0, 2.0, 2.0, 0.0)
    assert found.settled


def test_the_interval_of_two_rounds_is_their_range() -> None:
    # medians of two draws: low with 1/4, middle with 1/2, high with 1/4
    found = ratio([1.0, 3.0], [1.0, 1.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.half_width == 0.5
    assert not found.settled


def test_ratios_are_of_rounds_not_of_medians() -> None:
    assert ratio([1.0, 10.0, 100.0], [1.0, 5.0, 100.0]).median == 1.0
    with pytest.raises(ValueError, match="cannot be paired"):
        ratio([1.0], [])


class Fake:
    """A side with given seconds, one after another, the last one for ever."""

    def __init__(self, name: str, seconds: list[float], log: list[str] | None = None) -> None:
        self.name, self.seconds, self.log = name, seconds, log

    def step(self) -> float:
        if self.log is not None:
            self.log.append(self.name)
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]

    def probe(self) -> float:
        return 0.25


def test_rounds_alternate_and_references_run_in_each_third() -> None:
    log: list[str] = []
    sides = [Fake("plain", [4.0], log), Fake("autoplan", [1.0], log), Fake("hand", [2.0], log)]
    times = rounds(sides, lambda number, now: None, least=4, most=9)
    assert log == [
        *("plain", "autoplan", "hand"),
        *("autoplan", "plain"),
        *("plain", "autoplan"),
        *("hand", "autoplan", "plain"),
    ]
    found = times.ratio("plain", "autoplan")
    assert found is not None
    assert (found.median, found.rounds) == (4.0, 4)
    assert times.seconds["hand"] == {0: 2.0, 3: 2.0}
    assert times.median("probe") == 0.25
    assert times.median("dense") is None


def test_a_wide_interval_asks_for_more_rounds_up_to_the_bound() -> None:
    wild = [1.0, 4.0] * 20
    times = rounds(
        [Fake("plain", wild), Fake("autoplan", [1.0])], lambda number, now: None, least=4, most=7
    )
    assert len(times.seconds["plain"]) == 7


def test_a_slow_plain_step_is_told_at_once() -> None:
    with pytest.raises(TooSlowError):
        warm_up([Fake("plain", [11.0])])
    warm_up([Fake("plain", [11.0])], slow=None)
    warm_up([Fake("plain", [11.0, 9.0])])


def times(plain: float, autoplan: float, hand: float = 0, ceiling: float = 0) -> Times:
    made = Times()
    sides = {"plain": plain, "autoplan": autoplan, "hand": hand, "dense": ceiling}
    for side, seconds in sides.items():
        if seconds:
            made.add(0, side, seconds)
    return made


@pytest.mark.parametrize(
    ("model", "measured", "bound", "verdict"),
    [
        ("GCN", times(4.3, 1.0, 2.0, 2.0), 4.3, "holds"),
        ("GCN", times(4.2, 1.0), 4.3, "fails"),
        ("SGC", times(3.0, 1.0, hand=1.0, ceiling=0.5), 3.0, "holds"),
        ("SGC", times(3.0, 1.0, hand=0.5, ceiling=0.1), 4.0, "fails"),
        ("GAT", times(4.0, 1.0, hand=0.8, ceiling=0.4), 4.0, "holds"),
        ("GAT", times(4.0, 1.1, hand=0.8, ceiling=0.4), 4.0, "fails"),
        ("GAT", times(4.0, 2.0, hand=0.8, ceiling=2.0), 1.6, "holds"),
        ("PNA", times(1.0, 1.1, hand=1.0, ceiling=0.9), 1.0, "fails"),
        ("PNA", times(1.0, 0.5), None, "fails"),
        ("PNA", Times(), None, "fails"),
        ("GAT", times(0.019, 0.019, hand=0.001), 0.8 * 19, "not gated"),
    ],
)
def test_gates(model: str, measured: Times, bound: float | None, verdict: str) -> None:
    found = bounds.gate(model, measured)
    assert found.bound == (None if bound is None else pytest.approx(bound))
    assert found.verdict == verdict


def test_what_is_not_settled_neither_holds_nor_fails() -> None:
    measured = times(9.0, 1.0)
    measured.add(1, "plain", 12.0)
    measured.add(1, "autoplan", 1.0)
    assert bounds.gate("GCN", measured).verdict == "not settled"


def test_the_cases_are_the_issues() -> None:
    assert len(cases.CASES) == 2 * 11 + 3
    assert cases.selected(["gcn"], ["amazon_cs"]) == (cases.Case("GCN", "amazon_cs"),)
    assert cases.selected(["RGCN"], ["relations-0.14M"]) == (cases.Case("RGCN", "relations-0.14M"),)
    with pytest.raises(LookupError, match="there is no model 'GNC'"):
        cases.selected(["GNC"], [])
    with pytest.raises(LookupError, match="none of HGT runs on amazon_cs"):
        cases.selected(["HGT"], ["amazon_cs"])


def test_raw_seconds_of_other_cases_stay(tmp_path: Path) -> None:
    path = tmp_path / "results" / "steps.csv"
    for model, seconds in (("GCN", 1.0), ("GAT", 2.0), ("GCN", 3.0)):
        measured = times(seconds, 1.0)
        case = cases.Case(model, "amazon_cs")
        results.store(path, Outcome(case, measured, bounds.gate(model, measured), ()))
    assert path.read_text().splitlines() == [
        "model,graph,round,side,seconds",
        "GAT,amazon_cs,0,plain,2.000000",
        "GAT,amazon_cs,0,autoplan,1.000000",
        "GCN,amazon_cs,0,plain,3.000000",
        "GCN,amazon_cs,0,autoplan,1.000000",
    ]


def test_the_clock_leaves_out_what_it_waits() -> None:
    wanted = [True, True, False]
    told: list[float] = []
    clock = Clock(lambda: wanted.pop(0), told.append)
    steps = 0
    while clock.another():
        steps += 1
    assert steps == 2
    assert len(told) == 2


SIZES = graphs.Sizes(nodes=400, edges=3_000, features=12, classes=4)


def test_the_community_graph_is_repeatable_skewed_and_has_hard_cases() -> None:
    graph = graphs.community(SIZES)
    again = graphs.community(SIZES)
    assert torch.equal(graph.edge_index, again.edge_index)
    assert torch.equal(graph.x, again.x)
    assert graph.num_edges == 3_000
    big = graphs.community(graphs.Sizes(nodes=12_800, edges=150_000, features=1, classes=4))
    degrees = torch.bincount(big.edge_index[1], minlength=12_800)
    outgoing = torch.bincount(big.edge_index[0], minlength=12_800)
    assert int(((degrees == 0) & (outgoing == 0)).sum()) > 0
    assert float(degrees.max()) > 5 * float(degrees.float().mean())
    assert torch.unique(big.edge_index, dim=1).shape[1] < 150_000
    assert not torch.equal(degrees, outgoing)
    kinds = graphs.relational(SIZES, empty=3).edge_type
    assert set(kinds.tolist()) == set(range(8)) - {3}
    assert graphs.heterogeneous(SIZES, empty=True).num_edges == 2_700


def flops(name: str, graph: object) -> int:
    return sum(each.flops for each in dense.products(name, graph, hidden=16, heads=2))


def test_ceilings_count_what_no_lowering_can_leave_out() -> None:
    graph = graphs.community(SIZES)
    nodes, features, hidden, classes, edges = 400, 12, 16, 4, 3_000
    # two products in the first layer (its input is given), three in the others
    stack = 2 * nodes * (2 * features * hidden + 3 * hidden * hidden + 3 * hidden * classes)
    assert flops("GCN", graph) == flops("APPNP", graph) == stack
    assert flops("SAGE", graph) == 2 * stack
    assert flops("SGC", graph) == 2 * nodes * 2 * features * classes
    per_head = 2 * nodes * (2 * features * hidden + 3 * hidden * hidden + 3 * hidden * 2 * classes)
    assert flops("GAT", graph) == per_head
    assert flops("TransformerConv", graph) == 3 * per_head + stack
    second = 2 * hidden**2 + classes**2
    assert flops("EdgeConv", graph) == 2 * stack + 2 * (edges + 2 * nodes) * second


@pytest.mark.parametrize("name", dense.COUNTS)
def test_every_ceiling_runs(name: str) -> None:
    graph: object = graphs.community(SIZES)
    if name == "RGCN":
        graph = graphs.relational(SIZES)
    elif name == "HGT":
        graph = graphs.heterogeneous(SIZES)
    elif name == "GIN-graphs":
        parts = [graphs.community(graphs.Sizes(40, 90, 5, 3), seed=seed) for seed in range(3)]
        for place, part in enumerate(parts):
            part.y = torch.tensor([place % 2])
        graph = parts
    ceiling = dense.Ceiling(dense.products(name, graph, hidden=16, heads=2))
    ceiling.run()
    assert any(weight.grad is not None for weight in ceiling.weights)
