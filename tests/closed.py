"""Batches of graphs, models of whole graphs, and programs that own everything on closed partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data

from autoplan.execute.difference import Difference, first_difference
from autoplan.opgraph import OpGraph, State
from autoplan.partition.closed import ClosedOwner
from autoplan.planner.check import state_of
from autoplan.planner.measured import MeasuredGraph, shards_of
from autoplan.planner.workload import StepRequest, Workload, cast, make_workload
from autoplan.states import transitions

FEATURES, WIDTH, CLASSES = 6, 16, 3
SIZES = (50, 4, 5, 11, 8)


def small_graph(nodes: int, seed: int) -> Data:
    """Directed and asymmetric, its last node isolated; ``y`` is a class, ``targets`` two binary labels, ``value`` a number."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes - 1, (2, 3 * nodes), generator=generator)
    return Data(
        x=torch.randn(nodes, FEATURES, generator=generator),
        edge_index=edges,
        y=torch.randint(0, CLASSES, (1,), generator=generator),
        targets=torch.randint(0, 2, (1, 2), generator=generator).float(),
        value=torch.randn(1, generator=generator),
    )


def batch_of(sizes: Sequence[int] = SIZES) -> Batch:
    """Graphs of these numbers of nodes."""
    return Batch.from_data_list([small_graph(nodes, seed) for seed, nodes in enumerate(sizes)])


def perceptron(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inside, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outside))


class Classifier(nn.Module):
    """Two convolutions, something between them that may look at ``batch``, a readout and a linear layer."""

    def __init__(
        self,
        conv: Callable[[int, int], nn.Module],
        pool: Callable[..., Tensor],
        between: nn.Module | None = None,
        readout_norm: bool = False,
        outputs: int = CLASSES,
    ) -> None:
        super().__init__()
        self.first = conv(FEATURES, WIDTH)
        self.between = between
        self.second = conv(WIDTH, WIDTH)
        self.pool = pool
        self.norm = nn.BatchNorm1d(WIDTH) if readout_norm else None
        self.last = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.first(x, edge_index).relu()
        if isinstance(self.between, gnn.BatchNorm):
            h = self.between(h)
        elif self.between is not None:
            h = self.between(h, batch)
        pooled = self.pool(self.second(h, edge_index).relu(), batch)
        if self.norm is not None:
            pooled = self.norm(pooled)
        return self.last(F.dropout(pooled, 0.3, self.training))


class VirtualNode(nn.Module):
    """A node joined to all nodes of its graph: its state is read by every one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.update = nn.Linear(WIDTH, WIDTH)

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        state = self.update(gnn.global_add_pool(h, batch)).relu()
        return h + state[batch]


def gin(inside: int, outside: int) -> nn.Module:
    return gnn.GINConv(perceptron(inside, outside))


def gat(inside: int, outside: int) -> nn.Module:
    return gnn.GATConv(inside, outside // 4, heads=4)


def traced(
    model: nn.Module,
    batch: Batch,
    loss: Callable[..., Tensor] | None = None,
    *,
    training: bool = True,
) -> Workload:
    """The step in float64."""
    request = StepRequest(loss, training)
    return make_workload(model, batch, request, dtype=torch.float64)


def owned_choices(graph: OpGraph, *, closed: bool = True) -> dict[int, str]:
    """Everything in O that can be, partial sums where that is all there is; labels and what has no other way are whole."""
    whole = label_ops(graph)
    makers = {name: op.index for op in graph.ops for name in op.outputs}
    while True:
        choices, missing = _greedy(graph, closed, whole)
        if not missing:
            return choices
        # an op that has but R reads what cannot be brought there: it is made there
        whole |= {makers[name] for name in missing}


def label_ops(graph: OpGraph) -> set[int]:
    """Ops that read nothing but attributes with a row per graph, and what is made of them."""
    labels = {
        n for n, t in graph.tensors.items() if t.origin == "input" and t.dims[:1] == ("graph",)
    }
    found = set()
    for op in graph.ops:
        if op.inputs and labels.issuperset(op.inputs):
            labels.update(op.outputs)
            found.add(op.index)
    return found


def _greedy(
    graph: OpGraph, closed: bool, whole: set[int]
) -> tuple[dict[int, str], tuple[str, ...]]:
    """Choices in program order, and the tensors that an op lacks."""
    order = {"counted": 0, "O": 1, "S": 2, "H": 4, "R": 5}
    present = {name: set(t.states) for name, t in graph.tensors.items() if t.origin != "op"}
    choices: dict[int, str] = {}
    for op in graph.ops:
        offered = [s for s in op.strategies if s.runs_on(closed) and not s.lossy]
        if op.index in whole:
            offered = [s for s in offered if s.name == "R"]
        usable = [
            strategy
            for strategy in offered
            if all(
                state in present[name]
                for name, state in zip(op.inputs, strategy.inputs, strict=True)
            )
        ]
        if not usable:
            return choices, tuple(name for name in op.inputs if "R" not in present[name])
        chosen = min(usable, key=lambda strategy: order.get(strategy.name, 3))
        choices[op.index] = chosen.name
        for name, made in zip(op.outputs, chosen.outputs, strict=True):
            present[name] = _reached(graph, name, made)
    return choices, ()


def _reached(graph: OpGraph, name: str, made: State) -> set[State]:
    steps = transitions(graph.tensors[name], graph.axes)
    found = {made}
    while more := {step.target for step in steps if step.source in found} - found:
        found |= more
    return found


def difference_on(
    workload: Workload,
    choices: dict[int, str],
    batch: Batch,
    parts: int,
    *,
    empty: bool = False,
) -> Difference | None:
    """Where the step on a closed partition of a batch differs from one rank's; ``empty``: with a part that owns nothing."""
    schema = workload.traced.schema
    tensors = {name: cast(batch[name], torch.float64) for name in schema.names}
    owner = packed(workload, batch, parts - empty)
    if empty:
        graphs = None if owner.graphs is None else owner.graphs + 1
        nodes = {axis: part + 1 for axis, part in owner.nodes.items()}
        owner = ClosedOwner(nodes, graphs, parts)
    program = workload.traced.program
    shards = shards_of(owner, schema, tensors, parts)
    return first_difference(
        program, workload.opgraph, choices, shards, tensors, *state_of(workload)
    )


def packed(workload: Workload, batch: Batch, parts: int) -> ClosedOwner:
    """The batch packed into parts."""
    double = batch.clone()
    for name in workload.traced.schema.names:
        double[name] = cast(batch[name], torch.float64)
    measured = MeasuredGraph.of(double, workload.traced.schema, (), closed_parts=(parts,))
    return measured.closed_owners[parts]
