"""What depends on the graph alone is marked, and nothing else; ops get the phase of a layer that they belong to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv, SAGEConv, SGConv
from torch_geometric.utils import degree, dropout_edge

from autoplan.analysis import analyse
from autoplan.opgraph import Op, OpGraph
from autoplan.trace.rules.registry import base_name
from tests.trace.layers import Sign, described, edges, perceptron, sizes

NODES, EDGES, WIDTH = 90, 400, 8


def graph() -> Data:
    torch.manual_seed(2)
    return Data(
        x=torch.randn(NODES, WIDTH),
        edge_index=edges(NODES, EDGES),
        y=torch.randn(NODES, WIDTH),
        train_mask=torch.rand(NODES) < 0.5,
    )


def error(out: Tensor, data: Data) -> Tensor:
    return (out[data.train_mask] - data.y[data.train_mask]).square().mean()


def traced(model: nn.Module, *, training: bool = True) -> OpGraph:
    return described(model, graph(), error, training=training)


def named(program: OpGraph, *names: str) -> list[Op]:
    return [op for op in program.ops if base_name(op.name) in names]


def in_code(program: OpGraph, function: str) -> list[Op]:
    return [op for op in program.ops if op.where.endswith(f"in {function}")]


class Two(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_normalisation_and_self_loops():
    program = traced(Two(GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, WIDTH)))
    for function in ("gcn_norm", "add_remaining_self_loops"):
        assert in_code(program, function)
        assert all(op.hoistable for op in in_code(program, function))
    # products have weights, messages of transformed features have them behind them
    assert not any(op.hoistable for op in named(program, "mm", "index_select"))
    figures = analyse(program, sizes({"node": NODES, "edge": EDGES}))
    assert 0 < figures.total.once.work < figures.total.forward.work
    assert figures.total.once.work + figures.total.loop.work == figures.total.forward.work


@pytest.mark.parametrize(
    ("model", "hops"), [(lambda: SGConv(WIDTH, WIDTH, K=2), 2), (lambda: Sign(WIDTH), 3)]
)
def test_propagation_of_features(model, hops):
    program = traced(model())
    gathers = named(program, "index_select")
    assert len(gathers) == hops
    assert all(op.hoistable for op in gathers)
    assert not any(op.hoistable for op in named(program, "mm", "addmm"))
    # what is kept: the features of the last hop (SGC) or of each one (SIGN)
    figures = analyse(program, sizes({"node": NODES, "edge": EDGES}))
    kept = [each for each in figures.hoisted if each.bytes == NODES * WIDTH * 4]
    assert len(kept) == (1 if hops == 2 else 3)


def test_first_aggregation_only():
    program = traced(Two(GINConv(perceptron(WIDTH, WIDTH)), SAGEConv(WIDTH, WIDTH, project=False)))
    first, second = named(program, "index_select")
    assert first.hoistable
    assert not second.hoistable


def test_propagation_behind_weights_stays():
    class Predict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.hops = nn.Linear(WIDTH, WIDTH), APPNP(2, 0.1)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.hops(self.lin(x), edge_index)

    program = traced(Predict())
    assert not any(op.hoistable for op in named(program, "index_select"))


def test_attention_stays_and_its_self_loops_do_not():
    program = traced(Two(GATConv(WIDTH, WIDTH), GATConv(WIDTH, WIDTH)))
    assert all(op.hoistable for op in in_code(program, "remove_self_loops"))
    assert not any(op.hoistable for op in in_code(program, "softmax") if op.differentiates)


def test_random_draws_stay():
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SAGEConv(WIDTH, WIDTH)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            kept, _ = dropout_edge(edge_index, p=0.3, training=self.training)
            return self.conv(x, kept)

    program = traced(Dropped())
    assert not any(op.hoistable for op in named(program, "index_select", "scatter_add"))
    # in evaluation nothing is drawn
    evaluated = traced(Dropped(), training=False)
    assert all(op.hoistable for op in named(evaluated, "index_select"))


class Buffered(nn.Module):
    """Features scaled by a buffer, which training moves (``moving``) or leaves alone."""

    def __init__(self, moving: bool) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(WIDTH))
        self.lin, self.moving = nn.Linear(WIDTH, WIDTH), moving

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.moving and self.training:
            self.scale.mul_(0.9)
        return self.lin(x * self.scale)


@pytest.mark.parametrize(
    ("moving", "training", "expected"),
    [(False, True, True), (True, True, False), (False, False, False)],
)
def test_buffers_that_change(moving: bool, training: bool, expected: bool):
    program = traced(Buffered(moving), training=training)
    products = [op for op in program.ops if op.module == "model" and op.name == "aten.mul.Tensor"]
    assert [op.hoistable for op in products] == [expected]


def test_memory_that_the_loop_writes_stays():
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            degrees = degree(edge_index[1], x.size(0))
            out = torch.zeros_like(x) + degrees.unsqueeze(-1)
            left, right = out[:, : WIDTH // 2], out[:, WIDTH // 2 :]
            left.add_(self.lin(x)[:, : WIDTH // 2])
            return out * right.sum()

    program = traced(Filled())
    assert all(op.hoistable for op in in_code(program, "degree"))
    # what shares memory with what is written from weights: the sum that made it, and views of it
    shared = [op for op in named(program, "add", "slice") if op.module == "model"]
    assert len(shared) > 3
    assert not any(op.hoistable for op in shared)


def test_what_forces_are_derived_from_stays():
    class Forces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, WIDTH)

        def forward(self, pos: Tensor, edge_index: Tensor) -> Tensor:
            pos.requires_grad_()
            degrees = degree(edge_index[0], pos.size(0))
            lengths = (pos[edge_index[0]] - pos[edge_index[1]]).square()
            energy = self.lin(lengths).square().sum()
            (forces,) = torch.autograd.grad(energy, [pos], create_graph=True)
            return forces * degrees.unsqueeze(-1)

    data = Data(pos=torch.randn(NODES, 3), edge_index=edges(NODES, EDGES))
    program = described(Forces(), data, lambda out, given: out.square().mean())
    assert all(op.hoistable for op in in_code(program, "degree"))
    assert len(named(program, "index")) == 2
    assert not any(op.hoistable for op in named(program, "index", "sub"))


def test_guards_stay():
    class Decides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            if (edge_index[0] == edge_index[1]).all():
                x = x + 1
            return self.lin(x)

    program = traced(Decides())
    guards = [op for op in program.ops if op.name == "guard"]
    assert guards
    assert not any(op.hoistable for op in guards)
    assert named(program, "all")[0].hoistable


def test_phases_of_a_layer():
    program = traced(Two(GATConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH)))

    def phases(*names: str) -> set[str]:
        return {op.phase for op in named(program, *names) if op.differentiates}

    assert phases("mm", "addmm", "relu") == {"update"}
    assert phases("index_select") == {"gather"}
    assert phases("scatter_add") == {"aggregate"}
    assert phases("leaky_relu", "exp") == {"message"}
    losses = [op for op in program.ops if not op.module]
    assert {op.phase for op in losses} == {"other"}
    figures = analyse(program, sizes({"node": NODES, "edge": EDGES}))
    assert {group.name for group in figures.phases} == {
        "update",
        "gather",
        "message",
        "aggregate",
        "other",
    }
    assert sum(group.forward.work for group in figures.phases) == pytest.approx(
        figures.total.forward.work
    )
