"""Every layer and model of PyG that runs here: traced, general, known op by op, and equal to one device on shards.

Tracing leaves every model, its gradients and the graph as they were (with filled caches: `tests/trace/test_no_marks.py`).

Prints a table: class, general or concrete, ops, ops that no rule covers, heavy ops (matrix products, gathers, scatters, sparse
products), those of them that every rank runs whole, and the states that the tensors may lie in.
"""

from __future__ import annotations

import pytest

from tests.layers.registry import CASES
from tests.layers.traced import subject

IN_TURN = {name: 2 + number % 2 for number, name in enumerate(CASES)}
"""The suite takes each on two ranks or on three, in turn; `make accept` on both."""


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        *((name, parts) for name, parts in IN_TURN.items()),
        *(pytest.param(name, 5 - n, marks=pytest.mark.accept) for name, n in IN_TURN.items()),
    ],
)
def test_shards_give_one_devices_numbers(name: str, parts: int, record_property) -> None:
    case = CASES[name]
    found = subject(case)
    closed = case.batch
    whole = [] if found.reason else found.whole(closed)
    if parts == IN_TURN[name]:
        record_property("table", found.line(name, len(whole)))

    assert not found.changes
    assert not found.opgraph.unknown_ops
    assert bool(found.reason) == bool(case.follows), found.reason
    if found.reason:
        return
    assert found.difference(parts) is None
    assert not closed or found.difference(parts, closed=True) is None
    assert found.opgraph.single_only is None
    # softmax over edges is made of gathers, scatters and elementwise ops
    assert bool(whole) == bool(case.partly), [f"{op.name} at {op.where}" for op in whole]
