"""From a model, a graph and a cluster to a plan as data (torch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from torch import nn

from autoplan.cluster import used_cluster
from autoplan.device import Cluster
from autoplan.plan import PLAN_VERSION, BatchUse, Fingerprints, PlanData
from autoplan.planner.check import Mismatch
from autoplan.planner.choose import choose
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import Source
from autoplan.planner.spec import notes_of
from autoplan.planner.steps import measure, measure_typical, trace_source
from autoplan.planner.unused import op_notes, tensor_notes
from autoplan.planner.workload import StepRequest, Workload, model_forms
from autoplan.plugins import registry
from autoplan.search import Candidate, SearchOptions, SearchResult
from autoplan.search.assemble import (
    alternatives,
    device_uses,
    estimated_sends,
    partition_use,
    pipeline_use,
    stage_plans,
)
from autoplan.search.fingerprint import devices_fingerprint, model_fingerprint
from autoplan.search.layouts import closed_parts
from autoplan.trace.step_module import user_name
from autoplan.version import version

_FEWER = 4
"""Data plans on fewer devices than there are: at most so many numbers of devices are tried."""


def make_plan(
    model: nn.Module,
    source: Source,
    cluster: Cluster,
    request: StepRequest,
    *,
    strategy: str,
    objective: Literal["time", "memory"],
    optimizer: str,
    options: SearchOptions | None = None,
) -> PlanData:
    """Traces, measures, searches, checks.

    Raises:
        AutoplanError: see `autoplan.api.optimize`.
    """
    options = options or SearchOptions()
    workload = trace_source(model, source, request)
    parts = numbers_of_parts(workload, source, cluster, strategy)
    measured = measure_typical(
        source,
        workload,
        parts,
        closed_parts=closed_numbers(workload, cluster, strategy, options),
    )
    choice = choose(
        model,
        source.whole,
        workload,
        measured,
        cluster,
        registry().cost_models,
        optimizer=optimizer,
        strategy=strategy,
        objective=objective,
        options=options,
    )
    return assemble_plan(
        model, source, workload, measured, cluster, choice.result, choice.mismatches, optimizer
    )


def assemble_plan(
    model: nn.Module,
    source: Source,
    workload: Workload,
    measured: MeasuredGraph,
    cluster: Cluster,
    result: SearchResult,
    mismatches: Sequence[Mismatch],
    optimizer: str,
) -> PlanData:
    """The plan of a search's answer.

    Args:
        model: the user's.
        source: the data.
        workload: the traced step.
        measured: the graph that was priced.
        cluster: the devices.
        result: of the search.
        mismatches: what the lock-step check rejected on the way.
        optimizer: its name.
    """
    everything = measure(source.whole, workload, ()) if source.streamed else measured
    opgraph = workload.opgraph
    best = result.best
    assert best.prediction is not None
    parameters = tuple(name for name, _ in model.named_parameters())
    buffers = tuple(name for name, _ in model.named_buffers())
    stages = stage_plans(
        best,
        opgraph,
        parameters=parameters,
        buffers=buffers,
        attributes=_attributes(workload, {*parameters, *buffers}),
    )
    return PlanData(
        version=PLAN_VERSION,
        autoplan_version=version(),
        strategy=best.strategy,
        forced=result.forced,
        rebound=False,
        exact=not best.lossy,
        status=best.status,
        gap=result.gap,
        deterministic=best.deterministic,
        objective=result.objective,
        optimizer=optimizer,
        loss=workload.traced.loss,
        generality=opgraph.generality,
        generality_reason=opgraph.reason,
        devices_text=cluster.text,
        devices=device_uses(best, cluster),
        cluster=used_cluster(cluster),
        graph_rows=tuple(sorted(everything.schema.rows.items())),
        graph_attributes=everything.attributes,
        model_tensors=model_forms(opgraph),
        partition=partition_use(best, measured.stats),
        batch=source.use or _components(best, measured),
        pipeline=pipeline_use(best),
        stages=stages,
        predicted=best.prediction,
        alternatives=alternatives(result),
        unknown_ops=tuple(dict.fromkeys(op.name for op in opgraph.unknown_ops)),
        notes=(
            *(notes_of(source.spec) if source.spec is not None else ()),
            *_notes(workload, result, mismatches),
        ),
        fingerprints=Fingerprints(
            model=model_fingerprint(opgraph),
            graph=everything.fingerprint,
            schema=everything.schema_fingerprint,
            devices=devices_fingerprint(cluster),
        ),
    )


def numbers_of_parts(
    workload: Workload, source: Source, cluster: Cluster, strategy: str
) -> tuple[int, ...]:
    """Numbers of parts worth sharing a step over: one per candidate."""
    devices = len(cluster.devices)
    if strategy == "single" or devices == 1 or not workload.shardable:
        return (1,)
    # what a step takes of many graphs is shared out in whole graphs
    units = source.batch_size
    if source.spec is not None:
        units = source.spec.total_nodes
    elif not source.streamed:
        units = workload.traced.schema.nodes
    fewer = range(max(2, devices - _FEWER), devices)
    return tuple(count for count in (1, *fewer, devices) if count <= max(units, 1))


def closed_numbers(
    workload: Workload, cluster: Cluster, strategy: str, options: SearchOptions
) -> Callable[[int], tuple[int, ...]]:
    """Of a number of units, the numbers of parts along whole units that pipelines may want."""
    devices = len(cluster.devices)
    families = ("pipeline", "hybrid") if strategy == "auto" else (strategy,)
    wanted = {"pipeline", "hybrid"} & {*families} & {*options.families}
    if not wanted or devices == 1 or not workload.shardable:
        return lambda units: ()
    return lambda units: closed_parts(units, devices, options.micro_batches)


def _components(best: Candidate, measured: MeasuredGraph) -> BatchUse | None:
    """What a pipeline cuts one graph into."""
    if not best.closed or measured.stats.unit != "component":
        return None
    return BatchUse("component", measured.stats.units, measured.stats.units, 1)


def _attributes(workload: Workload, known: set[str]) -> tuple[str, ...]:
    """Plain tensors of the model (or of its loss) that the program reads, besides parameters and buffers."""
    names = {
        user_name(tensor.source)
        for tensor in workload.opgraph.tensors.values()
        if tensor.origin in ("parameter", "buffer") and tensor.source is not None
    }
    return tuple(sorted(names - known))


def _notes(workload: Workload, result: SearchResult, mismatches: Sequence[Mismatch]) -> list[str]:
    opgraph = workload.opgraph
    notes = []
    if opgraph.reason:
        notes.append(f"plain PyTorch on one device runs this step: {opgraph.reason}")
    elif opgraph.single_only:
        notes.append(f"only one device can run this step: {opgraph.single_only}")
    # a layer that is called several times is named once
    notes += [f"not one device's numbers: {note}" for note in dict.fromkeys(result.best.lossy)]
    notes += [f"a strategy was rejected by the lock-step check: {m}" for m in mismatches]
    notes += [*tensor_notes(workload), *op_notes(workload)]
    unknown = estimated_sends(result.best, opgraph)
    if unknown:
        notes.append(
            f"between stages go {', '.join(unknown)}, whose rows only the data decide: the bytes sent are estimates, "
            "and a run is not compared with them"
        )
    failures = result.failures
    notes += [f"cost model {f.model} failed on {f.op}: {f.reason}" for f in failures]
    return notes
