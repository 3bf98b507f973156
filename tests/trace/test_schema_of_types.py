"""A `HeteroData` is classified as a graph of one type is: every attribute of every type, with errors that name the type."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch_geometric.data import Batch, HeteroData

from autoplan.errors import TraceError
from autoplan.opgraph import IndexInto
from autoplan.trace.schema import GraphSchema
from tests.trace.graphs import CITES, WRITES, typed_graph

PAPER, AUTHOR = "node[paper]", "node[author]"
PAIRS = "edge[author__writes__paper]"


def test_usual_attributes():
    graph = typed_graph()
    graph["paper"].train_idx = torch.tensor([3, 1])
    graph[WRITES].edge_attr = torch.randn(170, 2)
    graph[WRITES].edge_label_index = torch.stack([torch.arange(7), torch.arange(7) + 40])
    graph[WRITES].edge_label = torch.ones(7)
    graph["author"].num_nodes, graph["author"].country = 40, "anywhere"
    graph.u = torch.randn(1, 3)
    schema = GraphSchema.of(graph)
    found = {spec.name: (spec.kind, spec.dims) for spec in schema.attributes}
    assert found == {
        "author.x": ("node", (AUTHOR, 5)),
        "author__writes__paper.edge_attr": ("edge", (PAIRS, 2)),
        "author__writes__paper.edge_index": ("edge", (2, PAIRS)),
        "author__writes__paper.edge_label": ("edge", (f"{PAIRS}:edge_label_index",)),
        "author__writes__paper.edge_label_index": ("edge", (2, f"{PAIRS}:edge_label_index")),
        "paper.train_idx": ("index", ("index[paper]:train_idx",)),
        "paper.train_mask": ("node", (PAPER,)),
        "paper.x": ("node", (PAPER, 4)),
        "paper.y": ("node", (PAPER,)),
        "paper__cites__paper.edge_index": ("edge", (2, "edge[paper__cites__paper]")),
        "paper__rev_writes__author.edge_index": ("edge", (2, "edge[paper__rev_writes__author]")),
        "u": ("graph", (1, 3)),
    }
    assert schema["author__writes__paper.edge_label_index"].index == IndexInto(
        (AUTHOR, PAPER), ("src", "dst")
    )
    assert schema["paper.train_idx"].index == IndexInto((PAPER,), ("self",))
    assert schema.constants == (("author.country", "anywhere"),)
    assert schema.relations == {
        PAIRS: (AUTHOR, PAPER),
        "edge[paper__rev_writes__author]": (PAPER, AUTHOR),
        "edge[paper__cites__paper]": (PAPER, PAPER),
        f"{PAIRS}:edge_label_index": (AUTHOR, PAPER),
    }
    assert (schema.nodes, schema.edges) == (100, 550)
    assert schema["paper.x"].label == "graph['paper'].x"
    assert schema["paper.x"].attribute == "x"
    assert copy.deepcopy(pickle.loads(pickle.dumps(schema))) == schema


def test_one_type_has_relations_too():
    graph = typed_graph()
    schema = GraphSchema.of(graph.node_type_subgraph(["paper"]).to_homogeneous())
    assert schema.relations == {"edge": ("node", "node")}
    assert not schema.several_types


def test_tensors_are_the_graphs_own():
    graph = typed_graph()
    schema = GraphSchema.of(graph)
    named = dict(zip(schema.names, schema.tensors(graph), strict=True))
    assert named["paper.x"] is graph["paper"].x
    assert named["author__writes__paper.edge_index"] is graph[WRITES].edge_index
    other = typed_graph()
    del other["author"].x
    with pytest.raises(TraceError, match=r"with 'author\.x'; this one has .*'paper\.x'"):
        schema.tensors(other)


def test_types_without_attributes_are_counted_by_an_input_of_their_own():
    graph = typed_graph()
    del graph["author"].x
    graph["author"].num_nodes = 40
    schema = GraphSchema.of(graph)
    assert schema["author.num_nodes"].dims == (AUTHOR,)
    tensors = dict(zip(schema.names, schema.tensors(graph), strict=True))
    assert tensors["author.num_nodes"].shape == (40,)


def test_batches_have_a_graph_axis():
    graph = typed_graph()
    graph.y = torch.tensor([1])
    batch = Batch.from_data_list([graph, graph, graph])
    schema = GraphSchema.of(batch)
    assert schema.rows["graph"] == 3
    assert schema["paper.batch"].index == schema["author.batch"].index
    assert schema["y"].dims == ("graph",)


def test_inputs_say_what_an_attribute_is():
    graph = typed_graph()
    graph["paper"].anchors = torch.tensor([1, 4])
    with pytest.raises(
        TraceError, match=r"graph\['paper'\]\.anchors .*inputs=\{'paper\.anchors': 'index'\}"
    ):
        GraphSchema.of(graph)
    schema = GraphSchema.of(graph, {"paper.anchors": "index"})
    assert schema["paper.anchors"].dims == ("index[paper]:anchors",)
    graph["paper"].anchors = torch.rand(3, 60)
    assert GraphSchema.of(graph, {"paper.anchors": (3, "node")})["paper.anchors"].dims == (3, PAPER)


def changed(key: object, name: str, value: object) -> HeteroData:
    graph = typed_graph()
    if key is None:
        graph[name] = value
    else:
        graph[key][name] = value
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (HeteroData(), "HeteroData has no node types"),
        (typed_graph().edge_type_subgraph([]), "no relations|no node types"),
        (
            changed(WRITES, "edge_index", torch.tensor([[0, 40], [1, 2]])),
            r"graph\['author', 'writes', 'paper'\]\.edge_index holds the 'author' node id 40, but the graph has 40",
        ),
        (
            changed(CITES, "edge_index", torch.zeros(3, 2).long()),
            r"must be \[2, E\]; use edge_index",
        ),
        (changed(CITES, "edge_index", torch.zeros(2, 2)), r"float32.*edge_index\.long"),
        (
            changed("paper", "train_mask", torch.ones(59).bool()),
            r"graph\['paper'\]\.train_mask is bool \[59\], but the graph has 60 'paper' nodes",
        ),
        (
            changed(WRITES, "edge_attr", torch.ones(169, 2)),
            r"edge_attr is float32 \[169, 2\], but the graph has 170 'author__writes__paper' edges",
        ),
        (
            changed(("paper", "has", "topic"), "edge_index", torch.zeros(2, 3).long()),
            r"names node type 'topic', which has no attributes.*graph\['topic'\]\.num_nodes",
        ),
        (
            changed(("paper", "has", "author"), "edge_attr", torch.zeros(3)),
            r"relation \('paper', 'has', 'author'\) has no edge_index",
        ),
        (changed("venue", "x", torch.zeros(0, 3)), "node type 'venue' has no nodes"),
        (changed(None, "train_idx", torch.tensor([1])), r"not of which type.*graph\['paper'\]"),
        (changed(None, "pair_index", torch.zeros(2, 3).long()), "not of which types; put it on"),
        (changed(None, "w", torch.rand(60)), r"graph\.w .*as many as node\[paper\]"),
        (changed("paper", "z", torch.eye(60).to_sparse()), r"graph\['paper'\]\.z is a sparse"),
    ],
)
def test_graphs_that_cannot_be_traced(graph, message):
    with pytest.raises(TraceError, match=message):
        GraphSchema.of(graph)
