"""Arguments of models of several types: by type, by full name, as the user says; and the graph put together again."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

from autoplan.errors import TraceError
from autoplan.trace.arguments import match_arguments
from autoplan.trace.rebuilding import GraphTemplate
from autoplan.trace.schema import GraphSchema
from tests.trace.graphs import CITES, WRITES, WRITTEN, typed_graph

GRAPH = typed_graph()
GRAPH[WRITES].edge_attr = torch.randn(170, 2)
SCHEMA = GraphSchema.of(GRAPH)


def model(forward: object) -> nn.Module:
    return type("Net", (nn.Module,), {"forward": forward})()


def called(forward: object, inputs: dict[str, object] | None = None) -> object:
    net = model(forward)
    return match_arguments(net, SCHEMA, inputs).call(net, GRAPH)


def test_by_type():
    xs, edges, sizes = called(
        lambda self, x_dict, edge_index_dict, num_nodes_dict: (
            x_dict,
            edge_index_dict,
            num_nodes_dict,
        )
    )
    assert list(xs) == ["paper", "author"]
    assert xs["paper"] is GRAPH["paper"].x
    assert list(edges) == [WRITES, WRITTEN, CITES]
    assert sizes == {"paper": 60, "author": 40}


def test_optional_ones_and_those_of_converted_models():
    attr, x = called(
        lambda self, x, edge_attr_dict=None, edge_weight_dict=None: (edge_attr_dict, x)
    )
    assert list(attr) == [WRITES]
    assert list(x) == ["paper", "author"]


def test_graph_and_metadata():
    graph, metadata = called(lambda self, data, metadata: (data, metadata))
    assert graph is GRAPH
    assert metadata == GRAPH.metadata()

    def annotated(self, g: HeteroData):
        return g

    assert called(annotated) is GRAPH


def test_inputs_override():
    forward = lambda self, features, links, k: (features, links, k)  # noqa: E731
    wishes = {"features": "paper.x", "links": {WRITES: "edge_index"}, "k": 2}
    features, links, k = called(forward, wishes)
    assert features is GRAPH["paper"].x
    assert links[WRITES] is GRAPH[WRITES].edge_index
    assert k == 2
    wishes = {"features": {"author": "author.x"}, "links": "edge_index_dict", "k": None}
    features, links, _ = called(forward, wishes)
    assert features["author"] is GRAPH["author"].x
    assert list(links) == [WRITES, WRITTEN, CITES]
    with pytest.raises(TraceError, match=r"'venue\.x' to 'features'.*x_dict.*paper\.x"):
        called(forward, {"features": "venue.x"})


def test_missing_ones_are_named_with_what_there_is():
    with pytest.raises(TraceError, match=r"needs 'pos_dict'.*edge_index_dict.*author\.x"):
        called(lambda self, pos_dict: pos_dict)


def test_layers_of_relations_alone():
    conv = HeteroConv({WRITES: SAGEConv((5, 4), 3), WRITTEN: SAGEConv((4, 5), 3)})
    assert set(match_arguments(conv, SCHEMA).call(conv, GRAPH)) == {"paper", "author"}


def test_the_graph_is_put_together_again():
    graph = typed_graph()
    graph["author"].country, graph["author"].num_nodes = "anywhere", 40
    del graph["author"].x
    schema = GraphSchema.of(graph)
    tensors = schema.tensors(graph)
    again = GraphTemplate.of(graph, schema).graph(tensors)
    assert type(again) is HeteroData
    assert again.metadata() == graph.metadata()
    assert again["paper"].x is graph["paper"].x
    assert again["author"].to_dict() == graph["author"].to_dict()
    assert again["author"].num_nodes == 40
    assert graph["author"].num_nodes == 40


def test_batches_are_put_together_again():
    one = typed_graph()
    batch = Batch.from_data_list([one, one])
    schema = GraphSchema.of(batch)
    again = GraphTemplate.of(batch, schema).graph(schema.tensors(batch))
    assert isinstance(again, Batch)
    assert isinstance(again, HeteroData)
    assert again.num_graphs == 2
    assert torch.equal(again["author"].batch, batch["author"].batch)
    assert again.metadata() == batch.metadata()
