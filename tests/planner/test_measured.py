import torch
from torch_geometric.data import Batch, Data

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
