"""A plan's steps where each may have another graph: traced once, measured and checked for each (torch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import nn
from torch_geometric.data import Data

from autoplan.device import Cluster
from autoplan.errors import GuardError
from autoplan.plan import PlanData
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import Source
from autoplan.planner.values import check_values
from autoplan.planner.workload import StepRequest, Workload, check_on_graph, concrete, make_workload
from autoplan.pricing.group import Group
from autoplan.pricing.moves import payload
from autoplan.program.binding import check_input_guards, input_guards
from autoplan.states import transitions
from autoplan.trace.schema import GraphSchema


def trace_source(model: nn.Module, source: Source, request: StepRequest) -> Workload:
    """Traces a step on samples of everything, and holds it to the graph that is priced and to the sizes of every other.

    Raises:
        TraceError: see `make_workload` and `check_on_graph`.
    """
    asked = source.request(request)
    workload = check_on_graph(make_workload(model, source.whole, asked), source.typical)
    if not source.streamed:
        return workload
    program = workload.traced.program
    if program is not None and workload.general:
        schema = workload.traced.schema
        check_values(program, schema, schema.tensors(source.whole))
    try:
        check_sizes(workload, source, seed=0, steps=source.order(0).steps_per_epoch)
    except GuardError as error:
        return concrete(workload, f"not valid for every batch: {error}")
    return workload


def check_sizes(workload: Workload, source: Source, *, seed: int, steps: int) -> None:
    """Holds the program's decisions on sizes, recorded from samples, to the sizes of each of so many steps.

    Raises:
        GuardError: one comes out differently; names the step.
    """
    program = workload.traced.program
    if program is None or not source.streamed or not input_guards(program):
        return
    assert source.collection is not None
    order = source.order(seed)
    for step in range(steps):
        batch = order.batch(step)
        sizes = tuple(source.collection.size(name, batch) for name in workload.traced.schema.names)
        try:
            check_input_guards(program, sizes, workload.traced.module)
        except GuardError as error:
            raise GuardError(f"step {step} ({len(batch)} graphs): {error}") from error


def measure(
    graph: Data, workload: Workload, parts: Iterable[int], *, seed: int = 0
) -> MeasuredGraph:
    """Measures and cuts one of a source's graphs."""
    traced = workload.traced.schema
    schema = replace(traced, rows=_rows(graph, workload))
    return MeasuredGraph.of(graph, schema, parts, seed=seed)


def _rows(graph: Data, workload: Workload) -> Mapping[str, int]:
    return GraphSchema.of(graph, workload.request.inputs).rows


def sent_in_step(
    plan: PlanData, workload: Workload, cluster: Cluster, measured: MeasuredGraph
) -> tuple[int, ...]:
    """[P] payload bytes of one step on a graph that is not the priced one: only exchanges of rows depend on the graph.

    Args:
        plan: with the exchanges of the priced graph.
        workload: the step.
        cluster: the devices that the plan uses, in rank order.
        measured: the graph, cut as the plan cuts.
    """
    ranks = len(plan.devices)
    sent = list(plan.predicted.communication_bytes)
    if ranks == 1:
        return tuple(sent)
    opgraph, stats = workload.opgraph, measured.stats
    group = Group(cluster, tuple(range(ranks)), stats.partitions[ranks])
    rows = group.row_table(opgraph, stats)
    for planned in plan.stages[0].transitions:
        tensor = opgraph.tensors[planned.tensor]
        ways = transitions(tensor, opgraph.axes)
        way = next(w for w in ways if (w.source, w.target) == (planned.source, planned.target))
        forward, backward = payload(tensor, way, opgraph, rows, group)
        crossed = any(planned.backward_bytes)
        for rank in range(ranks):
            sent[rank] += forward[rank] - planned.forward_bytes[rank]
            if crossed:
                sent[rank] += backward[rank] - planned.backward_bytes[rank]
    return tuple(sent)


def tensors_of(workload: Workload, graph: Data) -> dict[str, torch.Tensor]:
    """A graph's tensors by attribute."""
    schema = workload.traced.schema
    return dict(zip(schema.names, schema.tensors(graph), strict=True))
