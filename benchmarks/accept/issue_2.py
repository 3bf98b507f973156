"""Issue 2, "The spine": its must-show lines."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.accept.report import ROOT, Check, Report, run, run_tests

DEVICE_PLUGINS = ("cpu", "gpu", "ipu", "npu", "tpu")
DIGITS_ACCURACY = 0.93
HELP_SECONDS = 1.0
TEST_MINUTES = 10.0


def clone(directory: Path) -> Path:
    """A bare clone of the commit that is checked out: nothing untracked comes along."""
    target = directory / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(target)], check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    subprocess.run(["git", "checkout", "-q", head.stdout.strip()], cwd=target, check=True)
    return target


def check_demo(report: Report, out: str) -> None:
    """What the demo must print: candidates, why, predicted beside measured, a verified plan and its accuracy."""
    for part in ("Candidates", "The plan's choice", "Predicted and measured", "Verified"):
        report.require(part in out, f"the demo prints '{part}'")
    found = re.search(r"([0-9.]+) with (\d+) workers, ([0-9.]+) with one process", out)
    if found is None:
        report.require(False, f"the demo ends with its accuracies; it ended\n{out[-500:]}")
        return
    spread, workers, alone = float(found[1]), int(found[2]), float(found[3])
    report.require(
        min(spread, alone) > DIGITS_ACCURACY,
        f"test accuracy {spread:.4f} with {workers} workers, {alone:.4f} with one process, above {DIGITS_ACCURACY}",
    )


def fresh_clone(report: Report) -> None:
    """`make demo`, again (quick), and `make test` in a bare clone."""
    with tempfile.TemporaryDirectory(prefix="autoplan-clone-") as name:
        directory = clone(Path(name))
        data = {
            "AUTOPLAN_DATA": str(shared("AUTOPLAN_DATA", "data")),
            "AUTOPLAN_CASES": str(shared("AUTOPLAN_CASES", "cases")),
        }
        out, _, seconds = run(report, ["make", "demo"], directory=directory)
        report.measure(f"make demo, set-up included: {seconds:.0f} s")
        check_demo(report, out)
        _, _, again = run(report, ["make", "demo"], directory=directory)
        report.require(again < seconds, f"make demo the second time: {again:.0f} s")
        out, _, seconds = run(report, ["make", "test"], directory=directory, environment=data)
        report.require(
            seconds < 60 * TEST_MINUTES,
            f"make test: {seconds / 60:.1f} min, under {TEST_MINUTES:g}: {out.strip().splitlines()[-1:]}",
        )


def wheel(report: Report) -> None:
    """`pip wheel .`, installed in a fresh environment away from the clone."""
    with tempfile.TemporaryDirectory(prefix="autoplan-wheel-") as name:
        directory = Path(name)
        source = clone(directory)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--quiet", "--no-deps"]
        run(report, [*pip, "-w", str(directory), "."], directory=source)
        wheels = list(directory.glob("autoplan-*.whl"))
        report.require(len(wheels) == 1, f"one wheel: {', '.join(path.name for path in wheels)}")
        environment = directory / "environment"
        run(report, [sys.executable, "-m", "venv", str(environment)], directory=directory)
        python = str(environment / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--quiet"]
        constraints = ["-c", str(source / "constraints.txt")]
        run(report, [*install, *constraints, *map(str, wheels)], directory=directory)
        command = str(environment / "bin" / "autoplan")
        out, _, seconds = run(report, [command, "demo"], directory=directory)
        report.measure(f"autoplan demo: {seconds:.0f} s")
        check_demo(report, out)
        code = (
            "import json\n"
            "from autoplan.plugins import registry\n"
            "working = [p.name for p in registry().plugins if p.devices and not p.error]\n"
            "print(json.dumps(sorted(working)))\n"
        )
        out, _, _ = run(report, [python, "-c", code], directory=directory)
        working = json.loads(out or "[]")
        report.require(
            working == list(DEVICE_PLUGINS), f"device plugins found: {', '.join(working)}"
        )


def imports(report: Report) -> None:
    """Importing autoplan imports no torch; `autoplan --help` is quick."""
    code = "import autoplan, sys; assert 'torch' not in sys.modules"
    _, _, seconds = run(report, [sys.executable, "-c", code])
    report.measure(f"`{code}`: {seconds:.2f} s")
    command = [str(Path(sys.executable).parent / "autoplan"), "--help"]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    shown = ", ".join(f"{value:.2f}" for value in times)
    report.require(
        statistics.median(times) < HELP_SECONDS,
        f"autoplan --help: {shown} s, median under {HELP_SECONDS:g}",
    )


def bare_call(report: Report) -> None:
    """`autoplan.optimize(model, graph, devices)` on Cora, nothing else given, and training what it chose."""
    import torch
    from torch_geometric.nn.models import GCN

    import autoplan
    from autoplan.datasets import planetoid

    graph = planetoid(shared("AUTOPLAN_DATA", "data") / "planetoid", "Cora")
    torch.manual_seed(0)
    model = GCN(graph.num_node_features, 16, num_layers=2, out_channels=7, dropout=0.5)
    plan = autoplan.optimize(model, graph, ["cpu", "cpu"])
    report.measure(f"strategy {plan.strategy}; {plan.data.loss}")
    result = plan.train(model, graph, epochs=100, progress=False)
    first, last = result.losses[0], result.losses[-1]
    report.require(last < first / 4, f"loss {first:.3f} at first, {last:.3f} after 100 epochs")
    hits = plan.predict(model, graph).argmax(dim=-1) == graph.y
    report.measure(f"test accuracy {hits[graph.test_mask].float().mean():.3f}")


def shared(variable: str, name: str) -> Path:
    """A folder that the tests use: an environment variable, or ``../shared/NAME`` beside the checkout."""
    return Path(os.environ.get(variable, ROOT.parent / "shared" / name)).resolve()


def tests(*selection: str) -> Callable[[Report], None]:
    """A check that runs the project's own tests on two processes."""
    return lambda report: run_tests(report, "-n", "2", *selection)


