"""``--json``: one JSON document on stdout and nothing else, with the solver at work and a plugin that prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoplan.search.result import FAMILIES

from .processes import ROOT

MODEL = """
import os
import torch
from torch_geometric.nn.models import GCN
from tests.integration.graphs import awkward_graph

print("printed by the user's file")

def build():
    print("printed by build")
    os.write(1, b"written by build\\n")
    torch.manual_seed(0)
    return GCN(8, 12, 2, 4), awkward_graph()

def larger():
    return GCN(8, 12, 2, 4), awkward_graph(80, 300)
"""
PLUGIN = """
import os
import autoplan
from autoplan.device import DeviceProfile

print("printed by a plugin on import")
os.write(1, b"written by a plugin on import\\n")

@autoplan.hookimpl
def autoplan_devices():
    print("printed by a hook")
    os.write(1, b"written by a hook\\n")
    yield DeviceProfile(name="loud", kind="npu", title="A loud device", flop_per_s={"float32": 1e12},
                        bytes_per_s=1e11, memory_bytes=2**30, launch_seconds=1e-6)
"""
# Every command in turn in one process, as importing torch takes seconds; the plugin is loaded anew each time.
DRIVER = """
import json, os, sys
from autoplan.cli.main import main
from autoplan.plugins import _installed

commands = json.loads(sys.argv[1])
for number, arguments in enumerate(commands):
    _installed.cache_clear()
    sys.modules.pop("loud_plugin", None)
    kept = os.dup(1)
    target = os.open(f"{number}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code or 0
    sys.stdout.flush()
    os.dup2(kept, 1)
    print(json.dumps(code), flush=True)
"""
COMMANDS = [
    ["plan", "model.py:build", "--strategy", "data", "--save", "plan.json", "--json"],
    ["explain", "plan.json", "--json"],
    ["explain", "model.py:build", "--json"],
    ["show", "plan.json", "--json"],
    ["show", "plan.json", "--part", "memory", "--json"],
    ["diff", "plan.json", "plan.json", "--json"],
    ["rebind", "plan.json", "model.py:larger", "--json"],
    ["run", "model.py:build", "--strategy", "single", "--epochs", "2", "--json"],
    ["verify", "model.py:build", "--devices", "2xcpu", "--json"],
    ["devices", "--json"],
    ["devices", "loud", "--json"],
    ["plugins", "--json"],
]
DEMO = ["demo", "--epochs", "2", "--json"]


@pytest.mark.long
@pytest.mark.parametrize("demo", [False, pytest.param(True, marks=pytest.mark.accept)])
def test_every_command_prints_one_document(tmp_path: Path, demo: bool) -> None:
    commands = [*COMMANDS[:-3], *([DEMO] if demo else []), *COMMANDS[-3:]]
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    plugins = tmp_path / "plugins"
    dist = plugins / "loud-1.0.dist-info"
    dist.mkdir(parents=True)
    (plugins / "loud_plugin.py").write_text(PLUGIN, encoding="utf-8")
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[autoplan]\nloud = loud_plugin\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(plugins)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == ["0"] * len(commands), done.stderr
    documents = [json.loads((tmp_path / f"{i}.out").read_text()) for i in range(len(commands))]
    plan, explained, *_ = documents
    assert plan == explained == json.loads((tmp_path / "plan.json").read_text())
    listed, one, installed = documents[-3:]
    assert "loud" in json.dumps(listed)
    assert "A loud device" in json.dumps(one)
    assert "loud" in json.dumps(installed)
    for said in ("printed by a plugin on import", "written by a hook", "written by build"):
        assert said in done.stderr
    if demo:
        _check_demo(documents[-4])


def _check_demo(demo: dict) -> None:
    candidates = {each["strategy"]: each for each in demo["candidates"]}
    assert candidates.keys() == set(FAMILIES)
    for each in candidates.values():
        assert (each["reason"] is None) == ("step_seconds" in each)
    many = {each["strategy"]: each for each in demo["many_graphs"]["candidates"]}
    assert many["pipeline"]["reason"] is None
    assert "one connected graph" in candidates["pipeline"]["reason"]
    assert demo["verified"]
    assert demo["many_graphs"]["verified"]
    for each in (candidates["data"], candidates["model"], many["data"], many["pipeline"]):
        counted = each["communication_bytes"]
        assert counted["predicted"] == counted["measured"]
