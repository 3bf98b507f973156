"""A layer or model in a step of its own, and the graphs that these steps run on (torch)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

WIDTH, EDGE_WIDTH, RELATIONS, CLASSES = 8, 4, 3, 3
NODES, EDGES = 150, 620
GRAPHS = (40, 17, 9, 31, 22, 14, 26)

Call = Callable[[Any, Tensor, Data], Any]


def plainly(layer: Any, h: Tensor, graph: Data) -> Any:
    """How most layers are called."""
    return layer(h, graph.edge_index)


@dataclass(frozen=True)
class Case:
    """How one class is built and called.

    Attributes:
        make: the layer or model.
        call: its call, given itself, hidden states [N, 8] of the nodes, and the graph.
        needs: attributes of the graph beside ``x`` and ``edge_index``.
        batch: runs on several graphs.
        follows: what in it follows values, so that no program of it is general.
        partly: why some of its heavy ops run whole.
        single: it computes in single precision, whatever it is given.
    """

    make: Callable[[], Any]
    call: Call = plainly
    needs: str = ""
    batch: bool = False
    follows: str = ""
    partly: str = ""
    single: bool = False


class Step(nn.Module):
    """A linear layer, so that gradients pass through the layer to the nodes' features, and the layer."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layer = case.make()
        self.call = case.call

    def forward(self, data: Data) -> Any:
        return self.call(self.layer, self.first(data.x), data)


def mean_of_squares(out: Any, graph: Data) -> Tensor:
    """A loss of every number that the layer returns."""
    found = [leaf for leaf in leaves(out) if leaf.requires_grad]
    return sum(((leaf * leaf + leaf).mean() for leaf in found), torch.zeros(()))


def leaves(out: Any) -> list[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, dict):
        out = list(out.values())
    return [leaf for part in out for leaf in leaves(part)] if isinstance(out, list | tuple) else []


def directed_graph(needs: str = "") -> Data:
    """Asymmetric, with self-loops, duplicate edges, isolated nodes, and a third of the edges at few nodes."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES - 8, (2, EDGES), generator=generator)
    edge_index[1, : EDGES // 3] %= 7
    edge_index[:, :15] = edge_index[:1, :15]
    edge_index[:, 15:30] = edge_index[:, 30:45]
    graph = Data(x=torch.randn(NODES, WIDTH, generator=generator), edge_index=edge_index)
    return _with(graph, needs, generator)


def batch_of_graphs(needs: str = "") -> Batch:
    """Seven directed graphs of 9 to 40 nodes, the last node of each isolated."""
    graphs = []
    for seed, nodes in enumerate(GRAPHS):
        generator = torch.Generator().manual_seed(seed)
        edges = torch.randint(0, nodes - 1, (2, 4 * nodes), generator=generator)
        graph = Data(x=torch.randn(nodes, WIDTH, generator=generator), edge_index=edges)
        graphs.append(_with(graph, needs, generator))
    return Batch.from_data_list(graphs)


def _with(graph: Data, needs: str, generator: torch.Generator) -> Data:
    nodes, edges = graph.num_nodes, graph.edge_index.size(1)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    def whole(high: int, *sizes: int) -> Tensor:
        return torch.randint(0, high, sizes, generator=generator)

    made: dict[str, Callable[[], Tensor]] = {
        "edge_attr": lambda: normal(edges, EDGE_WIDTH),
        "edge_weight": lambda: torch.rand(edges, generator=generator) + 0.1,
        "edge_type": lambda: whole(RELATIONS, edges),
        "node_type": lambda: whole(RELATIONS, nodes),
        "z": lambda: whole(9, nodes) + 1,
        "pos": lambda: normal(nodes, 3),
        "normal": lambda: normal(nodes, 3),
        "y": lambda: whole(CLASSES, nodes),
        "mask": lambda: torch.rand(nodes, generator=generator) < 0.4,
        "walk": lambda: whole(nodes, nodes, 3),
        "random_walk": lambda: whole(nodes, nodes, 3),
        "neg_edge_index": lambda: whole(nodes, 2, edges // 2 + 3),
        "edge_label_index": lambda: whole(nodes, 2, edges // 3 + 1),
    }
    for name in needs.split():
        graph[name] = made[name]()
    return graph
