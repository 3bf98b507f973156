"""A stand-in for `autoplan.api`, so that the command line is tested without torch, and a way to run commands."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autoplan.cli.main import main
from autoplan.errors import DeviceError, ExecutionError, InfeasibleError, PlanError
from autoplan.plan import PlanData
from autoplan.report.rebound import Rebound
from autoplan.report.text import explain
from tests.report.plans import data_plan, single_plan


class FakePlan:
    def __init__(self, data: PlanData) -> None:
        self.data = data
        self.strategy = data.strategy
        self.changes: Rebound | None = None

    def explain(self) -> str:
        return explain(self.data)

    def save(self, path: Path) -> None:
        path.write_text(self.data.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path, loss: Any = None, devices: Any = None) -> FakePlan:
        if devices not in (None, "2xcpu"):
            raise PlanError("the plan was made for other devices")
        return cls(PlanData.from_json(path.read_text(encoding="utf-8")))

    def rebind(self, graph: Any, model: Any) -> FakePlan:
        rows = (("edge", 18000), ("node", 1800))
        cut = replace(self.data.partition, owned_edges=(9000, 9000))
        plan = FakePlan(replace(self.data, graph_rows=rows, partition=cut, rebound=True))
        plan.changes = Rebound.of(self.data, plan.data)
        return plan

    def train(self, model: Any, graph: Any, *, epochs: int, **options: Any) -> SimpleNamespace:
        if model == "failing worker":
            raise ExecutionError("rank 1 failed", rank=1, worker_traceback="Traceback: in forward")
        return SimpleNamespace(
            losses=tuple(1.0 / (1 + epoch) for epoch in range(epochs)),
            metrics={"test": 0.5},
            step_seconds=3e-3,
            peak_bytes=tuple(int(p.value) for p in self.data.predicted.peak_bytes),
            communication_bytes=self.data.predicted.communication_bytes,
            ran_as_planned=True,
        )


class FakeVerification(SimpleNamespace):
    def __str__(self) -> str:
        return "equal" if self.ok else "different in conv1.weight"


@dataclass
class FakeApi:
    """What the commands asked for."""

    calls: list[dict[str, Any]] = field(default_factory=list)

    def optimize(self, model: Any, graph: Any, devices: str, **options: Any) -> FakePlan:
        print("a library that prints to stdout")
        self.calls.append({"model": model, "graph": graph, "devices": devices, **options})
        if devices == "2xabacus":
            raise DeviceError("there is no device 'abacus'; there are cpu, cuda")
        if devices == "2xtiny":
            raise InfeasibleError("'emb.weight' needs 32.0 MiB, the largest device has 8.0 MiB")
        return FakePlan(data_plan() if options["strategy"] == "data" else single_plan())

    def verify(self, plan: FakePlan, model: Any, graph: Any, steps: int = 3) -> FakeVerification:
        ok = model != "wrong model"
        return FakeVerification(
            ok=ok,
            workers=len(plan.data.devices),
            steps=steps,
            loss_error=0.0,
            output_error=0.0,
            gradient_error=1e-16 if ok else math.inf,
            weight_error=0.0,
            buffer_error=0.0,
            eager_error=0.0,
            worst_parameter="conv1.weight",
            bound=1e-10,
        )


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    module = ModuleType("autoplan.api")
    module.__dict__.update(optimize=fake.optimize, verify=fake.verify, Plan=FakePlan)
    monkeypatch.setitem(sys.modules, "autoplan.api", module)
    return fake


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Runs `autoplan ARGUMENTS` in this process."""

    def run(*arguments: object) -> Finished:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int) or code is None
        return Finished(code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> str:
    """FILE.py:build of a model and graph that only the stand-in understands."""
    path = tmp_path / "some_model.py"
    path.write_text(
        "def build():\n    print('hello from build')\n    return 'model', 'graph'\n",
        encoding="utf-8",
    )
    return f"{path}:build"
