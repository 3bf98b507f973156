from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.edge_index import EdgeIndex

from autoplan.errors import TraceError
from autoplan.opgraph import IndexInto
from autoplan.trace.schema import GraphSchema
from tests.trace.graphs import node_graph


def small(**attributes: object) -> Data:
    graph = Data(x=torch.randn(10, 4), edge_index=torch.randint(0, 10, (2, 30)))
    for name, value in attributes.items():
        graph[name] = value
    return graph


def dims(graph: Data, name: str, inputs: dict[str, object] | None = None) -> tuple[str | int, ...]:
    return GraphSchema.of(graph, inputs)[name].dims


def test_usual_attributes():
    schema = GraphSchema.of(
        node_graph(
            edge_attr=torch.randn(900, 3), u=torch.randn(1, 5), temperature=torch.tensor(0.5)
        )
    )
    found = {spec.name: (spec.kind, spec.dims) for spec in schema.attributes}
    assert found == {
        "edge_attr": ("edge", ("edge", 3)),
        "edge_index": ("edge", (2, "edge")),
        "temperature": ("graph", ()),
        "test_mask": ("node", ("node",)),
        "train_mask": ("node", ("node",)),
        "u": ("graph", (1, 5)),
        "val_mask": ("node", ("node",)),
        "x": ("node", ("node", 20)),
        "y": ("node", ("node",)),
    }
    assert schema.rows == {"node": 300, "edge": 900}
    assert schema["edge_index"].index == IndexInto(("node",), ("src", "dst"))
    assert schema["y"].dtype == "int64"


def test_order_is_by_name_whatever_the_order_on_the_graph():
    edge_index = torch.randint(0, 4, (2, 5))
    one = Data(x=torch.randn(4, 2), edge_index=edge_index, y=torch.zeros(4))
    other = Data(y=torch.zeros(4), edge_index=edge_index, x=torch.randn(4, 2))
    assert GraphSchema.of(one) == GraphSchema.of(other)
    assert GraphSchema.of(one).names == ("edge_index", "x", "y")


def test_node_lists_and_second_relations_have_axes_of_their_own():
    graph = small(
        train_idx=torch.tensor([1, 5, 2]),
        y_train=torch.tensor([0, 1, 1]),
        edge_label_index=torch.randint(0, 10, (2, 6)),
        edge_label=torch.rand(6),
    )
    schema = GraphSchema.of(graph)
    assert schema["train_idx"].dims == ("index:train_idx",)
    assert schema["train_idx"].index == IndexInto(("node",), ("self",))
    assert schema["y_train"].dims == ("index:train_idx",)
    assert schema["y_train"].index is None
    assert schema["edge_label_index"].dims == (2, "edge:edge_label_index")
    assert schema["edge_label"].dims == ("edge:edge_label_index",)
    assert schema.rows["index:train_idx"] == 3
    assert schema.rows["edge:edge_label_index"] == 6


def test_what_is_no_tensor_is_a_constant():
    schema = GraphSchema.of(small(name="ring", classes=3, nothing=None))
    assert dict(schema.constants) == {"classes": 3, "name": "ring"} | (
        {"nothing": None} if "nothing" in dict(schema.constants) else {}
    )


def test_node_count_is_not_a_constant():
    schema = GraphSchema.of(small(num_nodes=10))
    assert schema.constants == ()
    assert schema.rows["node"] == 10


def test_batch_vector_gives_a_graph_axis():
    graph = small(batch=torch.tensor([0] * 4 + [1] * 3 + [2] * 3), y=torch.tensor([0, 1, 1]))
    schema = GraphSchema.of(graph)
    assert schema["batch"].index == IndexInto(("graph",), ("self",))
    assert schema["y"].dims == ("graph",)
    batch = Batch.from_data_list([small(), small()])
    assert GraphSchema.of(batch).names == ("batch", "edge_index", "x")


def test_as_many_edges_as_nodes_is_decided_by_name_or_asked_for():
    graph = Data(x=torch.randn(10, 4), edge_index=torch.randint(0, 10, (2, 10)))
    graph.y, graph.edge_weight, graph.edge_mark = torch.rand(10), torch.rand(10), torch.rand(10)
    schema = GraphSchema.of(graph)
    assert (schema["y"].kind, schema["edge_weight"].kind, schema["edge_mark"].kind) == (
        "node",
        "edge",
        "edge",
    )
    graph.strength = torch.rand(10)
    with pytest.raises(TraceError, match=r"graph.strength .* as many as node and edge.*'node'"):
        GraphSchema.of(graph)
    assert dims(graph, "strength", {"strength": "edge"}) == ("edge",)


