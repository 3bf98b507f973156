"""Layers that loop over types: recorded as one operator whose rows are told apart, equal to the layer itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroLinear

from autoplan.trace.build import build_opgraph
from autoplan.trace.core import generalise_module
from tests.trace.recorded import Spec, strategies

SIZES = (21, 34, 47, 28)
SPECS = (Spec("x", ("node", 5)), Spec("node_type", ("node",)))


class Typed(nn.Module):
    def __init__(self, *, bias: bool, is_sorted: bool) -> None:
        super().__init__()
        self.linear = HeteroLinear(5, 3, 4, is_sorted=is_sorted, bias=bias)

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        return self.linear(x, kind).square().mean()


def sample(rows: int, *, is_sorted: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    kind = torch.randint(0, 4, (rows,), generator=generator)
    return torch.randn(rows, 5, generator=generator), kind.sort().values if is_sorted else kind


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_one_operator_of_rows(bias: bool, is_sorted: bool) -> None:
    torch.manual_seed(0)
    module = Typed(bias=bias, is_sorted=is_sorted)
    original = HeteroLinear.forward
    traced = generalise_module(module, [sample(n, is_sorted=is_sorted) for n in SIZES])
    assert HeteroLinear.forward is original
    # compared with the layer itself, gradients included, on the last sample
    assert traced.program is not None, traced.reason
    rows = [{"node": n} for n in SIZES[:-1]]
    graph = build_opgraph(traced.program, SPECS, rows, has_loss=True, training=True)
    (typed,) = [op for op in graph.ops if op.name.startswith("autoplan.typed_matmul")]
    assert typed.rule == "matmul"
    assert {"R", "O", "H"} <= strategies(typed).keys()
    assert not graph.unknown_ops
