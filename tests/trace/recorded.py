"""Small recorded steps that the tests of the rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autoplan.opgraph import IndexInto, Op, OpGraph
from autoplan.program.ir import Program
from autoplan.trace.build import build_opgraph
from autoplan.trace.core import generalise_module
from autoplan.trace.rules.registry import base_name

FEATURES, CLASSES = 12, 5
SIZES = ((84, 211), (97, 310), (113, 404), (62, 151))


@dataclass(frozen=True)
class Spec:
    name: str
    dims: tuple[str | int, ...]
    index: IndexInto | None = None


SPECS = (
    Spec("x", ("node", FEATURES)),
    Spec("edge_index", (2, "edge"), IndexInto(("node",), ("src", "dst"))),
    Spec("y", ("node",)),
    Spec("mask", ("node",)),
    Spec("train_idx", ("index:train_idx",), IndexInto(("node",), ("self",))),
)


def graph(nodes: int, edges: int) -> tuple[Tensor, ...]:
    """An asymmetric graph with self-loops; tensors in the order of `SPECS`."""
    torch.manual_seed(nodes)
    edge_index = torch.randint(0, nodes, (2, edges))
    edge_index[:, :7] = edge_index[0, :7]
    labels = torch.randint(0, CLASSES, (nodes,))
    mask = torch.rand(nodes) < 0.4
    listed = torch.randperm(nodes)[: nodes // 3]
    return torch.randn(nodes, FEATURES), edge_index, labels, mask, listed


class Step(nn.Module):
    def __init__(self, model: Any, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x: Tensor, edge_index: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model(x, edge_index)
        return self.loss(out, *rest), out


def masked_cross_entropy(out: Tensor, y: Tensor, mask: Tensor, train_idx: Tensor) -> Tensor:
    return F.cross_entropy(out[mask], y[mask])


def record(
    model: Any, loss: Callable[..., Tensor] = masked_cross_entropy, *, training: bool = True
) -> Program:
    torch.manual_seed(0)
    step = Step(model, loss).train(training)
    traced = generalise_module(step, [graph(*size) for size in SIZES])
    assert traced.program is not None, traced.reason
    return traced.program


def rows() -> list[dict[str, int]]:
    return [
        {
            "node": nodes,
            "edge": edges,
            "index:train_idx": nodes // 3,
        }
        for nodes, edges in SIZES[:-1]
    ]


def described(
    model: Any,
    loss: Callable[..., Tensor] = masked_cross_entropy,
    *,
    training: bool = True,
    **options: Any,
) -> OpGraph:
    """The OpGraph of a model that is called with (x, edge_index), and of a loss."""
    program = record(model, loss, training=training)
    return build_opgraph(program, SPECS, rows(), has_loss=True, training=training, **options)


class Convolutions(nn.Module):
    """Two layers with something between them."""

    def __init__(
        self, conv: Callable[[int, int], Any], between: Callable[..., Tensor] | None = None
    ) -> None:
        super().__init__()
        self.first = conv(FEATURES, 16)
        self.second = conv(16, CLASSES)
        self.between = between or (lambda h, edge_index: h)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index).relu()
        return self.second(self.between(h, edge_index), edge_index)


def ops(graph: OpGraph, *names: str) -> list[Op]:
    """The ops of these names (``mm``; in-place variants without their underscore)."""
    return [op for op in graph.ops if base_name(op.name) in names]


def strategies(op: Op) -> dict[str, tuple[str, str]]:
    """Name -> input and output states as strings."""
    return {s.name: ("".join(s.inputs), "".join(s.outputs)) for s in op.strategies}
