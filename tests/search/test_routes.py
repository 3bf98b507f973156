from __future__ import annotations

import math

import pytest

from autoplan.search.problem import Move, Tensor
from autoplan.search.routes import Routes, taken_moves
from autoplan.states import Transition

NODE = (
    Move(Transition("R", "O", "none"), 1.0, 0.1),
    Move(Transition("R", "H", "none"), 2.0, 0.2),
    Move(Transition("H", "O", "none"), 4.0, 0.4),
    Move(Transition("O", "H", "halo_exchange"), 8.0, 0.8),
    Move(Transition("O", "R", "all_gather"), 16.0, 1.6),
)


@pytest.mark.parametrize(
    ("produced", "reads", "expected"),
    [
        ("O", {"O": True}, []),
        ("O", {"H": True}, [(3, True)]),
        ("O", {"H": False, "R": False}, [(4, False), (1, False)]),
        ("O", {"H": True, "R": False}, [(4, True), (1, True)]),
        ("H", {"R": True}, [(2, True), (4, True)]),
        ("R", {"H": False, "O": True}, [(1, True), (2, True)]),
    ],
)
def test_moves_and_crossings(produced, reads, expected):
    assert list(taken_moves(NODE, produced, reads)) == expected


def test_no_way_is_none():
    assert taken_moves(NODE[:1], "O", {"R": False}) is None
    assert taken_moves((), "R", {"O": False}) is None


def test_costs_in_all_cases_agree_with_the_moves():
    routes = Routes(Tensor("t", NODE))
    assert routes.seconds("O", (("H", True),)) == pytest.approx(8.8)
    assert routes.seconds("O", (("H", True), ("R", False))) == pytest.approx(16 + 1.6 + 2 + 0.2)
    assert math.isinf(Routes(Tensor("t", NODE[:1])).seconds("O", (("R", False),)))


def test_reading_elsewhere_is_bounded_in_the_worst_case():
    routes = Routes(Tensor("t", NODE))
    # made in O: H instead of O costs the exchange; made in H, O instead of H costs the view
    assert routes.read_elsewhere((("O", False),), (("H", False),)) >= 8.0
    assert routes.read_elsewhere((("O", False),), (("O", False),)) == 0.0


def test_what_is_loaded_costs_nothing_in_any_of_its_states():
    routes = Routes(Tensor("x", (), ("R", "O", "H")))
    assert routes.read_elsewhere((("O", True),), (("H", True),)) == 0.0
    assert math.isinf(
        Routes(Tensor("w", (), ("R",))).read_elsewhere((("R", True),), (("O", True),))
    )
