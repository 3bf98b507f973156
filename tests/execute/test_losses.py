"""Losses of every kind: one device's rank program is eager, shards are one device, gradients included.

`SHARDED` names those that run on shards from the first to the last heavy op; the others say why.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from autoplan.execute.difference import first_difference
from autoplan.execute.lockstep import run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.opgraph import OpGraph, State
from autoplan.partition.halo import build_shards
from autoplan.states import transitions, way
from autoplan.trace.build import build_opgraph
from autoplan.trace.step import trace_step
from autoplan.trace.step_module import user_name
from autoplan.trace.validation import validate

NODES, CLASSES = 90, 4
HEAVY = ("dense", "gather", "scatter", "spmm")


class Net(nn.Module):
    """Two convolutions; ``shape`` makes the output of the hidden rows and the scores."""

    def __init__(self, shape: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second = GCNConv(5, 6), GCNConv(6, CLASSES)
        self.shape = shape

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        hidden = self.first(x, edge_index).tanh()
        return self.shape(hidden, self.second(hidden, edge_index))


class Named(NamedTuple):
    hidden: Tensor
    scores: Tensor


def scores(hidden: Tensor, out: Tensor) -> Tensor:
    return out


def graph() -> Data:
    generator = torch.Generator().manual_seed(4)
    pairs = torch.randint(0, NODES, (2, 40), generator=generator)
    return Data(
        x=torch.randn(NODES, 5, generator=generator, dtype=torch.float64),
        edge_index=torch.randint(0, NODES - 3, (2, 400), generator=generator),
        y=torch.randint(0, CLASSES, (NODES,), generator=generator),
        train_mask=torch.arange(NODES) % 3 == 0,
        target=torch.randn(NODES, CLASSES, generator=generator, dtype=torch.float64),
        multi=torch.randint(0, 2, (NODES, CLASSES), generator=generator).double(),
        edge_label_index=pairs,
        edge_label=torch.randint(0, 2, (40,), generator=generator).double(),
        edge_weight=torch.rand(400, generator=generator, dtype=torch.float64),
    )


def masked(out: Tensor, g: Data) -> tuple[Tensor, Tensor]:
    return out[g.train_mask], g.y[g.train_mask]


WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.7], dtype=torch.float64)


def ignoring(out: Tensor, g: Data) -> Tensor:
    labels = torch.where(g.train_mask, g.y, torch.full_like(g.y, -100))
    return F.cross_entropy(out, labels)


def links(out: Tensor, g: Data) -> Tensor:
    source, target = g.edge_label_index
    return F.binary_cross_entropy_with_logits((out[source] * out[target]).sum(-1), g.edge_label)


LOSSES: dict[str, tuple[Callable[..., Any], Callable[..., Tensor]]] = {
    "cross-entropy": (scores, lambda o, g: F.cross_entropy(*masked(o, g))),
    "class weights": (scores, lambda o, g: F.cross_entropy(*masked(o, g), weight=WEIGHTS)),
    "ignore_index": (scores, ignoring),
    "label smoothing": (scores, lambda o, g: F.cross_entropy(*masked(o, g), label_smoothing=0.1)),
    "smoothing and weights": (
        scores,
        lambda o, g: F.cross_entropy(*masked(o, g), weight=WEIGHTS, label_smoothing=0.1),
    ),
    "sum": (scores, lambda o, g: F.cross_entropy(*masked(o, g), reduction="sum")),
    "probabilities": (scores, lambda o, g: F.cross_entropy(o, g.target.softmax(-1))),
    "nll": (scores, lambda o, g: F.nll_loss(o.log_softmax(-1)[g.train_mask], masked(o, g)[1])),
    "bce": (scores, lambda o, g: F.binary_cross_entropy(o.sigmoid(), g.multi)),
    "bce with logits": (scores, lambda o, g: F.binary_cross_entropy_with_logits(o, g.multi)),
    "pos_weight": (
        scores,
        lambda o, g: F.binary_cross_entropy_with_logits(o, g.multi, pos_weight=WEIGHTS),
    ),
    "mse": (scores, lambda o, g: F.mse_loss(o, g.target)),
    "l1": (scores, lambda o, g: F.l1_loss(o[g.train_mask], g.target[g.train_mask])),
    "huber": (scores, lambda o, g: F.huber_loss(o, g.target, delta=0.5)),
    "smooth l1": (scores, lambda o, g: F.smooth_l1_loss(o, g.target)),
    "kl": (scores, lambda o, g: F.kl_div(o.log_softmax(-1), g.target.softmax(-1), reduction="batchmean")),
    "links": (scores, links),
    "tuple": (lambda h, o: (h, o), lambda o, g: F.cross_entropy(*masked(o[1], g)) + o[0].pow(2).mean()),
    "dict": (
        lambda h, o: {"hidden": h, "scores": o},
        lambda o, g: F.cross_entropy(*masked(o["scores"], g)),
    ),
    "named tuple": (Named, lambda o, g: F.cross_entropy(*masked(o.scores, g)) + o.hidden.abs().mean()),
    "auxiliary": (
        lambda h, o: (o, h.pow(2).sum(-1).mean()),
        lambda o, g: F.cross_entropy(*masked(o[0], g)) + 0.1 * o[1],
    ),
}  # fmt: skip


@dataclass
class Traced:
    module: Net
    program: Any
    opgraph: OpGraph
    state: dict[str, Tensor]
    attributes: dict[str, Tensor]
    data: Data


def traced(
    shape: Callable[..., Any], loss: Callable[..., Tensor], module: Net | None = None
) -> Traced:
    torch.manual_seed(2)
    module = module or Net(shape).double()
    data = graph()
    step = trace_step(module, data, loss)
    assert step.program is not None, step.reason
    opgraph = build_opgraph(
        step.program, step.schema.attributes, step.sample_rows, has_loss=True, training=True
    )
    attributes = dict(zip(step.schema.names, step.schema.tensors(data), strict=True))
    return Traced(module, step.program, opgraph, step.state_tensors(module), attributes, data)


def chosen_of(opgraph: OpGraph) -> dict[int, str]:
    """For each op its first strategy beyond R that its inputs can reach."""
    produced: dict[str, State] = {}
    chosen: dict[int, str] = {}
    for op in opgraph.ops:
        ranked = sorted(op.strategies, key=lambda s: (s.name == "R", s.name != "O"))
        for strategy in ranked:
            if not strategy.runs_on(False) or strategy.lossy:
                continue
            if all(
                _reached(opgraph, name, state, produced)
                for name, state in zip(op.inputs, strategy.inputs, strict=True)
            ):
                chosen[op.index] = strategy.name
                produced.update(zip(op.outputs, strategy.outputs, strict=True))
                break
    return chosen


def _reached(opgraph: OpGraph, name: str, state: State, produced: dict[str, State]) -> bool:
    tensor = opgraph.tensors[name]
    if tensor.origin == "input":
        return state in tensor.states
    return way(transitions(tensor, opgraph.axes), produced.get(name, "R"), {state}) is not None


def check(t: Traced, loss: Callable[..., Tensor], *, sharded: bool = True) -> None:
    """One device against eager, shards against one device."""
    relations = {
        "edge": t.attributes["edge_index"].numpy(),
        "edge:edge_label_index": t.attributes["edge_label_index"].numpy(),
    }

    def shards(parts: int):
        owner = (torch.arange(NODES) * 7 % 11 % parts).numpy()
        return build_shards(owner, relations, {}, parts=parts)

    eager = copy.deepcopy(t.module)
    value = loss(eager(t.data.x, t.data.edge_index), t.data, eager)
    value.backward()
    found = run_lockstep(
        rank_program(t.program, t.opgraph, {}), shards(1), t.attributes, t.state, t.state
    )
    torch.testing.assert_close(found.loss, value.detach())
    assert found.gradients
    for path, gradient in found.gradients.items():
        torch.testing.assert_close(gradient, eager.get_parameter(user_name(path)).grad)
    chosen = chosen_of(t.opgraph)
    if sharded:
        heavy = [op for op in t.opgraph.ops if op.forward.kind in HEAVY]
        assert heavy
        assert not [op.name for op in heavy if chosen[op.index] == "R"]
    for parts in (2, 3):
        difference = first_difference(
            t.program, t.opgraph, chosen, shards(parts), t.attributes, t.state, t.state
        )
        assert difference is None, difference


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str) -> None:
    shape, loss = LOSSES[name]
    check(traced(shape, loss), lambda out, g, _: loss(out, g))


def test_a_regulariser_reads_the_weights() -> None:
    torch.manual_seed(2)
    module = Net(scores).double()

    def penalised(out: Tensor, g: Data, model: nn.Module) -> Tensor:
        penalty = sum((p.pow(2).sum() for p in model.parameters()), torch.zeros(()))
        return F.cross_entropy(*masked(out, g)) + 1e-2 * penalty

    check(traced(scores, lambda out, g: penalised(out, g, module), module), penalised)


def test_metrics_are_traced_as_losses_are() -> None:
    data = graph()
    metrics = {name: loss for name, (shape, loss) in LOSSES.items() if shape is scores}
    torch.manual_seed(2)
    module = Net(scores).double().eval()
    step = trace_step(module, data, training=False, metrics=metrics)
    assert step.program is not None, step.reason
    out = module(data.x, data.edge_index)
    values = validate(step.program, step.module, step.schema.tensors(data))
    assert max(values.values()) < 1e-9
    assert step.metrics == tuple(metrics)
    assert torch.isfinite(torch.stack([metric(out, data) for metric in metrics.values()])).all()
