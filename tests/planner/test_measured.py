import torch
from torch_geometric.data import Batch, Data, HeteroData

from autoplan.planner.measured import MeasuredGraph
from autoplan.trace.schema import GraphSchema


def graph(nodes: int, edges: int) -> Data:
    ends = torch.arange(2 * edges).view(2, edges) % nodes
    return Data(x=torch.randn(nodes, 3), edge_index=ends, y=torch.tensor([nodes % 2]))


def test_closed_partitions_of_a_batch_keep_graphs_whole():
    batch = Batch.from_data_list([graph(nodes, 4) for nodes in (5, 2, 9, 3)])
    measured = MeasuredGraph.of(batch, GraphSchema.of(batch), (2, 5), closed_parts=(1, 3, 6))

    assert (measured.stats.units, measured.stats.unit) == (4, "graph")
    assert measured.stats.rows["graph"] == 4
    assert list(measured.stats.closed) == [1, 2, 3, 6]
    for parts, partition in measured.stats.closed.items():
        shards = measured.shards(parts, closed=True)
        assert partition.closed
        assert partition.shards == tuple(shard.sizes for shard in shards)
        assert sum(size.owned_rows["graph"] for size in partition.shards) == 4
    assert measured.stats.partitions[2] is measured.stats.closed[2]
    assert measured.shards(2)[0].closed
    # fewer graphs than parts: they are cut
    assert not measured.stats.partitions[5].closed
    assert measured.shards(5)[0].graphs == 4


def test_closed_partitions_of_one_graph_keep_components_whole():
    data = Data(x=torch.randn(5, 3), edge_index=torch.tensor([[0, 3, 4], [1, 3, 2]]))
    measured = MeasuredGraph.of(data, GraphSchema.of(data), (1,), closed_parts=(2,))

    assert (measured.stats.units, measured.stats.unit) == (3, "component")
    assert sum(len(shard.nodes["node"].owned) for shard in measured.shards(2, closed=True)) == 5
    assert measured.shards(2, closed=True)[0].graph_rows is None


def typed(papers: int, authors: int, seed: int = 0) -> HeteroData:
    generator = torch.Generator().manual_seed(seed)
    graph = HeteroData()
    graph["paper"].x = torch.randn(papers, 3, generator=generator)
    graph["author"].x = torch.randn(authors, 2, generator=generator)
    graph["paper"].train_idx = torch.arange(0, papers, 2)
    for relation, (sources, destinations) in {
        ("author", "writes", "paper"): (authors, papers),
        ("paper", "written_by", "author"): (papers, authors),
    }.items():
        ends = [torch.randint(0, n, (40,), generator=generator) for n in (sources, destinations)]
        graph[relation].edge_index = torch.stack(ends)
    return graph


def test_every_type_has_owners_and_a_halo():
    graph = typed(30, 12)
    measured = MeasuredGraph.of(graph, GraphSchema.of(graph), (1, 3))

    assert set(measured.owners[3]) == {"node[paper]", "node[author]"}
    stats = measured.stats.partitions[3]
    shards = measured.shards(3)
    assert stats.shards == tuple(shard.sizes for shard in shards)
    assert sum(shard.nodes for shard in stats.shards) == measured.stats.nodes == 42
    assert sum(shard.edges for shard in stats.shards) == 80
    assert all(set(shard.halo_rows) == {"node[paper]", "node[author]"} for shard in stats.shards)
    for shard in shards:
        listed = shard.nodes["node[paper]"].owned[shard.index_values["index[paper]:train_idx"]]
        assert (listed % 2 == 0).all()
    other = typed(30, 12, seed=1)
    assert measured.fingerprint != MeasuredGraph.of(other, GraphSchema.of(other), (1,)).fingerprint


def test_a_batch_of_graphs_of_several_types_is_packed_whole():
    batch = Batch.from_data_list([typed(8 + n, 5 + n, n) for n in range(4)])
    measured = MeasuredGraph.of(batch, GraphSchema.of(batch), (2,))

    assert (measured.stats.units, measured.stats.unit) == (4, "graph")
    assert measured.stats.partitions[2].closed
    for shard in measured.shards(2):
        for kind in ("paper", "author"):
            of = batch[kind].batch.numpy()[shard.rows(f"node[{kind}]")]
            assert set(of) == set(shard.rows("graph"))