def test_permutation_is_asked_for():
    graph = small(order=torch.randperm(10))
    with pytest.raises(TraceError, match="permutation of the node ids"):
        GraphSchema.of(graph)
    assert dims(graph, "order", {"order": "node"}) == ("node",)
    assert GraphSchema.of(graph, {"order": "index"})["order"].index is not None
    graph = Data(x=torch.arange(10), edge_index=torch.randint(0, 10, (2, 30)))
    assert dims(graph, "x") == ("node",)


def test_integers_that_could_list_nodes_are_asked_for():
    graph = small(anchors=torch.tensor([1, 4]))
    with pytest.raises(TraceError, match=r"inputs=\{'anchors': 'index'\} or .*'constant'"):
        GraphSchema.of(graph)
    assert GraphSchema.of(graph, {"anchors": "constant"})["anchors"].kind == "constant"
    assert dims(small(offsets=torch.tensor([100, 400])), "offsets") == (2,)


def test_pairs_without_a_name_are_asked_for():
    graph = small(pairs=torch.tensor([[1, 4, 2], [0, 3, 3]]), pair_value=torch.rand(3))
    with pytest.raises(TraceError, match=r"inputs=\{'pairs': \(2, 'edge:pairs'\)\}"):
        GraphSchema.of(graph)
    schema = GraphSchema.of(graph, {"pairs": (2, "edge:pairs"), "pair_value": "edge:pairs"})
    assert schema["pairs"].index == IndexInto(("node",), ("src", "dst"))
    assert schema["pair_value"].dims == ("edge:pairs",)


def test_ids_named_after_nodes_are_values_and_count_them():
    graph = Data(node_id=torch.arange(10), edge_index=torch.randint(0, 10, (2, 30)))
    assert dims(graph, "node_id") == ("node",)
    assert GraphSchema.of(graph).rows["node"] == 10


def test_size_of_a_list_without_its_name_is_asked_for():
    graph = small(train_idx=torch.tensor([1, 5, 2]), weight=torch.rand(3))
    with pytest.raises(TraceError, match=r"graph\.weight"):
        GraphSchema.of(graph)
    assert dims(graph, "weight", {"weight": "constant"}) == (3,)
    assert dims(graph, "weight", {"weight": "index:train_idx"}) == ("index:train_idx",)


def test_square_matrices_are_asked_for_and_square_features_are_not():
    graph = small(distance=torch.rand(10, 10))
    with pytest.raises(TraceError, match="counts nodes along its rows and perhaps again"):
        GraphSchema.of(graph)
    assert dims(graph, "distance", {"distance": ("node", "node")}) == ("node", "node")
    assert dims(graph, "distance", {"distance": "node"}) == ("node", 10)
    graph = Data(x=torch.eye(10), edge_index=torch.randint(0, 10, (2, 30)))
    assert dims(graph, "x") == ("node", 10)


def test_nodes_along_another_dimension_are_asked_for():
    graph = small(scores=torch.rand(3, 10))
    with pytest.raises(TraceError, match="10 entries along dimension 1"):
        GraphSchema.of(graph)
    assert dims(graph, "scores", {"scores": (3, "node")}) == (3, "node")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Data(x=torch.randn(4, 2)), "no edge_index .*int64 tensor"),
        (Data(edge_index=torch.zeros(2, 3, dtype=torch.long)), "row per node"),
        (
            Data(edge_index=torch.zeros(2, 3, dtype=torch.long), num_nodes=4),
            "no attribute with a row for each",
        ),
        (
            Data(x=torch.randn(0, 2), edge_index=torch.zeros(2, 0, dtype=torch.long)),
            "no nodes",
        ),
        (
            Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1], [2, 9]])),
            "node id 9, but the graph has 4 nodes",
        ),
        (
            Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, -1], [2, 3]])),
            "node id -1",
        ),
        (Data(x=torch.randn(4, 2), edge_index=torch.zeros(2, 3)), "float32 .*long"),
        (
            Data(x=torch.randn(4, 2), edge_index=torch.zeros(5, 2, dtype=torch.long)),
            r"must be \[2, E\]; use edge_index.t\(\)",
        ),
        (small(train_idx=torch.tensor([3, 10])), "train_idx holds the node id 10"),
        (small(edge_attr=torch.randn(29, 2)), "edge_attr .*30 edges"),
        (small(train_mask=torch.zeros(9, dtype=torch.bool)), "train_mask .*10 nodes"),
        (small(adj_t=torch.eye(9).to_sparse()), r"graph.adj_t is \[9, 9\].*here \[10, 10\]"),
        (small(features=torch.eye(10).to_sparse()), r"features\.to_dense"),
        (Data(x=torch.randn(4, 2), adj_t="sparse"), r"no edge_index \(it has \['adj_t', 'x'\]\)"),
        (small(num_nodes=12), r"graph\.x is float32 \[10, 4\], but the graph has 12 nodes"),
        (small(train_edge_idx=torch.tensor([3, 1])), "boolean mask with a row per edge"),
        (HeteroData(), "HeteroData"),
        ([small()], "list"),
    ],
)
def test_graphs_that_cannot_be_traced(graph, message):
    with pytest.raises(TraceError, match=message):
        GraphSchema.of(graph)


