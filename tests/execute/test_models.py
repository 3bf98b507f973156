"""PyG models from trace to lock-step: any mixture of strategies gives one device's numbers."""

from __future__ import annotations

import copy
import functools
import random

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT, GCN, GIN, PNA, GraphSAGE

from autoplan.errors import PlanError
from autoplan.execute.difference import first_difference
from autoplan.execute.lockstep import run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.opgraph import OpGraph
from autoplan.partition.halo import build_shards
from autoplan.states import route
from autoplan.trace.build import build_opgraph
from autoplan.trace.step import trace_step
from autoplan.trace.step_module import user_name

NODES, EDGES, LABELLED = 150, 700, 40

MODELS = {
    "GCN": lambda p: GCN(6, 8, 2, 3, dropout=p),
    "GAT": lambda p: GAT(6, 8, 2, 3, heads=2, dropout=p),
    "SAGE max": lambda p: GraphSAGE(6, 8, 2, 3, aggr="max", dropout=p),
    "GIN": lambda p: GIN(6, 8, 2, 3, norm="batch_norm", dropout=p),
    "PNA": lambda p: PNA(
        6, 8, 2, 3, aggregators=["mean", "max", "std"], scalers=["identity", "amplification"],
        deg=torch.tensor([1, 2, 3, 4]), dropout=p,
    ),
    "JK": lambda p: GCN(6, 8, 2, 3, jk="cat", dropout=p),
}  # fmt: skip


def directed_graph() -> Data:
    """Asymmetric, with self-loops, duplicate edges, isolated nodes, and most edges at few nodes."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES - 8, (2, EDGES), generator=generator)
    edge_index[1, : EDGES // 3] %= 7
    edge_index[:, :15] = edge_index[:1, :15]
    edge_index[:, 15:30] = edge_index[:, 30:45]
    x = torch.randn(NODES, 6, generator=generator, dtype=torch.float64)
    graph = Data(x=x, edge_index=edge_index, y=torch.arange(NODES) % 3)
    graph.train_mask = torch.arange(NODES) < LABELLED
    return graph


GRAPH = directed_graph()
ATTRIBUTES = {name: GRAPH[name] for name in ("x", "edge_index", "y", "train_mask")}


def shards_of(parts):
    """Unequal; rank 2 has no labelled node."""
    owner = np.random.default_rng(parts).choice(
        parts, NODES, p=np.arange(1, parts + 1) / (parts * (parts + 1) / 2)
    )
    owner[:LABELLED][owner[:LABELLED] == 2] = 0
    return build_shards(owner, {"edge": GRAPH.edge_index.numpy()}, {}, parts=parts)


@functools.cache
def traced(name: str, dropout: float):
    torch.manual_seed(1)
    module = MODELS[name](dropout).double().train()
    step = trace_step(module, GRAPH)
    assert step.program is not None, step.reason
    opgraph = build_opgraph(
        step.program, step.schema.attributes, step.sample_rows, has_loss=True, training=True
    )
    return module, step.program, opgraph, step.state_tensors(module)


def prefer(opgraph: OpGraph, *names: str) -> dict[int, str]:
    chosen = {}
    for op in opgraph.ops:
        offered = [
            strategy.name
            for strategy in op.strategies
            if strategy.runs_on(False) and not strategy.lossy
        ]
        chosen[op.index] = next((name for name in names if name in offered), "R")
    return chosen


def mixture(opgraph: OpGraph, rng: random.Random) -> dict[int, str] | None:
    """A random strategy for each op among those that its inputs can reach; None when the walk ends nowhere."""
    produced, chosen = {}, {}
    for op in opgraph.ops:
        for strategy in rng.sample(op.strategies, len(op.strategies)):
            if strategy.lossy or not strategy.runs_on(False):
                continue
            try:
                for name, state in zip(op.inputs, strategy.inputs, strict=True):
                    tensor = opgraph.tensors[name]
                    if tensor.origin != "input":
                        route(tensor, opgraph.axes, produced.get(name, "R"), {state})
            except PlanError:
                continue
            chosen[op.index] = strategy.name
            produced.update(zip(op.outputs, strategy.outputs, strict=True))
            break
        else:
            return None
    return chosen


@pytest.mark.parametrize("name", MODELS)
def test_one_rank_is_eager(name):
    module, program, opgraph, state = traced(name, 0.0)
    found = run_lockstep(rank_program(program, opgraph, {}), shards_of(1), ATTRIBUTES, state, state)
    eager = copy.deepcopy(module)
    out = eager(GRAPH.x, GRAPH.edge_index)
    loss = F.cross_entropy(out[GRAPH.train_mask], GRAPH.y[GRAPH.train_mask])
    loss.backward()
    assert torch.equal(found.loss, loss.detach())
    assert torch.equal(found.outputs[0], out.detach())
    gradients = {user_name(path): gradient for path, gradient in found.gradients.items()}
    for path, parameter in eager.named_parameters():
        if parameter.grad is not None:
            assert torch.equal(gradients[path], parameter.grad), path
    buffers = dict(eager.named_buffers())
    for path, value in found.buffers.items():
        assert torch.equal(value, buffers[user_name(path)]), path


@pytest.mark.parametrize("name", MODELS)
def test_shards_give_one_devices_numbers(name):
    _, program, opgraph, state = traced(name, 0.5)
    chosen = prefer(opgraph, "O", "S")
    assert sum(strategy != "R" for strategy in chosen.values()) > 0.7 * len(chosen)
    for parts in (2, 3, 4):
        assert (
            first_difference(
                program, opgraph, chosen, shards_of(parts), ATTRIBUTES, state, state, seed=parts
            )
            is None
        )
    halo = prefer(opgraph, "H", "O", "S")
    assert first_difference(program, opgraph, halo, shards_of(3), ATTRIBUTES, state, state) is None


@pytest.mark.parametrize("name", ["GCN", "SAGE max", "GIN"])
def test_mixtures_give_one_devices_numbers(name):
    _, program, opgraph, state = traced(name, 0.5)
    rng = random.Random(3)
    mixtures = [mixture(opgraph, rng) for _ in range(60)]
    checked = [chosen for chosen in mixtures if chosen is not None][:4]
    assert checked
    for chosen in checked:
        assert (
            first_difference(program, opgraph, chosen, shards_of(3), ATTRIBUTES, state, state)
            is None
        )
