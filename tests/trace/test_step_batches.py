"""What a step's graph is to a model where it is a batch: PyG's names, worked out from the step's own tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from autoplan.trace.step import trace_step


def graph(nodes: int, seed: int, *, labelled: bool) -> Data:
    generator = torch.Generator().manual_seed(seed)
    data = Data(
        x=torch.randn(nodes, 3, generator=generator),
        edge_index=torch.randint(0, nodes, (2, 2 * nodes), generator=generator),
    )
    if labelled:
        data.y = torch.randn(1, 2, generator=generator)
    return data


def batch(*sizes: int, labelled: bool = True) -> Batch:
    return Batch.from_data_list(
        [graph(nodes, seed, labelled=labelled) for seed, nodes in enumerate(sizes)]
    )


class Roots(nn.Module):
    """Reads the first node of every graph, and counts graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, data: Batch) -> Tensor:
        roots = self.lin(data.x)[data.ptr[:-1]]
        return roots + roots.new_zeros(data.num_graphs, 2) + roots.sum() / data.batch_size


def test_ptr_and_num_graphs_are_those_of_the_step() -> None:
    for labelled in (True, False):
        step = trace_step(
            Roots(), batch(4, 7, 5, labelled=labelled), lambda out, data: out.pow(2).mean()
        )
        assert step.program is not None, step.reason
        other = batch(3, 9, 2, 6, labelled=labelled)
        tensors = step.schema.tensors(other)
        found = step.module.graph(tensors)
        assert found.num_graphs == found.batch_size == 4
        assert torch.equal(found.ptr, other.ptr)
        assert isinstance(found, Batch)
        assert isinstance(found, Data)
        model = step.module.get_submodule("model")
        torch.testing.assert_close(step.module(*tensors)[1], model(other))


def test_a_last_graph_without_nodes_counts() -> None:
    empty = Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0).long(), y=torch.zeros(1, 2))
    whole = Batch.from_data_list([graph(4, 0, labelled=True), empty])
    step = trace_step(Roots(), whole, lambda out, data: (out - data.y).pow(2).mean())
    assert step.schema.rows["graph"] == 2
    assert step.schema["y"].dims == ("graph", 2)
