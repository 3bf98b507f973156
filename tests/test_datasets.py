from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
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


@pytest.mark.parametrize("threads", [1, 2])
def test_digits_have_the_same_edges_on_every_machine(threads):
    # The README's figures are of this graph; ties between equally near images must not follow the number of threads.
    with threadpool_limits(threads):
        edges = datasets.digits().edge_index
    assert edges.shape == (2, 19858)
    digest = hashlib.sha256(edges.numpy().astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("c6e791d3d497a739")


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


@pytest.mark.accept
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


@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "arcs", "tags", "classes"),
    [
        ("MUTAG", 188, 3371, 7442, 7, [63, 125]),
        ("PROTEINS", 1113, 43471, 162088, 3, [663, 450]),
        ("NCI1", 4110, 122747, 265506, 37, [2053, 2057]),
    ],
)
def test_tu_graphs(data_directory, name, graphs, nodes, arcs, tags, classes):
    found = datasets.tu_graphs(data_directory / "tu_graphs" / f"{name}.txt.gz")
    assert len(found) == graphs
    assert sum(graph.num_nodes for graph in found) == nodes
    assert sum(graph.num_edges for graph in found) == arcs
    assert torch.cat([graph.y for graph in found]).bincount().tolist() == classes
    assert all(graph.y.shape == (1,) and graph.y.dtype == torch.int64 for graph in found)
    assert all(graph.x.shape[1] == tags and bool((graph.x.sum(1) == 1).all()) for graph in found)
    first = found[0]
    assert first.is_undirected()
    assert int(first.edge_index.max()) < first.num_nodes


def test_tu_graphs_are_read_as_they_are_written(tmp_path):
    path = tmp_path / "TWO.txt"
    path.write_text("2\n3 7\n5 1 1\n0 2 0 2\n5 1 1\n1 -1\n0 0\n")
    first, second = datasets.tu_graphs(path)
    assert first.x.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert first.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert second.edge_index.shape == (2, 0)
    assert (first.y.item(), second.y.item()) == (1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its end are no 1 whole"),
        ("1\n2 0\n0 0\n", "its end are no 2"),
        ("1\nx\n", "line 2 are no 2"),
    ],
)
def test_tu_files_of_another_form_are_refused(tmp_path, text, message):
    path = tmp_path / "BAD.txt"
    path.write_text(text)
    with pytest.raises(AutoplanError, match=message):
        datasets.tu_graphs(path)


def test_a_missing_tu_file_is_named(tmp_path):
    with pytest.raises(AutoplanError, match=r"MUTAG\.txt\.gz is missing"):
        datasets.tu_graphs(tmp_path / "MUTAG.txt.gz")


def test_rings_and_trees():
    graphs = datasets.rings_and_trees(10)
    assert [int(graph.y) for graph in graphs] == [0, 1] * 5
    for graph in graphs:
        ring = bool(graph.y)
        assert graph.x.shape == (graph.num_nodes, 1)
        assert 6 <= graph.num_nodes <= 20
        assert graph.num_edges == 2 * (graph.num_nodes - (not ring))
        check_edges(graph)
        degrees = graph.edge_index[0].bincount()
        assert degrees.min() >= 1
        assert not ring or degrees.unique().tolist() == [2]
    again = datasets.rings_and_trees(10)
    assert all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(graphs, again, strict=True))
