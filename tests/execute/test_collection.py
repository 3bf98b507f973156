from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from autoplan.execute.collection import (
    CollatedAttribute,
    GraphCollection,
    load_collection,
    ranges,
    save_collection,
)

NODES = [3, 1, 0, 5, 2]
EDGES = [4, 0, 0, 7, 1]


def graphs() -> list[Data]:
    generator = torch.Generator().manual_seed(0)
    return [
        Data(
            x=torch.randn(nodes, 2, generator=generator),
            edge_index=torch.randint(0, max(nodes, 1), (2, edges), generator=generator),
            y=torch.tensor([number]),
        )
        for number, (nodes, edges) in enumerate(zip(NODES, EDGES, strict=True))
    ]


def collection() -> GraphCollection:
    def collated(name: str, dim: int, shifts: list[int] | None = None) -> CollatedAttribute:
        values = [graph[name] for graph in graphs()]
        starts = np.concatenate([[0], np.cumsum([value.size(dim) for value in values])])
        own = None if shifts is None else np.array(shifts)
        return CollatedAttribute(torch.cat(values, dim), dim, starts, own)

    return GraphCollection(
        {
            "x": collated("x", 0),
            "edge_index": collated("edge_index", 1, NODES),
            "y": collated("y", 0),
        },
        {"node": np.array(NODES), "edge": np.array(EDGES), "graph": np.ones(5, dtype=np.int64)},
    )


@pytest.mark.parametrize("chosen", [[0, 1, 2, 3, 4], [3], [4, 0, 3], [2], [1, 2], [3, 2, 4]])
def test_some_graphs_put_together_equal_a_batch_of_pyg(chosen: list[int]) -> None:
    batch = Batch.from_data_list([graphs()[number] for number in chosen])
    for name in ("x", "edge_index", "y", "batch"):
        found = collection().tensor(name, np.array(chosen))
        assert torch.equal(found, batch[name]), name
        assert found.dtype == batch[name].dtype


def test_places_among_others_keep_the_positions_of_all() -> None:
    chosen, places = np.array([3, 0, 1, 4]), np.array([1, 3])
    batch = Batch.from_data_list([graphs()[number] for number in chosen])
    rows = torch.isin(batch.batch, torch.tensor(places))
    found = collection().tensor("x", chosen, among=places)
    assert torch.equal(found, batch.x[rows])
    assert torch.equal(collection().tensor("batch", chosen, among=places), batch.batch[rows])
    edges = collection().tensor("edge_index", chosen, among=places)
    assert torch.equal(edges, batch.edge_index[:, rows[batch.edge_index[1]]])


def test_a_collection_is_mapped_as_it_was_written(tmp_path: Path) -> None:
    save_collection(tmp_path / "graphs.pt", collection())
    found = load_collection(tmp_path / "graphs.pt")
    assert len(found) == 5
    np.testing.assert_array_equal(found.weights, np.add(NODES, EDGES))
    for name in ("x", "edge_index", "y"):
        chosen = np.array([4, 3])
        assert torch.equal(found.tensor(name, chosen), collection().tensor(name, chosen))


def test_an_unknown_attribute_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="z"):
        collection().tensor("z", np.array([0]))


def test_ranges() -> None:
    starts = np.array([0, 2, 2, 5])
    assert ranges(starts, np.array([2, 1, 0])).tolist() == [2, 3, 4, 0, 1]
    assert ranges(starts, np.array([], dtype=np.int64)).tolist() == []
