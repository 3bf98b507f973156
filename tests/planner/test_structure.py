"""The structure of a graph is computed once: in memory, on disk, per graph; damaged and foreign files are ignored and said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from autoplan.planner import structure
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.structure import cache_directory, describe, graph_structure
from autoplan.trace.schema import GraphSchema


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(structure, "_known", {})
    return cache_directory()


def _measured(seed: int = 0, edges: int = 200) -> MeasuredGraph:
    generator = torch.Generator().manual_seed(seed)
    graph = Data(
        x=torch.randn(50, 4), edge_index=torch.randint(50, (2, edges), generator=generator)
    )
    return MeasuredGraph.of(graph, GraphSchema.of(graph), (2,))


def test_it_is_computed_once_for_each_graph(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = describe(_measured())
    assert first.notes == ()
    assert [each.parts for each in first.structure.partitions] == [2]
    structure._known.clear()
    other = describe(_measured(1)).structure
    assert other != first.structure
    assert len(list(cache.iterdir())) == 2

    def never(*args: object, **named: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(structure, "structure", never)
    # from disk, then from memory
    structure._known.clear()
    assert describe(_measured()) == first
    for path in cache.iterdir():
        path.unlink()
    assert describe(_measured()) == first


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff\xfe",
        lambda text: b"{}",
        lambda text: text.replace(b'"format":2', b'"format":1'),
        lambda text: text.replace(b'"key":"', b'"key":"0'),
        lambda text: text.replace(b'"components":', b'"components":"many","x":'),
    ],
)
def test_damaged_and_foreign_files_are_ignored_said_and_replaced(cache: Path, damage) -> None:
    first = describe(_measured())
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    structure._known.clear()
    again = describe(_measured())
    assert again.structure == first.structure
    assert len(again.notes) == 1
    assert str(path) in again.notes[0]
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in the way")
    described = describe(_measured())
    assert described.structure.components >= 1
    assert any(str(cache) in note for note in described.notes)


def test_graphs_without_edges_are_described(cache: Path) -> None:
    graph = Data(x=torch.randn(3, 2), edge_index=torch.empty(2, 0, dtype=torch.long))
    assert graph_structure(graph).components == 3
