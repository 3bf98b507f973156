from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GATConv, GCNConv, GraphSAGE, Sequential

from autoplan.errors import TraceError
from autoplan.trace.arguments import match_arguments
from autoplan.trace.schema import GraphSchema
from tests.trace.graphs import node_graph

GRAPH = node_graph(edge_attr=torch.randn(900, 3), edge_weight=torch.rand(900), depth=2)
SCHEMA = GraphSchema.of(GRAPH)


class Spy(nn.Module):
    """Returns what it was called with."""

    def forward(self, *args, **kwargs):
        return args, kwargs


def spy(forward) -> nn.Module:
    return type("Net", (nn.Module,), {"forward": forward})()


def given(model: nn.Module, inputs: dict[str, object] | None = None) -> tuple[str, ...]:
    return match_arguments(model, SCHEMA, inputs).attributes


def test_by_name():
    def forward(self, x, edge_index, edge_weight=None, size=None, *, depth=1):
        return x, edge_index, edge_weight, size, depth

    model = spy(forward)
    arguments = match_arguments(model, SCHEMA)
    x, edge_index, edge_weight, size, depth = arguments.call(model, GRAPH)
    assert x is GRAPH.x
    assert edge_index is GRAPH.edge_index
    assert edge_weight is GRAPH.edge_weight
    assert size is None
    assert depth == 2
    assert [argument.name for argument in arguments.positional] == [
        "x",
        "edge_index",
        "edge_weight",
    ]


def test_positional_only():
    def forward(self, x, edge_index, /):
        return x, edge_index

    model = spy(forward)
    assert match_arguments(model, SCHEMA).call(model, GRAPH)[1] is GRAPH.edge_index


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, data: data,
        lambda self, graph: graph,
        lambda self, batch: batch,
    ],
)
def test_whole_graph_by_name(forward):
    model = spy(forward)
    assert match_arguments(model, SCHEMA).call(model, GRAPH) is GRAPH


def test_whole_graph_by_annotation():
    def forward(self, item: Data, x: Tensor):
        return item, x

    model = spy(forward)
    item, x = match_arguments(model, SCHEMA).call(model, GRAPH)
    assert item is GRAPH
    assert x is GRAPH.x


def test_node_count_only_where_it_is_needed():
    assert given(spy(lambda self, x, num_nodes: x)) == ("x", "num_nodes")
    assert given(spy(lambda self, x, num_nodes=None: x)) == ("x",)


def test_missing_argument_is_named_with_the_remedy():
    with pytest.raises(
        TraceError, match=r"needs 'features'.*edge_index.*inputs=\{'features': 'x'\}"
    ):
        given(spy(lambda self, features, edge_index: features))


def test_inputs_override():
    model = spy(
        lambda self, features, edge_index, edge_weight=None, k=1: (features, edge_weight, k)
    )
    arguments = match_arguments(model, SCHEMA, {"features": "x", "edge_weight": None, "k": 4})
    features, edge_weight, k = arguments.call(model, GRAPH)
    assert features is GRAPH.x
    assert edge_weight is None
    assert k == 4


def test_inputs_about_attributes_are_not_about_arguments():
    assert given(spy(lambda self, x: x), {"x": "node", "edge_attr": ("edge", 3)}) == ("x",)


def test_inputs_that_name_nothing():
    with pytest.raises(TraceError, match="neither an argument"):
        given(spy(lambda self, x: x), {"features": "x"})
    with pytest.raises(TraceError, match="'pos' to 'x'"):
        given(spy(lambda self, x: x), {"x": "pos"})


def test_star_arguments():
    model = Spy()
    with pytest.raises(TraceError, match=r"\*args and \*\*kwargs.*inputs=\{'\*args'"):
        given(model)
    arguments = match_arguments(
        model, SCHEMA, {"*args": ("x", "edge_index"), "weight": "edge_weight"}
    )
    args, kwargs = arguments.call(model, GRAPH)
    assert args == (GRAPH.x, GRAPH.edge_index)
    assert kwargs == {"weight": GRAPH.edge_weight}


def test_star_arguments_after_named_ones_get_nothing():
    def forward(self, x, *args, **kwargs):
        return args, kwargs

    model = spy(forward)
    assert match_arguments(model, SCHEMA).call(model, GRAPH) == ((), {})


@pytest.mark.parametrize(
    ("model", "attributes"),
    [
        (GCN(20, 8, 2, 6), ("x", "edge_index", "edge_weight")),
        (GraphSAGE(20, 8, 2, 6), ("x", "edge_index")),
        (GAT(20, 8, 2, 6, edge_dim=3), ("x", "edge_index", "edge_attr")),
        (GATConv(20, 8), ("x", "edge_index")),
        (GATConv(20, 8, edge_dim=3), ("x", "edge_index", "edge_attr")),
        (GCNConv(20, 8), ("x", "edge_index", "edge_weight")),
    ],
    ids=["GCN", "GraphSAGE", "GAT", "GATConv", "GATConv with edges", "GCNConv"],
)
def test_library_models_get_what_they_use(model, attributes):
    assert given(model) == attributes
    assert match_arguments(model, SCHEMA).call(model, GRAPH).size(0) == 300


def test_sequential_of_pyg():
    model = Sequential("x, edge_index", [(GCNConv(20, 6), "x, edge_index -> x"), nn.ReLU()])
    assert given(model) == ("x", "edge_index")


def test_batch_vector():
    graph = node_graph(batch=torch.zeros(300, dtype=torch.long))
    arguments = match_arguments(GCN(20, 8, 2, 6), GraphSchema.of(graph))
    assert "batch" in arguments.attributes
