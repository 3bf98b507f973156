"""Every command on a plan with stages, for a list of graphs from ``FILE.py:build``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autoplan.cli.main import main

MODEL = """
import torch
from torch import nn
from torch_geometric.nn import GINConv, global_add_pool
from autoplan.datasets import rings_and_trees

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(nn.Linear(width, 8)) for width in (1, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))

def build():
    torch.manual_seed(0)
    return Net(), rings_and_trees(12)

def others():
    torch.manual_seed(0)
    return Net(), rings_and_trees(20, seed=1)

def few():
    torch.manual_seed(0)
    return Net(), rings_and_trees(2)

def by_name():
    torch.manual_seed(0)
    return {"model": Net(), "graphs": rings_and_trees(12), "batch_size": 5}
"""
PIPELINE = ("--strategy", "pipeline", "--micro-batches", "3", "--schedule", "gpipe")
Run = Callable[..., str]


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "stages_of.py"
    path.write_text(MODEL, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that must exit with ``code``; returns its stdout, or stderr where it fails."""

    def command(*arguments: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        # but for lines with the test's own long paths
        lines = captured.out.splitlines()
        assert all(len(line) <= 100 or "/" in line or line[:1] in '{" ' for line in lines)
        return captured.err if code and not captured.out else captured.out

    return command


@pytest.mark.long
def test_a_pipeline_from_plan_to_rebind(run: Run, target: str, tmp_path: Path) -> None:
    plan, again, rebound = (tmp_path / name for name in ("p.json", "again.json", "new.json"))
    build, others, few = (f"{target}:{name}" for name in ("build", "others", "few"))

    said = run("plan", build, *PIPELINE, "--save", plan)
    assert "pipeline on 2 devices (2xcpu): exact" in said
    assert "3 micro-batches of whole graphs, all forward, then all backward (GPipe)" in said
    assert run("explain", plan) == run("show", plan) == said
    assert run("explain", build, *PIPELINE) == said
    for part in ("candidates", "stages", "memory", "communication", "states"):
        assert run("show", plan, "--part", part).strip() in said
    stages = json.loads(run("show", plan, "--part", "stages", "--json"))
    assert stages["pipeline"]["micro_batches"] == 3
    assert [stage["ranks"] for stage in stages["stages"]] == [[0], [1]]

    run("plan", build, *PIPELINE, "--save", again, "--json")
    assert again.read_bytes() == plan.read_bytes()
    assert "are the same plan" in run("diff", plan, again)

    assert "the plan equals one device: 2 workers against one" in run(
        "verify", build, "--plan", plan
    )
    trained = run("run", build, "--plan", plan, "--epochs", "3")
    assert "Trained 3 epochs with pipeline on 2 devices" in trained
    assert "equal on every rank" in trained

    assert "rows of graph" in run("rebind", plan, others, "--save", rebound)
    assert "rows of graph" in run("diff", plan, rebound, code=1)
    assert "the plan equals one device" in run("verify", others, "--plan", rebound)
    refused = run("run", others, "--plan", plan, code=2)
    assert "another graph" in refused
    assert "autoplan rebind" in refused or "plan.rebind" in refused
    refused = run("rebind", plan, few, code=1)
    assert "2 graphs in a step are too few for 3 micro-batches" in refused


@pytest.mark.long
def test_batches_of_a_pipeline_are_counted_as_planned(run: Run, target: str) -> None:
    build = f"{target}:by_name"
    options = ("--strategy", "pipeline")
    trained = run("run", build, *options, "--epochs", "2")
    assert "Trained 2 epochs of 3 steps with pipeline on 2 devices" in trained
    assert "not as planned" not in trained
    assert "the plan equals one device" in run("verify", build, *options)


def test_model_stages_is_model(run: Run, target: str) -> None:
    said = run("plan", f"{target}:build", "--strategy", "model:stages")
    assert "model on 2 devices (2xcpu): exact" in said
