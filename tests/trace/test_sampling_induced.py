"""Samples are cut from the real graph: real edges with their own attributes, reverses kept, symmetric only where it is, of any
number of types; a graph of millions of edges is read in pieces."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from autoplan.trace.sampling import GraphSample, Pool, draw_samples, samples_of
from autoplan.trace.schema import GraphSchema
from tests.closed import batch_of
from tests.trace.graphs import CITES, WRITES, typed_graph


def named(schema: GraphSchema, sample: GraphSample) -> dict[str, torch.Tensor]:
    return dict(zip(schema.names, sample.tensors, strict=True))


def pairs(edge_index: torch.Tensor) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in edge_index.t().tolist()]


def numbered(nodes: int, edge_index: torch.Tensor) -> Data:
    """A graph whose features are node ids and whose edge attributes are the ids of the edge's ends."""
    return Data(
        x=torch.arange(nodes).float().view(-1, 1),
        edge_index=edge_index,
        edge_attr=edge_index.t().float(),
        pos=torch.randn(nodes, 3),
    )


@pytest.mark.parametrize("kind", ["directed", "symmetric", "large", "small"])
def test_edges_are_real_and_their_attributes_are_about_their_ends(kind):
    nodes = {"large": 30_000, "small": 20}.get(kind, 400)
    edges = torch.randint(0, nodes - 1, (2, 4 * nodes), generator=torch.Generator().manual_seed(1))
    edges = edges[:, edges[0] != edges[1]]
    graph = numbered(nodes, to_undirected(edges) if kind == "symmetric" else edges)
    schema = GraphSchema.of(graph)
    for sample in draw_samples(graph, schema):
        tensors = named(schema, sample)
        ends = tensors["x"][tensors["edge_index"], 0].t()
        right = (ends == tensors["edge_attr"]).all(dim=1)
        # a few random edges where a sample of few nodes has too few of its own
        assert right.float().mean() > 0.8 or sample.nodes < 12
        found = pairs(tensors["edge_index"])
        symmetric = all((target, source) in found for source, target in found)
        assert symmetric == (kind == "symmetric")
        assert len(set(found)) <= len(found) - 2
        assert max(map(max, found)) < sample.nodes - 1
        assert all(source != target for source, target in found), "distances would be zero"


def test_types_and_relations():
    graph = typed_graph()
    graph["paper"].x = torch.arange(60).float().view(-1, 1)
    graph["author"].x = torch.arange(40).float().view(-1, 1)
    graph[WRITES].edge_attr = graph[WRITES].edge_index.t().float()
    schema = GraphSchema.of(graph)
    samples = draw_samples(graph, schema, widths=range(8, 40))
    sizes = [rows for sample in samples for rows in sample.rows.values()]
    assert len(set(sizes)) == len(sizes)
    assert not set(sizes) & set(range(8, 40))
    for sample in samples:
        tensors = named(schema, sample)
        writes = tensors["author__writes__paper.edge_index"]
        ids = torch.stack([tensors["author.x"][writes[0], 0], tensors["paper.x"][writes[1], 0]])
        assert (ids.t() == tensors["author__writes__paper.edge_attr"]).all(
            dim=1
        ).float().mean() > 0.8
        backwards = pairs(tensors["paper__rev_writes__author.edge_index"])
        real = {(s, t) for s, t in pairs(writes)}
        assert {(t, s) for s, t in backwards} <= real
        for name in ("author__writes__paper", "paper__cites__paper"):
            found = pairs(tensors[f"{name}.edge_index"])
            assert len(set(found)) <= len(found) - 2, "some are there twice"
        assert int(writes[0].max()) < tensors["author.x"].size(0) - 1, "the last node is isolated"
        assert int(tensors["paper.train_mask"].sum()) >= 2


def test_rows_of_axes_are_no_formula_of_one_another():
    schema = GraphSchema.of(typed_graph())
    rows = [sample.rows for sample in draw_samples(typed_graph(), schema)[:-1]]
    axes = list(rows[0])
    for first in axes:
        for second in axes:
            if first != second:
                assert len({row[first] - row[second] for row in rows}) > 1, (first, second)
                assert len({row[first] / row[second] for row in rows}) > 1, (first, second)


def test_batches_of_types_are_whole_graphs():
    graphs = [typed_graph(papers, papers - 3) for papers in (8, 9, 11, 14, 7, 10)]
    for number, graph in enumerate(graphs):
        graph["paper"].x = torch.full((graph["paper"].num_nodes, 4), float(number))
        graph.y = torch.tensor([number])
    batch = Batch.from_data_list(graphs)
    schema = GraphSchema.of(batch)
    for sample in draw_samples(batch, schema):
        tensors = named(schema, sample)
        assert sample.rows["graph"] == tensors["y"].size(0)
        assert torch.equal(tensors["y"][tensors["paper.batch"]].float(), tensors["paper.x"][:, 0])
        source, target = tensors["author__writes__paper.edge_index"]
        assert torch.equal(tensors["author.batch"][source], tensors["paper.batch"][target])
        sizes = torch.bincount(tensors["paper.batch"])[:-1]
        wanted = torch.tensor([graphs[y]["paper"].num_nodes for y in tensors["y"][:-1].tolist()])
        assert torch.equal(sizes, wanted)


def test_large_graphs_of_a_batch_are_cut_down():
    batch = batch_of((500, 700, 900))
    for sample in draw_samples(batch, GraphSchema.of(batch)):
        assert sample.nodes < 200


def test_types_without_attributes_and_of_one_node():
    graph = typed_graph()
    del graph["author"].x
    graph["author"].num_nodes = 40
    graph["world"].x = torch.ones(1, 2)
    graph["world", "has", "paper"].edge_index = torch.stack(
        [torch.zeros(60), torch.arange(60)]
    ).long()
    del graph[CITES]
    schema = GraphSchema.of(graph)
    for sample in draw_samples(graph, schema):
        tensors = named(schema, sample)
        assert tensors["author.num_nodes"].size(0) == sample.rows["node[author]"]
        assert (tensors["world.x"] == 1).all()
        assert sample.rows["node[world]"] > 1


def test_large_graphs_are_read_in_pieces():
    nodes, edges = 200_000, 2_000_000
    graph = Data(
        x=torch.randn(nodes, 4),
        edge_index=torch.randint(0, nodes, (2, edges)),
        edge_attr=torch.rand(edges, 1),
        train_mask=torch.rand(nodes) < 0.1,
    )
    schema = GraphSchema.of(graph)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    samples = samples_of(Pool.of(graph, schema))
    assert time.process_time() - started < 1.0, "2 s for ten million edges"
    assert len(samples) == 5
    if Path("/proc/self/status").exists():  # KiB there
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 * 1024
