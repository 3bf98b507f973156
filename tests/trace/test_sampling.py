from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from autoplan.trace.sampling import GraphSample, draw_samples
from autoplan.trace.schema import GraphSchema
from tests.closed import batch_of
from tests.trace.graphs import node_graph


def samples_of(graph: Data, **options: object) -> list[dict[str, torch.Tensor]]:
    schema = GraphSchema.of(graph)
    return [named(schema, sample) for sample in draw_samples(graph, schema, **options)]


def named(schema: GraphSchema, sample: GraphSample) -> dict[str, torch.Tensor]:
    return dict(zip(schema.names, sample.tensors, strict=True))


@pytest.mark.parametrize("widths", [(), (84, 211, 97, 16), range(2, 60), range(80, 140)])
def test_sizes_are_distinct_mixed_and_no_widths(widths):
    graph = node_graph(x=torch.randn(300, 1))
    sizes = [
        (sample.rows["node"], sample.rows["edge"])
        for sample in draw_samples(graph, GraphSchema.of(graph), widths=widths)
    ]
    flat = [size for pair in sizes for size in (*pair, sum(pair))]
    assert len(set(flat)) == len(flat)
    assert not set(flat) & set(widths)
    for axis in zip(*sizes[:-1], strict=True):
        for modulus in (2, 3, 4, 8):
            assert len({size % modulus for size in axis}) > 1


def test_sizes_as_in_the_design_where_nothing_is_in_the_way():
    sizes = [sample["x"].size(0) for sample in samples_of(node_graph())]
    assert sizes[0] == 84
    assert sizes[2] < 10


def test_rows_are_real_and_belong_together():
    graph = node_graph()
    graph.y = torch.arange(300)
    graph.x = torch.arange(300).float().view(-1, 1).repeat(1, 20)
    for sample in samples_of(graph):
        assert torch.equal(sample["x"][:, 0].long(), sample["y"])
        real_mask = graph.train_mask[sample["y"]]
        assert not (sample["train_mask"] & ~real_mask).any()


def test_masks_select_several_rows_and_their_counts_differ():
    names = ("train_mask", "val_mask", "test_mask")
    samples = samples_of(node_graph())
    for name in names:
        counts = [int(sample[name].sum()) for sample in samples]
        assert min(counts) >= 2
        assert len(set(counts)) >= 4
        assert all(
            count < sample["x"].size(0) for count, sample in zip(counts, samples, strict=True)
        )


def test_rare_labels_are_in_every_sample_and_unlabelled_rows_are_not_selected():
    graph = node_graph()
    graph.train_mask = torch.zeros(300, dtype=torch.bool)
    graph.train_mask[[17, 230]] = True
    graph.y = torch.where(graph.train_mask, 3, -1)
    for sample in samples_of(graph):
        assert (sample["y"][sample["train_mask"]] == 3).all()
        assert int(sample["train_mask"].sum()) >= 2


@pytest.mark.parametrize("value", [True, False])
def test_masks_that_are_all_true_or_all_false_get_both(value):
    graph = node_graph(train_mask=torch.full((300,), value), seen=torch.full((900, 2), value))
    for sample in samples_of(graph):
        for name in ("train_mask", "seen"):
            columns = sample[name].view(sample[name].size(0), -1)
            assert columns.any(dim=0).all()
            assert not columns.all(dim=0).any()


def test_edges_are_directed_with_self_loop_duplicate_and_isolated_last_node():
    for sample in samples_of(node_graph()):
        edges = {tuple(edge) for edge in sample["edge_index"].t().tolist()}
        assert sum(source == target for source, target in edges) >= 2
        assert len(edges) <= sample["edge_index"].size(1) - 2
        assert any((target, source) not in edges for source, target in edges)
        assert int(sample["edge_index"].max()) < sample["x"].size(0) - 1


@pytest.mark.parametrize("end", [0, 1])
def test_edges_are_ordered_where_the_graphs_are(end):
    graph = node_graph()
    graph.edge_index = graph.edge_index[:, graph.edge_index[end].argsort()]
    for sample in samples_of(graph):
        assert (sample["edge_index"][end].diff() >= 0).all()
        assert not (sample["edge_index"][1 - end].diff() >= 0).all()


def test_further_axes_have_mixed_sizes_too():
    graph = node_graph(
        edge_label_index=torch.randint(0, 300, (2, 70)), train_idx=torch.arange(10, 60)
    )
    rows = [sample.rows for sample in draw_samples(graph, GraphSchema.of(graph))]
    for axis in ("edge:edge_label_index", "index:train_idx"):
        sizes = [row[axis] for row in rows[:-1]]
        assert all(len({size % modulus for size in sizes}) > 1 for modulus in (2, 3, 4, 8))
    flat = [size for row in rows for size in row.values()]
    assert len(set(flat)) == len(flat)


def test_edge_attributes_are_real_rows():
    graph = node_graph(edge_attr=torch.arange(900).float().view(-1, 1).repeat(1, 3))
    for sample in samples_of(graph):
        rows = sample["edge_attr"]
        assert rows.size(0) == sample["edge_index"].size(1)
        assert torch.equal(rows, graph.edge_attr[rows[:, 0].long()])


