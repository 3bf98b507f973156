"""Issue 3, "The spine, second half": its must-show lines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.accept.issue_2 import clone, tests
from benchmarks.accept.report import ROOT, Check, Report, run

DEMO_SECONDS = 90.0
"""Of `make demo` once it is set up, on two quiet cores."""
STRATEGIES = ("single", "data", "model", "pipeline", "hybrid")
STAGES = "tests/integration/test_stages.py"
BAD_INPUT = "tests/integration/test_bad_input.py"


def demo(report: Report) -> None:
    """`make demo` in a fresh clone ends with every strategy, on one graph and on many: predicted and measured, or refused."""
    with tempfile.TemporaryDirectory(prefix="autoplan-clone-") as name:
        directory = clone(Path(name))
        out, _, seconds = run(report, ["make", "demo"], directory=directory)
        report.measure(f"make demo, set-up included: {seconds:.0f} s")
        out, _, seconds = run(report, ["make", "demo"], directory=directory)
        report.require(
            seconds < DEMO_SECONDS, f"make demo again: {seconds:.0f} s, under {DEMO_SECONDS:g}"
        )
    first = _told(out, "Every strategy, asked for in turn")
    many = _told(out, "Every strategy on many graphs, asked for in turn")
    for where, told in (("one graph", first), ("many graphs", many)):
        report.require(tuple(told) == STRATEGIES, f"on {where} the demo tells of {', '.join(told)}")
        for strategy, text in told.items():
            report.measure(f"{where}: {strategy} {text}")
    report.require(
        "refused: one connected graph" in first.get("pipeline", ""),
        "one connected graph is refused",
    )
    report.require(
        "refused" not in many.get("pipeline", "refused"), "many graphs flow through a pipeline"
    )
    wide = [line for line in out.splitlines() if len(line) > 100]
    report.require(not wide, f"no line is wider than 100 columns {' '.join(wide)}".strip())


def _told(out: str, title: str) -> dict[str, str]:
    """What the demo says of each strategy below a title."""
    section = out.partition(title + "\n")[2].split("\n\nA three-layer", 1)[0]
    pattern = rf"^  ({'|'.join(STRATEGIES)}) +(\S.*)$"
    rows = dict(re.findall(pattern, section, flags=re.MULTILINE))
    return {strategy: rows[strategy] for strategy in STRATEGIES if strategy in rows}


def identical(report: Report) -> None:
    """The same inputs give the same bytes in other processes and with other hash seeds; a changed byte of input does not."""
    with tempfile.TemporaryDirectory(prefix="autoplan-plans-") as name:
        directory = Path(name)
        target = f"{ROOT / 'examples' / 'gin_pipeline.py'}:build"
        for strategy in ("data", "model", "pipeline", "auto"):
            written = []
            for seed in ("0", "7"):
                path = directory / f"{strategy}-{seed}.json"
                options = ["--strategy", strategy, "--batch-size", "32", "--save", str(path)]
                command = [sys.executable, "-m", "autoplan", "plan", target, *options, "--json"]
                out, _, _ = run(report, command, environment={"PYTHONHASHSEED": seed})
                written += [path.read_bytes(), out.encode()]
            report.require(
                len(set(written)) == 1,
                f"{strategy}: {len(written[0]):,} bytes, equal in two processes, as file and on stdout",
            )
        first, second = (str(directory / f"{name}-0.json") for name in ("data", "pipeline"))
        command = [sys.executable, "-m", "autoplan", "diff", first, second, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        report.require(
            done.returncode == 1 and bool(json.loads(done.stdout)),
            "autoplan diff tells two plans apart, with exit code 1",
        )


CHECKS = (
    Check(
        "strategies",
        "Cora and MUTAG, PROTEINS, NCI1: every strategy that applies, P = 2, 3, micro-batches 1, 2, 3, 5; h06, h07, h08",
        15,
        tests(STAGES, "tests/integration/test_pipeline_graphs.py"),
    ),
    Check(
        "many-graphs",
        "batches of many graphs as data plans: balanced, the true normaliser, uneven counts",
        6,
        tests("tests/integration/test_many_graphs.py", "tests/execute/test_batches.py"),
    ),
    Check(
        "refusals",
        "one connected graph suggests model; batch norm in several micro-batches names the layer",
        4,
        tests(STAGES, "-k", "suggests_model or batch_norm"),
    ),
    Check("demo", "make demo ends with all candidates, forced one after the other", 12, demo),
    Check("identical", "the same inputs give byte-identical plans", 5, identical),
    Check(
        "plan-files",
        "a saved plan gives the same losses in a new process; another graph, model or device set is told apart",
        8,
        tests("tests/integration/test_plan_files.py", "tests/search/test_fingerprint.py"),
    ),
    Check(
        "rebind",
        "rebinding keeps strategies and stages, prices anew and says what changed",
        6,
        tests("tests/integration/test_rebind.py"),
    ),
    Check(
        "bad-input",
        "bad input is one clear error with its remedy, and leaves no worker running",
        6,
        tests(BAD_INPUT, "tests/integration/test_bad_input_command.py"),
    ),
    Check(
        "few-nodes",
        "one node, and more workers than nodes: a single plan that runs",
        3,
        tests(BAD_INPUT, "-k", "more_workers_than_nodes or one_node or uses_all_devices"),
    ),
    Check(
        "commands",
        "every command on a plan with stages; under --json one document, solver and plugins active",
        8,
        tests(
            "tests/integration/test_pipeline_commands.py",
            "tests/integration/test_json.py",
            "tests/cli",
        ),
    ),
    Check(
        "cases",
        "the shared cases h12 and h14",
        4,
        tests("tests/integration/test_cases.py", "-k", "h12 or h14"),
    ),
    Check(
        "interrupt",
        "two planned runs at once finish; Ctrl-C ends everything in 5 s",
        5,
        tests("tests/integration/test_interrupt.py"),
    ),
)
