"""A layer's step traced, and compared on shards with one device (torch)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from autoplan.execute.difference import TOLERANCE, Difference, first_difference
from autoplan.execute.loop import default_dtype
from autoplan.opgraph import GRAPH, Op, OpGraph, OpStrategy, State
from autoplan.partition.halo import Shard, build_shards
from autoplan.states import transitions
from autoplan.trace.build import build_opgraph
from autoplan.trace.step import TracedStep, trace_step
from tests.trace.marks import Marks

from .case import Case, Step, batch_of_graphs, directed_graph, mean_of_squares

ORDER = {"O": 1, "S": 2, "H": 3, "R": 4}
"""Which strategy is taken of those that are offered; a rule's own comes first."""
HEAVY = frozenset({"dense", "gather", "scatter", "spmm"})


@dataclass(frozen=True, eq=False)
class Subject:
    """A case's step on its graph, in float64; what tracing changed of the user's model, graph and process."""

    step: TracedStep
    opgraph: OpGraph
    graph: Data
    state: dict[str, Tensor]
    dtype: torch.dtype
    changes: list[str]

    @property
    def reason(self) -> str | None:
        """Why there is no general program."""
        return self.step.reason

    def choices(self, closed: bool = False) -> dict[int, str]:
        """Everything in O that can be, partial sums where that is all there is."""
        return choose(self.opgraph, closed)

    def heavy(self) -> list[Op]:
        """Matrix products, gathers, scatters, sparse products and softmax over edges that read rows."""
        tensors = self.opgraph.tensors
        return [
            op
            for op in self.opgraph.ops
            if op.forward.kind in HEAVY
            and any(
                isinstance(dim, str) and dim != GRAPH
                for name in op.inputs
                for dim in tensors[name].dims
            )
        ]

    def whole(self, closed: bool = False) -> list[Op]:
        """The heavy ops that every rank runs on all rows."""
        choices = self.choices(closed)
        return [op for op in self.heavy() if choices[op.index] == "R"]

    def line(self, name: str, whole: int) -> str:
        """A row of the table."""
        ops, tensors = self.opgraph.ops, self.opgraph.tensors.values()
        states = Counter(state for tensor in tensors for state in tensor.states)
        admitted = " ".join(f"{state}:{states[state]}" for state in "ROHS")
        kind = "concrete" if self.reason else "general"
        unknown, heavy = len(self.opgraph.unknown_ops), len(self.heavy())
        return f"{name:24s} {kind:9s} {len(ops):4d} {unknown:7d} {heavy:5d} {whole:5d}  {admitted}"

    def difference(self, parts: int, closed: bool = False) -> Difference | None:
        """Where the step on shards first differs from one device's."""
        attributes = {
            spec.name: cast(self.graph[spec.name], self.dtype)
            for spec in self.step.schema.attributes
        }
        assert self.step.program is not None
        with default_dtype(self.dtype):
            return first_difference(
                self.step.program,
                self.opgraph,
                self.choices(closed),
                shards_of(self.graph, self.step, parts, closed),
                attributes,
                self.state,
                self.state,
                seed=parts,
                tolerance=TOLERANCE if self.dtype is torch.float64 else 1e-3,
            )


def subject(case: Case) -> Subject:
    """The training step of a case."""
    torch.manual_seed(1)
    graph = batch_of_graphs(case.needs) if case.batch else directed_graph(case.needs)
    dtype = torch.float32 if case.single else torch.float64
    model = Step(case).to(dtype).train()
    for parameter in model.parameters():
        if not nn.parameter.is_lazy(parameter):
            parameter.grad = torch.ones_like(parameter)
    before = Marks(model=model, graph=graph)
    step = trace_step(model, graph, mean_of_squares, dtype=dtype)
    changes = before.changes(model=model, graph=graph)
    program = step.program or step.recording
    assert program is not None, step.reason
    opgraph = build_opgraph(
        program,
        step.schema.attributes,
        step.sample_rows if step.program else step.sample_rows[:1],
        has_loss=True,
        training=True,
        generality="general" if step.program else "concrete",
        reason=step.reason,
    )
    return Subject(step, opgraph, graph, step.state_tensors(model), dtype, changes)


def shards_of(graph: Data, step: TracedStep, parts: int, closed: bool) -> tuple[Shard, ...]:
    """Unequal ones: nodes at random, or whole graphs."""
    nodes = int(graph.num_nodes)
    rng = np.random.default_rng(parts)
    share = np.arange(1, parts + 1) / (parts * (parts + 1) / 2)
    edges = {"edge": graph.edge_index.numpy()}
    for spec in step.schema.attributes:
        axis = f"edge:{spec.name}"
        if axis in spec.dims:
            edges[axis] = graph[spec.name].numpy()
    if closed:
        graphs = np.arange(graph.num_graphs) % parts
        owner = graphs[graph.batch.numpy()]
        return build_shards(owner, edges, {}, parts=parts, closed=True, graph_owner=graphs)
    count = int(graph.num_graphs) if "batch" in graph else 0
    owner = rng.choice(parts, nodes, p=share)
    return build_shards(owner, edges, {}, parts=parts, graphs=count)


def choose(opgraph: OpGraph, closed: bool = False) -> dict[int, str]:
    """For each op what shares its rows out, if it is offered and its inputs can be brought there."""
    makers = {name: op.index for op in opgraph.ops for name in op.outputs}
    whole: set[int] = set()
    while True:
        choices, missing = _greedy(opgraph, whole, closed)
        if not missing:
            return choices
        # an op that has but R reads what cannot be brought there: it is made there
        whole |= {makers[name] for name in missing}


def _greedy(
    opgraph: OpGraph, whole: set[int], closed: bool
) -> tuple[dict[int, str], tuple[str, ...]]:
    """Choices in program order, and the tensors that an op lacks."""
    present = {name: set(t.states) for name, t in opgraph.tensors.items() if t.origin != "op"}
    choices: dict[int, str] = {}
    for op in opgraph.ops:
        offered = [s for s in op.strategies if s.runs_on(closed) and not s.lossy]
        if op.index in whole:
            offered = [s for s in offered if set(s.outputs) <= {"R"}]
        usable = [s for s in offered if not _missing(op, s, present)]
        if not usable:
            return choices, tuple(name for name in op.inputs if "R" not in present[name])
        chosen = min(usable, key=_rank)
        choices[op.index] = chosen.name
        for name, made in zip(op.outputs, chosen.outputs, strict=True):
            present[name] = _reached(opgraph, name, made)
    return choices, ()


def _rank(strategy: OpStrategy) -> tuple[bool, int]:
    """What shares its result out first; a rule's own way before O, O before partial sums."""
    return "R" in strategy.outputs, ORDER.get(strategy.name, 0)


def _missing(op: Op, strategy: OpStrategy, present: dict[str, set[State]]) -> list[str]:
    """The inputs that cannot be had in the states that a strategy needs."""
    pairs = zip(op.inputs, strategy.inputs, strict=True)
    return [name for name, state in pairs if state not in present[name]]


def _reached(opgraph: OpGraph, name: str, made: State) -> set[State]:
    """The states that a tensor can be brought to from the one that it is made in."""
    steps = transitions(opgraph.tensors[name], opgraph.axes)
    found = {made}
    while more := {step.target for step in steps if step.source in found} - found:
        found |= more
    return found


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Floating point numbers as this type."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
