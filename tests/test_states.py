from __future__ import annotations

import itertools

import pytest

from autoplan.errors import PlanError
from autoplan.opgraph import Axis, IndexInto, TensorMeta
from autoplan.states import Transition, route, way

AXES = {
    "node": Axis("node", "node", "base"),
    "edge": Axis("edge", "edge", "base"),
    "select(v1)": Axis("select(v1)", "node", "select", ("node",)),
}
NODES = TensorMeta("v2", ("node", 4), "float32", "op")
EDGES = TensorMeta("v3", ("edge",), "float32", "op")


def steps(tensor, produced, needed):
    return [(s.source, s.target, s.exchange) for s in route(tensor, AXES, produced, needed)]


def test_nothing_is_exchanged_twice():
    assert steps(NODES, "O", {"H"}) == [("O", "H", "halo_exchange")]
    assert steps(NODES, "O", {"R"}) == [("O", "R", "all_gather")]
    assert steps(NODES, "O", {"H", "R"}) == [("O", "R", "all_gather"), ("R", "H", "none")]
    assert steps(NODES, "H", {"R"}) == [("H", "O", "none"), ("O", "R", "all_gather")]
    assert steps(NODES, "R", {"O", "H"})[0] == ("R", "H", "none")
    assert steps(EDGES, "O", {"O", "R"}) == [("O", "R", "all_gather")]


@pytest.mark.parametrize("produced", ["R", "O", "H"])
def test_every_need_is_reached_from_what_is_there(produced):
    for count in range(4):
        for needed in itertools.combinations("ROH", count):
            have = {produced}
            found = route(NODES, AXES, produced, needed)
            for step in found:
                assert step.source in have
                assert step.target not in have
                have.add(step.target)
            assert set(needed) <= have
            assert sum(step.exchange != "none" for step in found) <= 1


def test_partial_sums_reduce():
    scalar = TensorMeta("v4", (), "float32", "op", states=("R", "S"))
    assert steps(scalar, "S", {"R"}) == [("S", "R", "all_reduce")]


def test_unreachable_states_are_errors():
    with pytest.raises(PlanError, match=r"v5 is produced in state O and needed in R"):
        route(TensorMeta("v5", ("select(v1)",), "bool", "op"), AXES, "O", {"R"})
    positions = TensorMeta(
        "v6", (2, "edge"), "int64", "op", index=IndexInto(("node",), ("src", "dst"))
    )
    with pytest.raises(PlanError, match="v6"):
        route(positions, AXES, "R", {"O"})


def test_a_way_that_does_not_exist_is_none():
    edge = (Transition("R", "O", "none"), Transition("O", "R", "all_gather"))
    assert way(edge, "R", {"H"}) is None
    assert way((), "O", {"R"}) is None
    assert way((), "O", {"O"}) == ()
