"""A plan for a graph of other sizes or edges: its strategies kept, all that depends on the graph made anew (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from autoplan.device import Cluster
from autoplan.errors import InfeasibleError, PlanError
from autoplan.plan import PlanData, Strategy
from autoplan.planner.arrangement import Arrangement
from autoplan.planner.held import check_attributes, check_program
from autoplan.planner.make import assemble_plan, closed_numbers, numbers_of_parts
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import source_as_planned
from autoplan.planner.steps import measure_typical, trace_source
from autoplan.planner.workload import StepRequest, Workload, model_tensors
from autoplan.plugins import registry
from autoplan.search import Candidate, SearchOptions, SearchResult, solve


def rebind_plan(
    data: PlanData, cluster: Cluster, request: StepRequest, model: nn.Module, graph: object
) -> PlanData:
    """The same strategies on another graph: partitioned, measured, priced and held to memory again.

    Args:
        data: the plan; it is not changed.
        cluster: the devices that were offered, in the plan's order; their figures may be others than the plan's.
        request: how the step is made.
        model: of the plan's program.
        graph: with the plan's attributes.

    Raises:
        PlanError: the graph has other attributes, the model is another program, or a device of the plan is not offered.
        InfeasibleError: the plan's strategies do not fit this graph or these devices.
    """
    source = source_as_planned(graph, data.batch, request.inputs)
    workload = trace_source(model, source, request)
    ranks = _positions(data, cluster)
    seed = 0 if data.partition is None else data.partition.seed
    parts = {len(ranks), *numbers_of_parts(workload, source, cluster, "auto")}
    shared, units = (
        ("graphs", source.batch_size)
        if source.streamed
        else ("nodes", workload.traced.schema.nodes)
    )
    if data.pipeline is None and len(ranks) > units:
        raise InfeasibleError(
            f"the plan shares {shared} out over {len(ranks)} devices and this graph has {units}; "
            "plan again with autoplan.optimize"
        )
    wanted = closed_numbers(workload, cluster, "auto", SearchOptions())
    own = Arrangement.of_plan(data)
    measured = measure_typical(
        source,
        workload,
        sorted(parts),
        seed=seed,
        closed_parts=lambda units: (*wanted(units), *((own.parts,) if own.closed else ())),
    )
    check_attributes(data, measured)
    check_program(data, workload)
    kept = _kept(data, cluster, ranks, workload, measured)
    others = _search(
        workload,
        measured,
        cluster,
        data,
        strategy="auto",
        denied={},
        options=SearchOptions(families=_families(data), exact=data.exact),
    ).candidates
    candidates = _among(kept, others)
    gap = _gap(kept, candidates, data.objective)
    best = replace(kept, status="optimal" if gap == 0 else "feasible")
    result = SearchResult(
        best=best,
        candidates=tuple(best if c is kept else c for c in candidates),
        forced=data.forced,
        objective=data.objective,
        gap=gap,
    )
    rebound = assemble_plan(model, source, workload, measured, cluster, result, (), data.optimizer)
    return replace(rebound, rebound=True)


def _positions(data: PlanData, cluster: Cluster) -> tuple[int, ...]:
    """Where the plan's ranks are among the devices. Raises PlanError where one is not."""
    positions = tuple(use.position for use in data.devices)
    if max(positions) >= len(cluster.devices):
        raise PlanError(
            f"the plan runs on device {max(positions)} of {data.devices_text} and here are only "
            f"{len(cluster.devices)} ({cluster.text}); plan again with autoplan.optimize"
        )
    return positions


