"""A plan's steps where each may have another graph: traced once, measured and checked for each (torch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from autoplan.device import Cluster
from autoplan.errors import AutoplanError, GuardError, TraceError
from autoplan.execute.collection import GraphCollection
from autoplan.execute.steps import cut_parts
from autoplan.graphspec import GraphSpec
from autoplan.graphstats import GraphStats, PartitionStats
from autoplan.opgraph import EDGE, GRAPH, NODE
from autoplan.partition.halo import Shard
from autoplan.partition.ownership import IntArray
from autoplan.plan import PlanData
from autoplan.planner.decisions import rows_check
from autoplan.planner.measured import ClosedParts, MeasuredGraph
from autoplan.planner.shares import counted
from autoplan.planner.source import Source
from autoplan.planner.spec import held_to_sizes, specified
from autoplan.planner.values import check_values
from autoplan.planner.workload import (
    TOLERANCE,
    StepRequest,
    Workload,
    check_on_graph,
    concrete,
    free_of_rows,
    make_workload,
)
from autoplan.pricing.group import Group
from autoplan.pricing.moves import payload
from autoplan.program.binding import check_input_guards, input_check
from autoplan.states import transitions
from autoplan.trace.remedies import first_line
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph
from autoplan.trace.validation import validate


def trace_source(model: nn.Module, source: Source, request: StepRequest) -> Workload:
    """Traces a step on samples of everything, and holds it to the graph that is priced and to the sizes of every other.

    Raises:
        TraceError: see `make_workload` and `check_on_graph`.
    """
    if source.spec is not None:
        return held_to_sizes(_on_stand_in(model, source, source.spec, request), source.spec)
    workload = make_workload(model, source.whole, source.request(request))
    program = workload.traced.program
    if not source.streamed or program is None or not workload.general:
        return counted(check_on_graph(workload, source.typical), source.typical)
    schema = workload.traced.schema
    check_values(program, schema, schema.tensors(source.whole))
    try:
        workload = _with_few_rows(workload, source)
        check_sizes(workload, source, seed=0, steps=source.order(0).steps_per_epoch)
    except GuardError as error:
        return concrete(workload, f"not valid for every batch: {error}")
    return counted(check_on_graph(workload, source.typical), source.typical)


def _on_stand_in(
    model: nn.Module, source: Source, spec: GraphSpec, request: StepRequest
) -> Workload:
    """The workload on the small graph that was generated for a spec; what fails there is told as what it is."""
    try:
        workload = make_workload(model, source.whole, source.request(request))
        return check_on_graph(workload, source.whole)
    except TraceError as error:
        told = str(error).replace("drawn from the graph", "with these widths")
        raise TraceError(
            f"the model or loss does not fit the sizes of {spec.name} ({spec.attributes}): {told}"
        ) from error


def _with_few_rows(workload: Workload, source: Source) -> Workload:
    """The workload, free to run on the smallest batches that these graphs can make where it is right on them.

    Samples have several rows along every axis, and programs are held to that: torch treats a dimension of one row in its own
    way. The last batch of an epoch may have one graph, and that a node or an edge only.

    Raises:
        GuardError: on such a batch it is another program.
        TraceError: on such a batch the model itself fails.
    """
    program, collection = workload.traced.program, source.collection
    if program is None or collection is None:
        return workload
    order = source.order(0)
    fewest = len(order.batch(order.steps_per_epoch - 1))
    smallest = [np.argsort(rows, kind="stable")[:fewest] for rows in collection.rows.values()]
    tight = [batch for batch in smallest if not _fits(workload, collection, batch)]
    freed = free_of_rows(workload) if tight else workload
    for batch in tight:
        _check_equal(freed, collection, batch)
    return freed


def _fits(workload: Workload, collection: GraphCollection, batch: IntArray) -> bool:
    """Whether all decisions on sizes come out as recorded for a batch."""
    program = workload.traced.program
    assert program is not None
    sizes = tuple(collection.size(name, batch) for name in workload.traced.schema.names)
    try:
        check_input_guards(program, sizes, workload.traced.module)
        rows_check(program, workload.opgraph)(collection.rows_of(batch))
    except GuardError:
        return False
    return True


def _check_equal(workload: Workload, collection: GraphCollection, batch: IntArray) -> None:
    """Runs model and program on a batch. Raises as `_with_few_rows` does."""
    traced = workload.traced
    assert traced.program is not None
    tensors = tuple(collection.tensor(name, batch).detach() for name in traced.schema.names)
    what = (
        f"a batch of {len(batch)} graphs ({int(collection.rows[NODE][batch].sum())} nodes, "
        f"{int(collection.rows[EDGE][batch].sum())} edges), which these graphs can make"
    )
    try:
        check_input_guards(traced.program, tensors, traced.module)
        worst = max(validate(traced.program, traced.module, tensors).values())
    except GuardError as error:
        raise GuardError(f"on {what}: {error}") from error
    except AutoplanError:
        raise
    except Exception as error:
        raise TraceError(
            f"the model or its loss fails on {what}: {type(error).__name__}: {first_line(error)}; "
            "choose another batch_size"
        ) from error
    if worst > TOLERANCE:
        raise GuardError(f"on {what}, the program differs from the model by {worst:.1e}")


def check_sizes(workload: Workload, source: Source, *, seed: int, steps: int) -> None:
    """Holds the program's decisions on sizes, recorded from samples, to the sizes of each of so many steps.

    Raises:
        GuardError: one comes out differently; names the step.
    """
    program = workload.traced.program
    if program is None or not source.streamed:
        return
    assert source.collection is not None
    order = source.order(seed)
    check = input_check(program, workload.traced.module)
    check_rows = rows_check(program, workload.opgraph)
    for step in range(steps):
        batch = order.batch(step)
        sizes = tuple(source.collection.size(name, batch) for name in workload.traced.schema.names)
        try:
            check(sizes)
            check_rows(source.collection.rows_of(batch))
        except GuardError as error:
            raise GuardError(f"step {step} ({len(batch)} graphs): {error}") from error


def check_whole(workload: Workload, source: Source) -> None:
    """Holds the program to all graphs together, where a step of training takes some of them only.

    Raises:
        GuardError: a decision comes out differently there.
    """
    program, collection = workload.traced.program, source.collection
    if program is None or collection is None or not source.streamed:
        return
    tensors = workload.traced.schema.tensors(source.whole)
    check_input_guards(program, tensors, workload.traced.module)
    rows_check(program, workload.opgraph)(collection.rows_of(np.arange(len(collection))))


def measure_typical(
    source: Source,
    workload: Workload,
    parts: Iterable[int],
    *,
    seed: int = 0,
    closed_parts: ClosedParts = (),
) -> MeasuredGraph:
    """Measures and cuts the graph of the step that is priced; of a graph that is not here, models it."""
    if source.spec is not None:
        return specified(source.spec, workload, parts)
    return measure(source.typical, workload, parts, seed=seed, closed_parts=closed_parts)


def measure(
    graph: AnyGraph,
    workload: Workload,
    parts: Iterable[int],
    *,
    seed: int = 0,
    closed_parts: ClosedParts = (),
) -> MeasuredGraph:
    """Measures and cuts one of a source's graphs; arguments as in `MeasuredGraph.of`."""
    traced = workload.traced.schema
    schema = replace(traced, rows=_rows(graph, workload))
    measured = MeasuredGraph.of(graph, schema, parts, seed=seed, closed_parts=closed_parts)
    if GRAPH in traced.rows and GRAPH not in measured.stats.rows:
        # the only graph of a step, where other steps' graphs (or all together) are several
        stats = replace(measured.stats, rows={**measured.stats.rows, GRAPH: schema.rows[GRAPH]})
        return replace(measured, stats=stats)
    return measured