def test_node_lists_are_remapped_and_their_labels_follow():
    graph = node_graph()
    graph.y = torch.arange(300)
    graph.train_idx = torch.randperm(300)[:50]
    graph.y_train = graph.train_idx * 10
    schema = GraphSchema.of(graph, {"y_train": "index:train_idx"})
    for sample in draw_samples(graph, schema):
        tensors = named(schema, sample)
        listed = tensors["train_idx"]
        assert listed.numel() == sample.rows["index:train_idx"] >= 3
        assert torch.equal(tensors["y"][listed] * 10, tensors["y_train"])
        assert torch.isin(tensors["y"][listed], graph.train_idx).all()


def test_ascending_lists_stay_ascending():
    graph = node_graph(train_idx=torch.arange(10, 60))
    for sample in samples_of(graph):
        assert (sample["train_idx"].diff() > 0).all()


def test_second_relation():
    graph = node_graph(
        edge_label_index=torch.randint(0, 300, (2, 70)), edge_label=torch.randint(0, 2, (70,))
    )
    rows = {sample["edge_label"].numel() for sample in samples_of(graph)}
    assert len(rows) == 5
    for sample in samples_of(graph):
        assert sample["edge_label_index"].shape == (2, sample["edge_label"].numel())
        assert int(sample["edge_label_index"].max()) < sample["x"].size(0)


def test_batch_vector_ascends_and_covers_its_graphs():
    graph = node_graph(batch=torch.arange(300) // 10)
    graph.u = torch.randn(30, 4)
    for sample in samples_of(graph):
        assert (sample["batch"].diff() >= 0).all()
        assert sample["batch"].unique().numel() == sample["u"].size(0)
    graph = node_graph(batch=torch.zeros(300, dtype=torch.long))
    assert all(int(sample["batch"].max()) == 0 for sample in samples_of(graph))


def test_values_of_the_whole_graph_are_kept_and_copied():
    graph = node_graph(u=torch.randn(1, 5))
    for sample in samples_of(graph):
        assert torch.equal(sample["u"], graph.u)
        assert sample["u"] is not graph.u


def test_one_tensor_under_two_names():
    graph = node_graph()
    graph.pos = graph.x
    for sample in samples_of(graph):
        assert torch.equal(sample["pos"], sample["x"])
        assert sample["pos"] is not sample["x"]


@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (1, 1), (5, 0), (3, 2)])
def test_tiny_graphs(nodes, edges):
    graph = Data(
        x=torch.randn(nodes, 20),
        edge_index=torch.randint(0, nodes, (2, edges)),
        edge_attr=torch.randn(edges, 3),
        y=torch.zeros(nodes, dtype=torch.long),
        train_mask=torch.ones(nodes, dtype=torch.bool),
    )
    first = samples_of(graph)[0]
    assert first["x"].shape == (84, 20)
    assert first["edge_attr"].shape == (first["edge_index"].size(1), 3)
    assert first["edge_index"].size(1) > 84
    assert torch.isin(first["x"], graph.x).all()


def test_repeatable_from_a_seed_without_global_random_state():
    graph = node_graph()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()
    one, same, other = (samples_of(graph, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before[1:]
    assert all(torch.equal(a[name], b[name]) for a, b in zip(one, same, strict=True) for name in a)
    assert not torch.equal(one[0]["edge_index"], other[0]["edge_index"])


def test_requires_grad_is_kept_and_the_graph_is_not_linked():
    graph = node_graph()
    graph.x.requires_grad_()
    sample = samples_of(graph)[0]
    assert sample["x"].requires_grad
    assert sample["x"].is_leaf


def test_large_features_are_only_indexed(monkeypatch):
    graph = node_graph()
    seen: list[int] = []
    original = torch.Tensor.index_select

    def counted(self, dimension, index):
        seen.append(index.numel())
        return original(self, dimension, index)

    monkeypatch.setattr(torch.Tensor, "index_select", counted)
    monkeypatch.setattr(torch.Tensor, "clone", _no_large_clone(torch.Tensor.clone))
    samples_of(graph)
    assert max(seen) < 600


def _no_large_clone(original):
    def clone(self):
        assert self.numel() < 300 * 20, "a copy of x"
        return original(self)

    return clone


def test_edges_of_a_batch_stay_within_graphs():
    batch = batch_of()
    for sample in samples_of(batch):
        source, target = sample["edge_index"]
        assert torch.equal(sample["batch"][source], sample["batch"][target])
        assert (sample["batch"].diff() >= 0).all()
        assert int(sample["batch"].max()) + 1 == sample["y"].size(0) > 1
        edges = {tuple(edge) for edge in sample["edge_index"].t().tolist()}
        assert any((end, start) not in edges for start, end in edges)
        assert len(edges) <= sample["edge_index"].size(1) - 2
        assert int(sample["edge_index"].max()) < sample["x"].size(0) - 1


def test_edges_between_graphs_where_the_batch_has_some():
    batch = batch_of()
    batch.edge_index[:, 0] = torch.tensor([0, batch.num_nodes - 1])
    for sample in samples_of(batch):
        source, target = sample["edge_index"]
        assert not torch.equal(sample["batch"][source], sample["batch"][target])