TRAPS = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/trace/test_traps_*.py"))]

CHECKS = (
    Check("imports", "importing imports no torch; --help under 1 s", 2, imports),
    Check("fresh-clone", "in a fresh clone, make demo and make test", 20, fresh_clone),
    Check("wheel", "pip wheel, a fresh environment, the demo, five device plugins", 5, wheel),
    Check(
        "cora",
        "Cora: accuracy 0.80 and equal loss curves on 1, 2, 3 and 4 workers",
        6,
        tests("tests/integration/test_cora.py", "tests/test_datasets.py"),
    ),
    Check(
        "verify",
        "verify on an awkward graph: seven models, P = 2, 3, 4, dropout 0 and 0.5",
        6,
        tests("tests/integration/test_verify_models.py"),
    ),
    Check(
        "traps",
        "the traps of tracing: right, guarded or refused, never silently wrong",
        4,
        tests(*TRAPS),
    ),
    Check(
        "programs",
        "programs that shard wrongly when done naively give one device's numbers",
        4,
        tests("tests/integration/test_programs.py"),
    ),
    Check(
        "cases",
        "the shared cases h01, h02, h03, h09, h10",
        3,
        tests("tests/integration/test_cases.py"),
    ),
    Check("bare-call", "the bare optimize(model, graph, devices) on Cora trains", 3, bare_call),
    Check(
        "communication",
        "payload bytes counted at the process group are the plan's; one collective too many is seen",
        4,
        tests(
            "tests/integration/test_communication.py",
            "tests/execute/test_train.py::test_an_extra_collective_is_noticed",
        ),
    ),
    Check(
        "enumeration",
        "the plan equals enumeration on small problems",
        3,
        tests("tests/search/test_ilp.py"),
    ),
)
