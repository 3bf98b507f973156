"""Traps: branches, loops and look-ups that follow sizes."""

from __future__ import annotations

import pytest

from tests.trace.trapping import Traps

trap = Traps()


@trap(
    "guarded",
    unseen=((131, 400), (40, 60), (20, 50), (30, 20)),
    sizes=((50, 151), (61, 190), (75, 240), (96, 300)),
)
def if_edges_above(model, x, edge_index):
    return model.conv(x, edge_index) if edge_index.size(1) > 50 else model.linear(x)


@trap(
    "guarded",
    unseen=((20, 40), (40, 60), (20, 51), (11, 22)),
    sizes=((10, 31), (13, 40), (15, 44), (18, 50)),
)
def if_edges_below(model, x, edge_index):
    return model.conv(x, edge_index) if edge_index.size(1) > 50 else model.linear(x)


@trap("guarded")
def if_length(model, x, edge_index):
    return model.conv(x, edge_index) if len(x) > 45 else model.linear(x)


@trap("not wrong")
def list_by_residue(model, x, edge_index):
    return model.conv(x, edge_index) * [1.0, 1.0, 1.0, 2.0, 5.0][x.size(0) % 5]


@trap("guarded")
def list_by_bucket(model, x, edge_index):
    return model.layers[x.size(0) // 100](model.conv(x, edge_index))


@trap("guarded")
def name_by_bucket(model, x, edge_index):
    return model.get_submodule(f"layers.{x.size(0) // 100}")(model.conv(x, edge_index))


@trap("guarded")
def range_loop(model, x, edge_index):
    t = 0
    for _ in range(x.size(0) // 100):
        t += 1
    return model.conv(x, edge_index) * (1 + t)


@trap("not wrong")
def size_keyed_cache(model, x, edge_index):
    n = x.size(0)
    c = {}
    if n not in c:
        c[n] = n * 2
    return model.conv(x, edge_index) * c[n]


@trap("guarded")
def compare_shapes(model, x, edge_index):
    return (
        model.conv(x, edge_index)
        if x.shape == (x.size(0), 8) and x.shape[0] not in (40, 41)
        else model.linear(x)
    )


@trap("guarded")
def type_is_int(model, x, edge_index):
    n = x.size(0)
    return model.linear(x) if type(n) is int and n > 100 else model.conv(x, edge_index)


@trap("guarded")
def type_eq_int(model, x, edge_index):
    n = x.shape[0]
    return model.linear(x) if type(n) == int and n > 100 else model.conv(x, edge_index)  # noqa: E721


@trap("guarded")
def rows(model, x, edge_index):
    return sum(r * i for i, r in enumerate(model.conv(x, edge_index)[: 3 + x.size(0) // 100]))


@trap("guarded")
def asserts(model, x, edge_index):
    assert x.size(0) < 200
    return model.conv(x, edge_index)


@trap("right")
def tuple_key(model, x, edge_index):
    return model.conv(x, edge_index) * {(8,): 2.0}[tuple(x.shape[1:])]


@trap("not wrong")
def named_layer(model, x, edge_index):
    odd = x.size(0) % 2
    return getattr(model, "linear" if odd else "conv")(x, *([] if odd else [edge_index]))


@trap("not wrong")
def prints(model, x, edge_index):
    str(x.shape)
    return model.conv(x, edge_index)


@trap("not wrong")
def if_size_numel(model, x, edge_index):
    return model.conv(x, edge_index) if x.shape.numel() < 1000 else model.linear(x)


@trap("guarded")
def size_in_set(model, x, edge_index):
    return model.conv(x, edge_index) * (2 if x.size(0) in (131, 40) else 1)


@trap("not wrong")
def size_in_real_set(model, x, edge_index):
    return model.conv(x, edge_index) * (2 if x.size(0) in {131, 40} else 1)


@trap("guarded")
def size_in_range(model, x, edge_index):
    return model.conv(x, edge_index) * (2 if x.size(0) in range(100, 200) else 1)


@trap("not wrong")
def walrus_loop(model, x, edge_index):
    n, k = (x.size(0), 0)
    while (n := (n // 2)) > 0:
        k += 1
    return model.conv(x, edge_index) * k


@trap("guarded")
def matched(model, x, edge_index):
    match x.size(0) // 100:
        case 0:
            return model.conv(x, edge_index)
        case int():
            return model.linear(x)


@pytest.mark.parametrize("name", trap.names)
def test_trap(name: str) -> None:
    trap.check(name)
