"""The lock-step check: sharded ranks of one process against one rank, on a small sample, in float64 (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from autoplan.errors import AutoplanError, TraceError
from autoplan.execute.difference import Difference, first_difference
from autoplan.opgraph import GRAPH
from autoplan.partition.closed import ClosedOwner, units_of
from autoplan.partition.ownership import IntArray
from autoplan.partition.union import NodeUnion
from autoplan.planner.arrangement import Arrangement
from autoplan.planner.double import default_of, in_double
from autoplan.planner.equality import step_error
from autoplan.planner.measured import (
    batch_arrays,
    edge_arrays,
    node_counts,
    shards_of,
)
from autoplan.planner.workload import Workload, cast
from autoplan.trace.sampling import GraphSample, draw_samples
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph

_RANKS = (2, 3)
_TOLERANCE = 1e-9
_SEED = 7


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A strategy whose numbers differ from one device's.

    Attributes:
        text: what differs, and by how much.
        denied: op index -> strategies that must not be offered again.
    """

    text: str
    denied: Mapping[int, frozenset[str]]

    def __str__(self) -> str:
        return self.text


class Checker:
    """Checks choices of strategies for one workload."""

    def __init__(self, model: nn.Module, graph: AnyGraph, workload: Workload) -> None:
        """Traces again in float64 when it is first needed; model and graph are the user's and are left as they are."""
        self._model, self._graph, self._workload = model, graph, workload
        self._double: Workload | None = None

    def check(self, choices: Mapping[int, str], *, closed: bool = False) -> Mismatch | None:
        """Runs two and three ranks on unequal shards of a sample and compares outputs, gradients and buffers with one rank.

        Args:
            choices: op index -> strategy.
            closed: the shards are whole graphs or components, and the last of three ranks owns nothing.

        Raises:
            TraceError: the step has no form in float64 (`in_double`), so that nothing can be compared.
        """
        double = self._traced_in_double()
        program = double.traced.program
        assert program is not None
        schema = double.traced.schema
        sample, tensors = self._sample(double)
        parameters, buffers = state_of(double)
        for ranks in _RANKS:
            owner = _owner_of(sample, schema, tensors, ranks, closed=closed)
            shards = shards_of(owner, schema, tensors, ranks, rows=sample.rows)
            try:
                with default_of(double):
                    difference = first_difference(
                        program,
                        double.opgraph,
                        choices,
                        shards,
                        tensors,
                        parameters,
                        buffers,
                        tolerance=_TOLERANCE,
                    )
            except AutoplanError as error:
                return Mismatch(
                    f"it fails on {ranks} ranks: {error}", _all_sharded(double, choices)
                )
            if difference is not None:
                return Mismatch(
                    f"{difference} on {ranks} ranks", _blamed(double, choices, difference)
                )
        return None

    def check_stages(self, arrangement: Arrangement) -> str | None:
        """Runs the stages of a plan on a sample, cut as unevenly as can be, and compares them with one rank.

        Returns:
            What differs, or None.
        """
        try:
            double = self._traced_in_double()
        except TraceError as error:
            return f"it could not be checked: {error}"
        try:
            schema = double.traced.schema
            sample, tensors = self._sample(double)
            parts = arrangement.parts
            alone = shards_of(owner_of_one(sample), schema, tensors, 1, rows=sample.rows)
            shards = alone
            if parts > 1:
                owner = _owner_of(sample, schema, tensors, parts, closed=True)
                shards = shards_of(owner, schema, tensors, parts, rows=sample.rows)
            state = state_of(double)
            with default_of(double):
                one = Arrangement({}).group(double, alone, tensors).step(*state, seed=_SEED)
                many = arrangement.group(double, shards, tensors).step(*state, seed=_SEED)
        except AutoplanError as error:
            return f"its stages fail on a sample: {error}"
        what, apart = step_error(one, many)
        if apart <= _TOLERANCE:
            return None
        return f"its numbers differ from one device's on a sample: {what} by {apart:.1e}"

    def _sample(self, double: Workload) -> tuple[GraphSample, dict[str, torch.Tensor]]:
        """A small graph and its tensors in float64."""
        traced = self._workload.traced
        sample = draw_samples(
            self._graph, traced.schema, seed=_SEED, least_nodes=traced.least_nodes
        )[-1]
        names = double.traced.schema.names
        return sample, {
            name: cast(tensor.detach(), torch.float64)
            for name, tensor in zip(names, sample.tensors, strict=True)
        }

    def _traced_in_double(self) -> Workload:
        if self._double is None:
            self._double = in_double(self._model, self._graph, self._workload)
        return self._double


def state_of(workload: Workload) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Parameters and buffers (with plain tensor attributes) that the program reads, by `StateSlot.path`."""
    program, module = workload.traced.program, workload.traced.module
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    for slot in program.state if program is not None else ():
        tensor = getattr(module.get_submodule(slot.module), slot.key)
        (parameters if slot.kind == "parameter" else buffers)[slot.path] = tensor.detach()
    return parameters, buffers


def owner_of_one(sample: GraphSample) -> dict[str, IntArray]:
    """By node axis, [N] the only rank."""
    counts = node_counts(sample.rows)
    return {axis: np.zeros(count, dtype=np.int64) for axis, count in counts.items()}


def uneven_owner(nodes: int, ranks: int) -> IntArray:
    """[nodes] random ranks, the later ones with fewer nodes."""
    generator = np.random.default_rng(ranks)
    shares = 1.0 / np.arange(1, ranks + 1) ** 1.5
    return generator.choice(ranks, size=nodes, p=shares / shares.sum()).astype(np.int64)


def _owner_of(
    sample: GraphSample,
    schema: GraphSchema,
    tensors: Mapping[str, torch.Tensor],
    ranks: int,
    *,
    closed: bool,
) -> Mapping[str, IntArray] | ClosedOwner:
    """Who owns what of a sample: anything, or whole units."""
    nodes = node_counts(sample.rows)
    if not closed:
        union = NodeUnion(nodes)
        return union.split(uneven_owner(union.total, ranks))
    batch, relations = batch_arrays(schema, tensors), schema.relations
    graphs = sample.rows.get(GRAPH, 0)
    units = units_of(nodes, edge_arrays(schema, tensors), batch, graphs, relations)
    of_unit = uneven_owner(units.count, min(ranks, 2))
    of_unit[:1], of_unit[1:2] = 0, 1
    of_graph = None if units.graph_of is None else of_unit[units.graph_of]
    return ClosedOwner({axis: of_unit[of] for axis, of in units.of.items()}, of_graph, ranks)


def _blamed(
    workload: Workload, choices: Mapping[int, str], difference: Difference
) -> dict[int, frozenset[str]]:
    """The op where values part; where only a gradient differs, every sharded op (the cause may be any)."""
    for op in workload.opgraph.ops:
        if difference.what == f"op {op.index} {op.name}" and choices.get(op.index, "R") != "R":
            return {op.index: frozenset({choices[op.index]})}
    return _all_sharded(workload, choices)


def _all_sharded(workload: Workload, choices: Mapping[int, str]) -> dict[int, frozenset[str]]:
    return {
        op.index: frozenset(s.name for s in op.strategies if s.name != "R")
        for op in workload.opgraph.ops
        if choices.get(op.index, "R") != "R"
    }