def _kept(
    data: PlanData,
    cluster: Cluster,
    ranks: tuple[int, ...],
    workload: Workload,
    measured: MeasuredGraph,
) -> Candidate:
    """The plan's own choices at their price for this graph, on its own devices.

    Stages are as many as they were, and cut as they were.
    """
    chosen = {choice.op: choice.strategy for stage in data.stages for choice in stage.choices}
    denied = {
        op.index: frozenset(s.name for s in op.strategies if s.name != chosen[op.index])
        for op in workload.opgraph.ops
    }
    used = replace(cluster, devices=tuple(cluster.devices[rank] for rank in ranks))
    try:
        result = _search(
            workload,
            measured,
            used,
            data,
            strategy=data.strategy,
            denied=denied,
            options=_as_planned(data),
        )
    except InfeasibleError as error:
        raise InfeasibleError(
            f"the plan's strategies cannot be kept for this graph: {error}; "
            "plan again with autoplan.optimize"
        ) from error
    alike = [
        candidate
        for candidate in (result.best, *result.candidates)
        if candidate.feasible
        and candidate.strategy == data.strategy
        and len(candidate.ranks) == len(ranks)
        and _shape(candidate) == _shape_of_plan(data)
    ]
    if not alike:
        raise InfeasibleError(
            f"the plan's {len(data.stages)} stages on {len(ranks)} devices cannot be kept for this graph; "
            "plan again with autoplan.optimize"
        )
    name = next((a.name for a in data.alternatives if a.chosen), alike[0].name)
    return replace(alike[0], name=name, ranks=ranks)


def _as_planned(data: PlanData) -> SearchOptions:
    """The one candidate that the plan is."""
    options = SearchOptions(families=(data.strategy,), exact=data.exact)
    if data.pipeline is None:
        return options
    stage_of = Arrangement.of_plan(data).stage_of
    return replace(
        options,
        micro_batches=(data.pipeline.micro_batches,),
        schedules=(data.pipeline.schedule,),
        stage_of=stage_of,
    )


def _search(
    workload: Workload,
    measured: MeasuredGraph,
    cluster: Cluster,
    data: PlanData,
    *,
    strategy: str,
    denied: Mapping[int, frozenset[str]],
    options: SearchOptions,
) -> SearchResult:
    return solve(
        workload.opgraph,
        measured.stats,
        cluster,
        registry().cost_models,
        parameters=model_tensors(workload),
        optimizer=data.optimizer,
        strategy=strategy,
        objective="memory" if data.objective == "memory" else "time",
        training=workload.traced.training,
        denied=denied,
        options=options,
    )


def _families(data: PlanData) -> tuple[Strategy, ...]:
    """The families that were tried when the plan was made."""
    return tuple(dict.fromkeys(alternative.strategy for alternative in data.alternatives))


_Shape = tuple[int, int, int, bool]
"""Stages, replicas, micro-batches of each, and whether whole units are shared out."""


def _shape_of_plan(data: PlanData) -> _Shape:
    closed = data.partition is not None and data.partition.method == "closed"
    if data.pipeline is None:
        return len(data.stages), 1, 1, closed
    return len(data.stages), data.pipeline.replicas, data.pipeline.micro_batches, closed


def _shape(candidate: Candidate) -> _Shape:
    stages = max(1, len(candidate.stages))
    return stages, candidate.replicas, candidate.micro_batches, candidate.closed


def _among(kept: Candidate, others: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """All candidates of a search, the kept one in the place of its namesake."""
    names = [candidate.name for candidate in others]
    if kept.name not in names:
        return (*others, kept)
    return tuple(kept if candidate.name == kept.name else candidate for candidate in others)


def _gap(kept: Candidate, candidates: tuple[Candidate, ...], objective: str) -> float:
    """How much better than the kept plan another could be, relative to it."""

    def value(candidate: Candidate) -> float | None:
        prediction = candidate.prediction
        if prediction is None:
            return None
        if objective == "memory":
            return max(peak.value for peak in prediction.peak_bytes)
        return prediction.step_seconds.value

    mine = value(kept)
    assert mine is not None
    values = [found for candidate in candidates if (found := value(candidate)) is not None]
    gap = (mine - min(values)) / mine if mine > 0 else 0.0
    return gap if gap > 1e-9 else 0.0
