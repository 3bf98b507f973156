from __future__ import annotations

import pytest
import torch

from autoplan.errors import ExecutionError
from autoplan.execute.message import Message
from autoplan.opgraph import Axis, Polynomial, TensorMeta
from autoplan.program.context import RankContext
from autoplan.stages import Crossing

AXES = {
    "node": Axis("node", "node", "base", (), Polynomial.of(1, "node")),
    "edge": Axis("edge", "edge", "base", (), Polynomial.of(1, "edge")),
    "select(v1)": Axis("select(v1)", "edge", "select", ("edge",)),
    "concat(select(v1),node)": Axis("c", "edge", "concat", ("select(v1)", "node")),
    "node*2": Axis("node*2", "node", "blocks", ("node",), width=2),
}
CONTEXT = RankContext.whole({"node": 5, "edge": 9})


def message(tensors: dict[str, TensorMeta], gradients: bool = False) -> Message:
    crossings = [Crossing(n, "R", 0, 1, t.dtype.startswith("float")) for n, t in tensors.items()]
    return Message.of(crossings, tensors, AXES, gradients=gradients)


def meta(name: str, dtype: str, *dims: str | int) -> TensorMeta:
    return TensorMeta(name, dims, dtype, "op")


def test_every_dtype_travels_bit_for_bit_without_padding():
    tensors = {
        "v1": meta("v1", "bool", "node"),
        "v2": meta("v2", "int64", 2, "node"),
        "v3": meta("v3", "bfloat16", "node", 3),
        "v4": meta("v4", "complex128"),
        "v5": meta("v5", "float32", "node*2"),
        "v6": meta("v6", "float64", "edge", 0),
    }
    values = {
        "v1": torch.tensor([True, False, True, True, False]),
        "v2": torch.tensor([[2**53 + 1, -1, 0, 2**62, 65505]] * 2),
        "v3": torch.randn(3, 5).to(torch.bfloat16).t(),
        "v4": torch.tensor(1 + 2j, dtype=torch.complex128).conj(),
        "v5": torch.tensor([float("nan"), -0.0] * 5).expand(10),
        "v6": torch.empty(9, 0, dtype=torch.float64),
    }
    sent = message(tensors)
    given = {(name, "R"): value for name, value in values.items()}
    shapes = sent.shapes(CONTEXT, [])
    buffer = sent.pack(given, shapes)
    assert not sent.header
    assert buffer.numel() == sent.bytes(shapes) == 5 + 2 * 5 * 8 + 15 * 2 + 16 + 10 * 4
    for key, value in sent.unpack(buffer, shapes).items():
        expected = given[key].resolve_conj().contiguous()
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        mine, theirs = value.reshape(-1), expected.reshape(-1)
        assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))


def test_sizes_that_depend_on_data_go_ahead_once():
    tensors = {
        "v2": meta("v2", "float32", "select(v1)", 2),
        "v3": meta("v3", "int64", 2, "concat(select(v1),node)"),
        "v4": meta("v4", "float32", "select(v1)"),
    }
    sent = message(tensors)
    assert set(sent.header) == {"select(v1)", "concat(select(v1),node)"}
    given = {
        ("v2", "R"): torch.ones(4, 2),
        ("v3", "R"): torch.ones(2, 9, dtype=torch.int64),
        ("v4", "R"): torch.ones(4),
    }
    sizes = sent.sizes(given).tolist()
    shapes = sent.shapes(CONTEXT, sizes)
    assert shapes == ((2, 9), (4, 2), (4,))
    back = message(tensors, gradients=True)
    assert not back.header
    assert [name for name, _ in back.keys] == ["v2", "v4"]


def test_another_shape_than_expected_is_refused():
    tensors = {"v2": meta("v2", "float32", "node")}
    sent = message(tensors)
    with pytest.raises(
        ExecutionError, match=r"tensor v2 is torch.float32 .* \(4,\).* expects .*\(5,\)"
    ):
        sent.pack({("v2", "R"): torch.ones(4)}, sent.shapes(CONTEXT, []))