def _rows(graph: AnyGraph, workload: Workload) -> Mapping[str, int]:
    return GraphSchema.of(graph, workload.request.inputs).rows


def shards_of_step(source: Source, step: int, seed: int, parts: int) -> tuple[Shard, ...]:
    """What each rank holds in a step of a streamed source: the cut that its worker makes."""
    assert source.collection is not None
    batch = source.order(seed).batch(step)
    cut = cut_parts(source.collection, batch, parts, range(parts), ())
    return tuple(part.shard for part in cut)


def sent_in_step(
    plan: PlanData, workload: Workload, cluster: Cluster, shards: Sequence[Shard]
) -> tuple[int, ...]:
    """[P] payload bytes of one step on a graph that is not the priced one: only exchanges of rows depend on the graph.

    Args:
        plan: with the exchanges of the priced graph.
        workload: the step.
        cluster: the devices that the plan uses, in rank order.
        shards: [P] what each rank holds.
    """
    ranks = len(plan.devices)
    sent = list(plan.predicted.communication_bytes)
    if ranks == 1:
        return tuple(sent)
    opgraph = workload.opgraph
    counts = {axis: int(own.sum()) for axis, own in shards[0].owned_counts.items()}
    partition = PartitionStats(ranks, "closed", 0, 0, tuple(shard.sizes for shard in shards))
    # of a graph, exchanges depend on nothing but its rows
    stats = GraphStats(counts, 0, 0.0, 0, {}, {}, {ranks: partition})
    group = Group(cluster, tuple(range(ranks)), partition)
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
