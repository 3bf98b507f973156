"""Every example runs, and serves as a target of the command line."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from autoplan.cli.target import load_target


def example(repository: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, repository / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_gcn_digits(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example(repository, "gcn_digits").main(epochs=60)
    out = capsys.readouterr().out
    assert "data on 2 devices (2xcpu): exact" in out
    found = re.search(r"test accuracy ([0-9.]+)", out)
    assert found is not None
    assert float(found[1]) > 0.9


@pytest.mark.long
def test_gcn_cora(
    repository: Path,
    data_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUTOPLAN_DATA", str(data_directory))
    example(repository, "gcn_cora").main(epochs=60)
    rows = dict(line.split(":", 1) for line in capsys.readouterr().out.strip().splitlines())
    assert set(rows) == {"single", "data"}
    losses = {name: float(re.search(r"last loss ([0-9.]+)", row)[1]) for name, row in rows.items()}
    assert losses["data"] == pytest.approx(losses["single"], abs=1e-3)


@pytest.mark.long
def test_gin_graphs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example(repository, "gin_graphs").main(epochs=20)
    out = capsys.readouterr().out
    assert "2 parts of whole graphs" in out
    assert "80 steps" in out
    assert "the plan equals one device" in out
    found = re.search(r"accuracy ([0-9.]+)", out)
    assert found is not None
    assert float(found[1]) > 0.95


@pytest.mark.long
def test_gin_pipeline(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example(repository, "gin_pipeline").main(epochs=4)
    out = capsys.readouterr().out
    assert "pipeline on 2 devices (2xcpu): exact" in out
    assert "4 micro-batches of whole graphs" in out
    assert "the plan equals one device" in out
    found = re.search(r"12 steps.*losses differ by ([0-9.e-]+) at most", out, flags=re.DOTALL)
    assert found is not None
    assert float(found[1]) < 1e-4


def test_an_example_is_a_target(repository: Path) -> None:
    target = load_target(f"{repository}/examples/gcn_digits.py:build")
    assert type(target.model).__name__ == "GCN"
    assert target.graph.num_nodes == 1797
    assert target.loss is None
