from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from autoplan import datasets
from autoplan.errors import AutoplanError


def check_splits(graph: Data) -> None:
    masks = graph.train_mask, graph.val_mask, graph.test_mask
    assert all(mask.dtype == torch.bool and mask.any() for mask in masks)
    assert int(sum(mask.long() for mask in masks).max()) == 1


def check_edges(graph: Data) -> None:
    pairs = {tuple(pair) for pair in graph.edge_index.t().tolist()}
    assert len(pairs) == graph.edge_index.size(1)
    assert all((target, source) in pairs and source != target for source, target in pairs)


def trained_accuracy(graph: Data, epochs: int) -> float:
    torch.manual_seed(0)
    model = GCN(graph.num_features, 16, 2, int(graph.y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(F.dropout(graph.x), graph.edge_index)
        F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask]).backward()
        optimizer.step()
    model.eval()
    hits = model(graph.x, graph.edge_index).argmax(dim=1) == graph.y
    return hits[graph.test_mask].float().mean().item()


def test_digits():
    graph = datasets.digits()
    assert graph.x.shape == (1797, 64)
    assert graph.x.dtype == torch.float32
    assert float(graph.x.min()) == 0
    assert float(graph.x.max()) == 1
    assert graph.y.unique().numel() == 10
    check_splits(graph)
    check_edges(graph)


def test_digits_are_repeatable_from_a_seed():
    graph, same, other = datasets.digits(3), datasets.digits(3), datasets.digits(3, seed=1)
    assert all(torch.equal(graph[name], same[name]) for name in ("x", "edge_index", "train_mask"))
    assert not torch.equal(graph.train_mask, other.train_mask)
    assert graph.num_edges < 1797 * 6


def test_digits_can_be_learned():
    assert trained_accuracy(datasets.digits(), epochs=100) > 0.95


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "trained"),
    [("Cora", 2708, 10556, 1433, 7, 140), ("CiteSeer", 3327, 9104, 3703, 6, 120)],
)
def test_planetoid(data_directory, name, nodes, edges, features, classes, trained):
    graph = datasets.planetoid(data_directory / "planetoid", name)
    assert graph.x.shape == (nodes, features)
    assert graph.num_edges == edges
    assert int(graph.y.max()) + 1 == classes
    counts = [int(graph[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")]
    assert counts == [trained, 500, 1000]
    check_splits(graph)
    check_edges(graph)
    sums = graph.x.sum(dim=1)
    assert torch.allclose(sums[sums > 0], torch.ones(1), atol=1e-5)
    raw = datasets.planetoid(data_directory / "planetoid" / name, name.lower(), normalise=False)
    assert set(raw.x.unique().tolist()) == {0.0, 1.0}


@pytest.mark.long
def test_cora_reaches_the_published_accuracy(data_directory):
    assert trained_accuracy(datasets.planetoid(data_directory / "planetoid", "cora"), 200) >= 0.8


def test_missing_files(tmp_path):
    with pytest.raises(AutoplanError, match=r"no file ind\.cora\.x .*Cora/raw"):
        datasets.planetoid(tmp_path, "Cora")
    (tmp_path / "ind.cora.x").write_bytes(b"")
    with pytest.raises(AutoplanError, match=r"ind\.cora\.tx is missing"):
        datasets.planetoid(tmp_path, "Cora")


def test_pickles_that_would_run_code_are_refused(tmp_path):
    (tmp_path / "ind.cora.x").write_bytes(b"")
    (tmp_path / "ind.cora.tx").write_bytes(pickle.dumps(subprocess.Popen))
    with pytest.raises(AutoplanError, match=r"asks for subprocess\.Popen"):
        datasets.planetoid(tmp_path, "Cora")


def test_importing_them_imports_no_torch():
    code = "import sys, autoplan.datasets; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