def test_wrong_wishes_are_refused():
    with pytest.raises(TraceError, match="'missing', which is no tensor"):
        GraphSchema.of(small(), {"missing": "node"})
    with pytest.raises(TraceError, match=r"dimension 0 of graph.w counts 'edge' \(30\)"):
        GraphSchema.of(small(w=torch.rand(9)), {"w": "edge"})


def test_one_node_or_no_edges():
    graph = Data(x=torch.randn(1, 3), edge_index=torch.zeros(2, 0, dtype=torch.long))
    assert GraphSchema.of(graph).rows == {"node": 1, "edge": 0}


def test_tensors_in_schema_order_contiguous_and_not_copied():
    graph = small()
    graph.edge_index = torch.randint(0, 10, (30, 2)).t()
    schema = GraphSchema.of(graph)
    edge_index, x = schema.tensors(graph)
    assert x is graph.x
    assert edge_index.is_contiguous()
    assert torch.equal(edge_index, graph.edge_index)


def test_edge_index_of_pyg_is_made_plain():
    graph = small()
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(10, 10))
    schema = GraphSchema.of(graph)
    edge_index, _ = schema.tensors(graph)
    assert type(edge_index) is torch.Tensor
    assert torch.equal(edge_index, graph.edge_index.as_tensor())


def test_one_tensor_under_two_names_is_two_objects_without_a_copy():
    graph = small()
    graph.pos = graph.x
    _, pos, x = GraphSchema.of(graph).tensors(graph)
    assert pos is not x
    assert pos.data_ptr() == x.data_ptr()


def test_tensors_of_another_structure_are_refused():
    schema = GraphSchema.of(small())
    with pytest.raises(TraceError, match="made for a graph with 'x'"):
        schema.tensors(Data(edge_index=torch.zeros(2, 1, dtype=torch.long)))
    with pytest.raises(TraceError, match=r"graph.x is float64 .* was float32"):
        schema.tensors(Data(x=torch.zeros(3, 4).double(), edge_index=torch.zeros(2, 1).long()))


def test_summary_is_plain_and_free_of_rows():
    one, other = small(name="a"), small(name="a")
    other.x, other.edge_index = torch.randn(7, 4), torch.randint(0, 7, (2, 5))
    assert GraphSchema.of(one).summary == GraphSchema.of(other).summary
    assert ("x", "node", "float32", "node", "4") in GraphSchema.of(one).summary
    assert GraphSchema.of(one).summary != GraphSchema.of(small(name="b")).summary


def test_schema_can_be_sent_and_copied():
    schema = GraphSchema.of(node_graph())
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema


def test_graph_is_left_alone():
    graph = small()
    keys, state = list(graph.keys()), dict(vars(graph._store))
    GraphSchema.of(graph)
    assert list(graph.keys()) == keys
    assert dict(vars(graph._store)) == state


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("x", np.ones((4, 2), dtype="float32"), "torch.from_numpy(graph.x)"),
        ("edge_index", [[0, 1], [1, 2]], "torch.tensor(graph.edge_index)"),
    ],
)
def test_an_array_in_a_tensors_place_is_named(name, value, remedy):
    graph = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), label=[1, 2])
    GraphSchema.of(graph)
    graph[name] = value
    with pytest.raises(TraceError, match=rf"graph\.{name} is a .*{re.escape(remedy)}"):
        GraphSchema.of(graph)
