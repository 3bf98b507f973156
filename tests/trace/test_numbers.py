"""Tracked numbers: ints and floats to everyone, formulas and guards to their log."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from autoplan.trace.numbers import formula, is_tracked, plain, track
from autoplan.trace.shadows import BUILTINS, patched, stand_ins


class Log:
    def __init__(self) -> None:
        self.guards: list[tuple[str, Any]] = []
        self.wanted: list[dict[str, Any]] = []

    def guard(self, text: str, value: Any) -> None:
        self.guards.append((text, value))

    def wants_shadow(self, module_globals: dict[str, Any]) -> None:
        self.wanted.append(module_globals)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize(
    "compute",
    [
        lambda n, m: n // 2 + 1,
        lambda n, m: 3 - n % 4,
        lambda n, m: n * m / 7,
        lambda n, m: 2**n,
        lambda n, m: -n // 16,
        lambda n, m: (n >> 2) & 3 | m ^ 1,
        lambda n, m: round(n * 0.37, 1),
        lambda n, m: divmod(n, 8)[1],
        lambda n, m: math.ceil(n / m),
        lambda n, m: abs(m - n),
        lambda n, m: ~n,
    ],
)
def test_arithmetic_builds_a_formula_that_gives_the_value(log: Log, compute: Any) -> None:
    names = {"s0_0": 11, "s1_0": 5, "math": math}
    number = compute(track(log, "s0_0", 11), track(log, "s1_0", 5))
    assert is_tracked(number)
    assert number.value == compute(11, 5)
    assert eval(number.text, names) == number.value
    assert log.guards == []


def test_a_comparison_is_a_guard_on_its_outcome(log: Log) -> None:
    n = track(log, "s0_0", 11)
    assert n > 10
    assert n != 12
    assert [guard for guard in log.guards if guard[0].startswith("(")] == [
        ("(s0_0 > 10)", True),
        ("(s0_0 != 12)", True),
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda n: list(range(20))[n],
        lambda n: len(range(n)),
        lambda n: {n: 1},
        lambda n: f"{n}",
        lambda n: str(n),
        lambda n: [0] * n,
        lambda n: n.bit_length(),
    ],
)
def test_any_other_use_is_a_guard_on_the_value(log: Log, use: Any) -> None:
    use(track(log, "s0_0", 11))
    assert ("s0_0", 11) in log.guards


def test_it_passes_for_an_int(log: Log) -> None:
    n = track(log, "s0_0", 11)
    assert isinstance(n, int)
    assert not isinstance(n, float)
    assert copy.deepcopy(n) is n
    assert plain(n) == 11
    assert type(plain(n)) is int


def test_a_bool_is_a_decision(log: Log) -> None:
    assert track(log, "i3_0", True) is True
    assert log.guards == [("i3_0", True)]


def test_negative_numbers_keep_their_sign_in_formulas(log: Log) -> None:
    assert formula(-2) == "(-2)"
    assert (track(log, "s0_0", 3) ** -2).text == "(s0_0 ** (-2))"
    assert formula(2.5) == "2.5"


def test_a_plain_value_asks_for_shadows_where_it_was_taken(log: Log) -> None:
    int(track(log, "s0_0", 11))
    assert log.wanted == [globals()]


def test_shadowed_builtins_keep_numbers_tracked(log: Log) -> None:
    n = track(log, "s0_0", 11)
    namespace = {"n": n, "sqrt": math.sqrt, "x": torch.ones(3), "math": math}
    with patched(stand_ins([namespace])):
        assert eval("int(n * 0.3)", namespace).text == "int((s0_0 * 0.3))"
        assert eval("sqrt(n)", namespace).text == "math.sqrt(s0_0)"
        assert eval("math.log(n)", namespace).text == "math.log(s0_0)"
        assert eval("type(n) is int", namespace) is True
        assert eval("type(n) == int", namespace) is True
        assert eval("isinstance(3, int)", namespace) is True
        assert eval("int('12')", namespace) == 12
        assert eval("len([1, 2])", namespace) == 2
    assert namespace["sqrt"] is math.sqrt
    assert not set(BUILTINS) & set(namespace)
    assert type(math.sqrt(4)) is float
