"""What `optimize` takes: one graph, a batch, a list or data set of graphs; everything else is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Subset, WeightedRandomSampler
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader, NeighborLoader

from autoplan.errors import AutoplanError, PlanError, TraceError
from autoplan.plan import BatchUse
from autoplan.planner.source import batch_size_of, source_of
from autoplan.planner.workload import StepRequest

NODES = (4, 1, 0, 6, 3, 2, 5)


def graph(number: int, nodes: int) -> Data:
    generator = torch.Generator().manual_seed(number)
    edges = 2 * nodes if nodes else 0
    return Data(
        x=torch.randn(nodes, 3, generator=generator),
        edge_index=torch.randint(0, max(nodes, 1), (2, edges), generator=generator),
        edge_attr=torch.randn(edges, 2, generator=generator),
        y=torch.tensor([number % 2]),
    )


def graphs() -> list[Data]:
    return [graph(number, nodes) for number, nodes in enumerate(NODES)]


def test_one_graph_is_every_step() -> None:
    data = graph(0, 4)
    source = source_of(data)
    assert source.whole is source.typical is source.graph(5, seed=1) is data
    assert (source.streamed, source.use) == (False, None)


def test_a_batch_is_taken_as_it_is() -> None:
    batch = Batch.from_data_list(graphs())
    assert source_of(batch).whole is batch
    assert source_of(batch, 3).use == BatchUse("graph", 7, 3, 3)


@pytest.mark.parametrize("kind", [list, tuple, lambda own: Subset(own, range(len(own)))])
def test_all_graphs_at_once_equal_a_batch_of_pyg(kind) -> None:
    source = source_of(kind(graphs()))
    wanted = Batch.from_data_list(graphs())
    assert source.use == BatchUse("graph", 7, 7, 1)
    assert source.whole is source.typical
    assert isinstance(source.whole, Batch)
    for name in ("x", "edge_index", "edge_attr", "y", "batch", "ptr"):
        assert torch.equal(source.whole[name], wanted[name]), name
    assert source.whole.num_graphs == 7
    assert source.whole.num_nodes == wanted.num_nodes


def test_a_step_takes_the_graphs_that_the_order_says() -> None:
    source = source_of(graphs(), 3)
    assert source.streamed
    assert source.use == BatchUse("graph", 7, 3, 3)
    for step in range(6):
        chosen = source.order(9).batch(step)
        wanted = Batch.from_data_list([graphs()[number] for number in chosen])
        found = source.graph(step, seed=9)
        for name in ("x", "edge_index", "edge_attr", "y", "batch", "ptr"):
            assert torch.equal(found[name], wanted[name]), name
        assert found.num_graphs == len(chosen)


def test_the_typical_batch_is_the_largest_of_the_first_epoch() -> None:
    source = source_of(graphs(), 3)
    sizes = [source.graph(step, 0).num_nodes + source.graph(step, 0).num_edges for step in range(3)]
    assert source.typical.num_nodes + source.typical.num_edges == max(sizes)


@pytest.mark.parametrize("size", [7, 8, 1000])
def test_a_batch_of_all_or_more_is_all_in_their_own_order(size: int) -> None:
    source = source_of(graphs(), size)
    assert not source.streamed
    assert source.use == BatchUse("graph", 7, 7, 1)
    assert batch_size_of(source.use) is None
    assert batch_size_of(source_of(graphs(), 2).use) == 2


def test_attributes_are_known_from_the_graphs_one_by_one() -> None:
    # as many graphs as nodes in all: sizes of the whole alone do not tell
    singles = [
        Data(x=torch.ones(1, 3), edge_index=torch.zeros(2, 2).long(), mood=torch.ones(2))
        for _ in range(3)
    ]
    source = source_of(
        [
            *singles,
            Data(x=torch.ones(2, 3), edge_index=torch.zeros(2, 3).long(), mood=torch.ones(3)),
        ]
    )
    assert source.hints is not None
    assert (source.hints["x"], source.hints["mood"]) == ("node", "edge")
    request = source.request(StepRequest(inputs={"mood": "constant"}))
    assert request.inputs == {"x": "node", "mood": "constant"}


def test_numbers_are_a_row_for_each_graph_and_names_are_left_out() -> None:
    own = graphs()
    for number, data in enumerate(own):
        data.energy, data.name = 0.5 * number, f"molecule {number}"
    source = source_of(own)
    assert torch.equal(source.whole.energy, 0.5 * torch.arange(7))
    assert source.hints is not None
    assert source.hints["energy"] == "graph"
    assert "name" not in source.whole


def test_lists_of_nodes_are_shifted_like_edges() -> None:
    own = [graph(number, nodes) for number, nodes in enumerate((4, 6, 3))]
    for data, listed in zip(own, ([1, 3], [5], [0, 2, 1]), strict=True):
        data.train_idx = torch.tensor(listed)
        data.root_index = torch.tensor(listed[:1])
    own[1].root_index = torch.tensor([4, 5])
    whole = source_of(own).whole
    assert whole.train_idx.tolist() == [1, 3, 9, 10, 12, 11]
    assert torch.equal(whole.root_index, Batch.from_data_list(own).root_index)


def test_a_number_of_each_graph_is_no_list_of_nodes() -> None:
    own = graphs()
    for number, data in enumerate(own):
        data.idx = torch.tensor([100 + number])
    source = source_of(own)
    assert source.whole.idx.tolist() == list(range(100, 107))
    assert source.hints is not None
    assert source.hints["idx"] == "graph"


def test_one_node_or_one_value_of_each_graph_is_asked_for() -> None:
    own = [graph(number, nodes) for number, nodes in enumerate((4, 6, 3))]
    for data in own:
        data.root_idx = torch.tensor([2])
    with pytest.raises(
        TraceError, match=r"root_idx has one entry for each graph.*'index'.*'graph'"
    ):
        source_of(own)
    assert source_of(own, None, {"root_idx": "index"}).whole.root_idx.tolist() == [2, 6, 12]
    assert source_of(own, None, {"root_idx": "graph"}).whole.root_idx.tolist() == [2, 2, 2]


def test_a_class_of_the_user_says_how_its_graphs_go_together() -> None:
    class Pair(Data):
        def __inc__(self, key, value, *args, **kwargs):
            return 10 if key == "cluster" else super().__inc__(key, value, *args, **kwargs)

        @property
        def doubled(self) -> torch.Tensor:
            return 2 * self.x

    own = [
        Pair(**graph(n, nodes).to_dict(), cluster=torch.arange(nodes))
        for n, nodes in enumerate((4, 6))
    ]
    source = source_of(own, 1)
    assert torch.equal(source.whole.cluster, Batch.from_data_list(own).cluster)
    assert torch.equal(source.whole.doubled, 2 * source.whole.x)


def changed(number: int, **attributes: object) -> list[Data]:
    own = graphs()
    for name, value in attributes.items():
        own[number][name] = value
    return own


def without(number: int, name: str) -> list[Data]:
    own = graphs()
    del own[number][name]
    return own


REFUSED = {
    "empty list": ([], "list of graphs is empty; give at least one"),
    "no graph": ([graph(0, 2), "a graph"], "graph 1 of the list is a str"),
    "several types": ([graph(0, 2), HeteroData()], "graph 1 of the list is a HeteroData"),
    "a batch inside": (
        [graph(0, 2), Batch.from_data_list(graphs())],
        "graph 1 .* is itself a Batch of 7",
    ),
    "a batch vector": (changed(3, batch=torch.zeros(6).long()), "graph 3 .* has a batch vector"),
    "missing": (without(4, "edge_attr"), "graph 4 has no edge_attr, which graph 0 has"),
    "extra": (changed(5, pos=torch.ones(2, 2)), "graph 0 has no pos, which graph 5 has"),
    "dtype": (
        changed(2, x=torch.zeros(0, 3).double()),
        r"x of graph 2 is float64 \[0, 3\], that of graph 0 is float32",
    ),
    "width": (
        changed(3, x=torch.zeros(6, 5)),
        r"x of graph 3 is float32 \[6, 5\], that of graph 0",
    ),
    "dims": (changed(3, y=torch.zeros(1, 1).long()), "y of graph 3"),
    "no edges": ([Data(x=torch.ones(2, 1))] * 2, "graphs have no edge_index"),
    "transposed": (
        changed(0, edge_index=torch.zeros(8, 2).long()),
        r"edge_index of graph 0 is int64 \[8, 2\]",
    ),
    "a node of the next graph": (
        changed(0, edge_index=torch.tensor([[0] * 8, [4] * 8])),
        "edge_index of graph 0 holds the node id 4, but that graph has 4 nodes",
    ),
    "sparse": (changed(1, adj=torch.eye(2).to_sparse()), "adj of graph 1 is a sparse tensor"),
    "a mapping": ({"a": graph(0, 2)}, "the graph is a dict"),
    "a generator": ((own for own in graphs()), "the graph is a generator.*a list"),
    "nothing": (None, "the graph is a NoneType"),
    "torch loader": (
        TorchLoader(graphs(), batch_size=4, collate_fn=Batch.from_data_list),
        r"is a DataLoader, which puts graphs together in a way of its own; give its data set .*loader.dataset, devices, batch_size=4",
    ),
    "loader that cannot collate": (
        TorchLoader(graphs(), batch_size=2),
        r"torch_geometric\.loader\.DataLoader does.*loader.dataset, devices, batch_size=2\)",
    ),
    "loader that leaves graphs out": (
        DataLoader(graphs(), batch_size=2, drop_last=True),
        r"a DataLoader with drop_last=True.*loader.dataset, devices, batch_size=2\)",
    ),
    "loader that adds batch vectors": (
        DataLoader(graphs(), batch_size=2, follow_batch=["x"]),
        r"with follow_batch or exclude_keys.*loader.dataset",
    ),
    "loader with a sampler": (
        DataLoader(graphs(), batch_size=2, sampler=WeightedRandomSampler([1.0] * 4, 4)),
        r"with a sampler of its own.*loader.dataset",
    ),
    "loader with a batch sampler": (
        DataLoader(graphs(), batch_sampler=[[0, 1], [2]]),
        r"with a sampler of its own.*batch_size=\.\.\.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_source_is_refused_by_name(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(TraceError, match=message):
        source_of(given)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [2, 32])
def test_a_loader_of_whole_graphs_is_its_data_set(size: int, shuffle: bool) -> None:
    loader = DataLoader(graphs(), batch_size=size, shuffle=shuffle)

    found, expected = source_of(loader), source_of(graphs(), size)

    assert found.use == expected.use
    for step in range(3):
        a, b = found.graph(step, 3), expected.graph(step, 3)
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.edge_index, b.edge_index)
    assert source_of(loader, size).use == expected.use
    with pytest.raises(PlanError, match=rf"takes {size} graphs in a step and 1 are asked for"):
        source_of(loader, 1)


def test_a_loader_that_samples_is_refused() -> None:
    class Sampling(TorchLoader):
        data = graph(0, 4)

    assert issubclass(NeighborLoader, TorchLoader)
    with pytest.raises(TraceError, match=r"samples from one graph.*loader.data"):
        source_of(Sampling([1, 2]))


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "batch_size is 0; it must be at least 1"),
        (-3, "is -3"),
        (2.5, "whole number"),
        ("32", "whole number"),
    ],
)
def test_batch_sizes_are_whole_numbers(size: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        source_of(graphs(), size)  # type: ignore[arg-type]


def test_a_numpy_integer_is_a_batch_size() -> None:
    assert source_of(graphs(), np.int64(3)).batch_size == 3  # type: ignore[arg-type]


def test_a_batch_size_needs_many_graphs() -> None:
    with pytest.raises(AutoplanError, match=r"one Data was given.*leave batch_size out"):
        source_of(graph(0, 4), 2)


def test_a_batch_that_cannot_be_taken_apart_needs_its_graphs() -> None:
    batch = Batch(
        batch=torch.tensor([0, 0, 1]), x=torch.ones(3, 1), edge_index=torch.zeros(2, 1).long()
    )
    with pytest.raises(TraceError, match=r"not made by Batch\.from_data_list"):
        source_of(batch, 1)


def test_the_users_graphs_are_left_as_they_are() -> None:
    own = graphs()
    before = [data.clone() for data in own]
    source_of(own, 2)
    for data, kept in zip(own, before, strict=True):
        now, then = data.to_dict(), kept.to_dict()
        assert now.keys() == then.keys()
        assert all(torch.equal(now[name], then[name]) for name in then)
