"""`autoplan analyze`: what a model costs on a graph, by layer and by op, and what each strategy would send."""

from __future__ import annotations

from typing import Annotated

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say


def analyze(
    target: options.TargetArgument,
    devices: options.Devices = "2xcpu",
    parts: Annotated[
        int | None,
        typer.Option("-p", min=1, help="As many CPU workers, instead of --devices."),
    ] = None,
    optimizer: options.Optimizer = "adam",
    batch_size: options.BatchSize = None,
    graph_spec: options.GraphSpecName = None,
    ops: Annotated[bool, typer.Option("--ops", help="Every op, layer by layer.")] = False,
    as_json: options.Json = False,
) -> None:
    """Tell what a step of a model costs on a graph: FLOPs, bytes, work, depth and parallelism of every layer, and traffic.

    Nothing is planned, run or checked beyond the trace; --json always has every op.
    """
    with clean_stdout():
        from autoplan.cli.planning import analyse, with_sizes
        from autoplan.cli.target import load_target

        named = devices if parts is None else f"{parts}xcpu"
        loaded = with_sizes(load_target(target), graph_spec)
        say(f"analysing on {named}")
        report = analyse(loaded, named, optimizer=optimizer, batch_size=batch_size)
    from autoplan.report.analysis import analysis_document, analysis_text

    if as_json:
        document(analysis_document(report))
    else:
        result(analysis_text(report, ops=ops))
