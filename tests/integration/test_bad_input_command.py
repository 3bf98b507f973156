"""Bad input through the command line: exit code 2, nothing on stdout, one message on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoplan.cli.main import main

FILE = """
import torch
from torch_geometric.nn.models import GCN
from tests.integration.graphs import awkward_graph

def with_graph(**changes):
    graph = awkward_graph()
    for name, value in changes.items():
        if value is None:
            del graph[name]
        else:
            graph[name] = value
    return GCN(8, 12, 2, 4), graph

def no_edges():
    return with_graph(edge_index=None)

def far_nodes():
    return with_graph(edge_index=torch.full((2, 5), 99))

def wrong_dtype():
    return with_graph(x=torch.randn(60, 8).double())

def wrong_width():
    return with_graph(x=torch.randn(60, 9))

def wrong_label():
    return with_graph(y=torch.full((60,), 4))

def nothing():
    return GCN(8, 12, 2, 4), None

def captured():
    model, graph = with_graph()
    nodes = graph.train_mask.nonzero().view(-1)
    loss = lambda out, graph: torch.nn.functional.cross_entropy(out[nodes], graph.y[nodes])
    return model, graph, loss

def captured_mask():
    model, graph = with_graph()
    mask = graph.train_mask.tolist()
    return model, graph, lambda out, graph: (out[mask] ** 2).mean()

def captured_rows():
    model, graph = GCN(8, 12, 2, 4), awkward_graph(6000, 9000)
    rows = [3, 5999]
    return model, graph, lambda out, graph: (out[rows] ** 2).mean()

def good():
    return with_graph()
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "bad_models.py"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a command that must end with bad input."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    printed, told = capfd.readouterr()
    assert (ended.value.code, printed) == (2, "")
    last = told.splitlines()[-1]
    assert last.startswith("autoplan: ")
    assert "Traceback" not in told
    return last


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("no_edges", "the graph has no edge_index"),
        ("far_nodes", "holds the node id 99, but the graph has 60 nodes"),
        ("wrong_dtype", "x is float64; model: float32"),
        ("wrong_width", "graph.x has 9 columns"),
        ("wrong_label", "holds the label 4"),
        ("nothing", "give a torch_geometric.data.Data"),
        ("captured", "the loss '<lambda>' (bad_models.py:36) captures 'nodes'"),
        ("captured_mask", "captures 'mask' (a list of 60 booleans), an entry for each node"),
        ("captured_rows", "graph.rows_idx = torch.as_tensor(rows)) and use graph.rows_idx in the"),
    ],
)
@pytest.mark.parametrize("name", ["plan", "run", "verify"])
def test_graphs_and_losses(
    file: str, capfd: pytest.CaptureFixture[str], name: str, build: str, message: str
) -> None:
    assert message in refused(capfd, name, f"{file}:{build}", "--json")


@pytest.mark.parametrize("name", ["plan", "run", "verify", "demo"])
@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("2xabacus", "there is no device 'abacus'; known are cpu, "),
        ("cpu:2", "write '2xcpu'"),
        ("", "no devices given"),
    ],
)
def test_devices(
    file: str, capfd: pytest.CaptureFixture[str], name: str, devices: str, message: str
) -> None:
    target = [] if name == "demo" else [f"{file}:good"]
    assert message in refused(capfd, name, *target, "--devices", devices, "--json")


def cut_in_half(text: str) -> str:
    return text[: len(text) // 2]


def newer(text: str) -> str:
    return text.replace('"version": 3', '"version": 4', 1)


def older(text: str) -> str:
    return text.replace('"version": 3', '"version": 1', 1)


def other(text: str) -> str:
    return '{"name": "package", "dependencies": {}}'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut_in_half, "the file ends in the middle"),
        (newer, "version 4, made by a newer autoplan"),
        (older, "version 1, made by an older autoplan"),
        (other, "this is no plan, it is a JSON object with name, dependencies"),
    ],
)
def test_plan_files(
    file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], change, message: str
) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(SystemExit):
        main(["plan", f"{file}:good", "--devices", "cpu", "--save", str(path)])
    capfd.readouterr()
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    for arguments in (
        ["show", str(path)],
        ["explain", str(path)],
        ["diff", str(path), str(path)],
        ["rebind", str(path), f"{file}:good"],
        ["run", f"{file}:good", "--plan", str(path)],
        ["verify", f"{file}:good", "--plan", str(path)],
    ):
        told = refused(capfd, *arguments, "--json")
        assert f"{path}: " in told
        assert message in told
