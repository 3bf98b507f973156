"""A program's figures on a graph, and what each strategy would send there (torch)."""

from __future__ import annotations

from torch import nn

from autoplan.analysis import analyse, largest_of
from autoplan.device import Cluster
from autoplan.errors import InfeasibleError
from autoplan.planner.make import closed_numbers, numbers_of_parts
from autoplan.planner.source import Source
from autoplan.planner.spec import notes_of
from autoplan.planner.steps import measure_typical, trace_source
from autoplan.planner.structure import describe
from autoplan.planner.unused import tensor_notes
from autoplan.planner.workload import StepRequest, model_tensors
from autoplan.plugins import registry
from autoplan.report.analysis import ProgramReport
from autoplan.search import SearchOptions, solve
from autoplan.search.volumes import Volume, volumes


def analyse_step(
    model: nn.Module,
    source: Source,
    cluster: Cluster,
    request: StepRequest,
    *,
    optimizer: str = "adam",
) -> ProgramReport:
    """Traces a step, and prices it on its graph.

    What is sent is what the search's candidates send; they are not run on samples as a plan's are.

    Raises:
        TraceError: the graph cannot be classified, or the model or loss fails on it.
    """
    workload = trace_source(model, source, request)
    options = SearchOptions()
    measured = measure_typical(
        source,
        workload,
        numbers_of_parts(workload, source, cluster, "auto"),
        closed_parts=closed_numbers(workload, cluster, "auto", options),
    )
    opgraph, traced = workload.opgraph, workload.traced
    sent: tuple[Volume, ...] = ()
    notes = tensor_notes(workload)
    if len(cluster.devices) > 1:
        try:
            result = solve(
                opgraph,
                measured.stats,
                cluster,
                registry().cost_models,
                parameters=model_tensors(workload),
                optimizer=optimizer,
                training=traced.training,
                options=options,
            )
            sent = volumes(opgraph, result.candidates, training=traced.training)
        except InfeasibleError as error:
            notes.append(f"nothing is told of what is sent: {error}")
    if source.streamed:
        notes.append("figures are of the largest batch of one epoch")
    known, largest = None, None
    if source.spec is not None:
        notes += notes_of(source.spec)
    else:
        described = describe(measured)
        known = described.structure
        largest = largest_of(known, measured.schema.relations)
        notes += described.notes
    return ProgramReport(
        figures=analyse(
            opgraph,
            measured.stats,
            largest,
        ),
        stats=measured.stats,
        loss=traced.loss,
        training=traced.training,
        generality=opgraph.generality,
        reason=opgraph.reason,
        devices=cluster.text,
        volumes=sent,
        structure=known,
        notes=tuple(notes),
    )
