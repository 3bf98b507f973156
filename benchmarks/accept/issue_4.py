"""Issue 4, "Trace any PyG model": its must-show lines."""

from __future__ import annotations

import json
import sys

from benchmarks.accept.issue_2 import tests
from benchmarks.accept.report import ROOT, Check, Report, run

LAYERS_SECONDS, LARGEST_SECONDS = 5.0, 30.0
"""To trace a model of three layers, and the largest of PyG's."""
MOST_OVER_GRAPH = 300e6
"""Bytes that tracing ten million edges takes beside the graph."""
PROCESSES = 10
CASES = ("tests/integration/test_cases.py", "tests/integration/test_cases_tracing.py")


def every_layer(report: Report) -> None:
    """Seconds to trace each, and that nothing of the user's changed."""
    out, _, _ = run(report, [sys.executable, "-m", "tests.trace.every_layer"])
    found = json.loads(out.splitlines()[-1]) if out else None
    if found is None:
        return
    for name, seconds in found["three_layers"].items():
        report.require(
            seconds <= LAYERS_SECONDS,
            f"{name} of three layers: {seconds:.1f} s, at most {LAYERS_SECONDS:g}",
        )
    slowest = sorted(found["seconds"].items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in slowest[:8])
    report.require(
        slowest[0][1] <= LARGEST_SECONDS,
        f"the slowest of {len(slowest)} layers and models take {told} s, at most {LARGEST_SECONDS:g}",
    )
    marked = {name: changes for name, changes in found["changes"].items() if changes}
    for name, changes in marked.items():
        report.measure(f"{name}: {'; '.join(changes)[:300]}")
    report.require(
        not marked, f"{len(slowest) - len(marked)} of {len(slowest)} are left as they were"
    )


def large_graph(report: Report) -> None:
    """A graph of ten million edges, in either layout."""
    for layout in ((), ("--by-rows",)):
        command = [sys.executable, "-m", "benchmarks.accept.large_graph", *layout]
        out, _, _ = run(report, command)
        if not out:
            continue
        found = json.loads(out.splitlines()[-1])
        report.require(found["reason"] is None, f"it is general: {found['reason']}")
        report.require(
            found["over_bytes"] <= MOST_OVER_GRAPH,
            f"10 million edges {' '.join(layout)}: {found['over_bytes'] / 1e6:.0f} MB over the graph's "
            f"{found['graph_bytes'] / 1e6:.0f} MB, at most {MOST_OVER_GRAPH / 1e6:.0f}; {found['seconds']:.1f} s",
        )


def identical(report: Report) -> None:
    """Ten traces in new processes with hash seeds of their own."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.trace.digests"]
    printed = {
        run(report, command, environment={"PYTHONHASHSEED": str(seed)})[0]
        for seed in range(PROCESSES)
    }
    told = " | ".join(" ".join(text.split()) for text in printed)
    report.require(len(printed) == 1, f"{PROCESSES} processes, {len(printed)} result: {told}")


def analyze(report: Report) -> None:
    """The command on an example: text, and one JSON document."""
    target = f"{ROOT / 'examples' / 'gin_pipeline.py'}:build"
    command = [sys.executable, "-m", "autoplan", "analyze", target, "-p", "3"]
    out, _, seconds = run(report, [*command, "--ops"])
    wide = [line for line in out.splitlines() if len(line) > 100]
    report.require(
        bool(out) and not wide,
        f"{len(out.splitlines())} lines in {seconds:.0f} s, none wider than 100 {' '.join(wide)}".strip(),
    )
    out, _, _ = run(report, [*command, "--json"])
    found = json.loads(out or "{}")
    report.require(bool(found), f"one JSON document of {', '.join(found)}")


CHECKS = (
    Check(
        "common-models",
        "25 common models: at least 23 general and exact on unseen sizes, the others concrete with the right reason",
        6,
        tests("tests/trace/test_matrix.py"),
    ),
    Check(
        "every-layer",
        "every convolution and model: traced, known op by op, general unless it follows values; P = 2 and 3 equal one device",
        20,
        tests("tests/execute/test_every_layer.py", "tests/trace/test_every_layer.py"),
    ),
    Check(
        "costs",
        "FLOPs equal torch's counter and closed forms; saved bytes are what saved_tensors_hooks sees",
        6,
        tests("tests/trace/test_costs.py"),
    ),
    Check(
        "work-depth",
        "work and depth grow as published, with sizes, width and layers",
        6,
        tests("tests/trace/test_work_depth.py", "tests/trace/test_hoisting.py"),
    ),
    Check(
        "times",
        "tracing takes 5 s for three layers, 30 s for the largest; every layer and model is left as it was",
        8,
        every_layer,
    ),
    Check("large-graph", "ten million edges within 300 MB over the graph", 3, large_graph),
    Check(
        "no-marks",
        "planning leaves models, caches, shared layers, hooks, modes, gradients and random state bit-identical",
        4,
        tests("tests/trace/test_no_marks.py", "tests/trace/test_large_graph.py"),
    ),
    Check("identical", "ten traces in new processes and hash seeds are identical", 6, identical),
    Check("cases", "h05, h13 and the A rows of the cases", 8, tests(*CASES)),
    Check(
        "analyze",
        "`autoplan analyze` reads well at 100 columns, and as JSON",
        4,
        analyze,
    ),
    Check(
        "analysis",
        "what it says by layer, class and op; what each strategy sends",
        5,
        tests("tests/test_analysis.py", "tests/planner/test_analysis.py"),
    ),
)
