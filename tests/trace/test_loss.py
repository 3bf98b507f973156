from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from autoplan.errors import TraceError
from autoplan.trace.loss import ResolvedLoss, resolve_loss
from autoplan.trace.schema import GraphSchema
from tests.trace.graphs import CLASSES, node_graph


def default(graph: Data, output: object) -> ResolvedLoss:
    """The default loss, the graph itself as the sample."""
    schema = GraphSchema.of(graph)
    sample = dict(zip(schema.names, schema.tensors(graph), strict=True))
    return resolve_loss(None, graph, schema, output, sample)


def test_integer_labels_over_the_training_mask():
    graph, out = node_graph(), torch.randn(300, CLASSES)
    resolved = default(graph, out)
    expected = F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])
    assert torch.equal(resolved.function(out, graph), expected)
    assert "cross-entropy over train_mask" in resolved.sentence


def test_integer_labels_over_a_list_or_over_everything():
    graph, out = node_graph(train_idx=torch.arange(5, 30)), torch.randn(300, CLASSES)
    del graph.train_mask
    resolved = default(graph, out)
    assert torch.equal(resolved.function(out, graph), F.cross_entropy(out[5:30], graph.y[5:30]))
    del graph.train_idx
    resolved = default(graph, out)
    assert torch.equal(resolved.function(out, graph), F.cross_entropy(out, graph.y))
    assert "over all rows" in resolved.sentence


def test_labels_in_a_column():
    graph, out = node_graph(), torch.randn(300, CLASSES)
    expected = default(graph, out).function(out, graph)
    graph.y = graph.y.view(-1, 1)
    assert torch.equal(default(graph, out).function(out, graph), expected)


def test_float_labels_of_the_outputs_shape():
    graph, out = node_graph(y=torch.randn(300, 4)), torch.randn(300, 4)
    resolved = default(graph, out)
    mask = graph.train_mask
    assert torch.equal(resolved.function(out, graph), F.mse_loss(out[mask], graph.y[mask]))
    assert "mean squared error over train_mask" in resolved.sentence
    del graph.train_mask
    assert torch.equal(default(graph, out).function(out, graph), F.mse_loss(out, graph.y))


@pytest.mark.parametrize(
    ("labels", "output", "why"),
    [
        (None, torch.randn(300, 6), "no y"),
        (torch.randn(300), torch.randn(300, 1), "does not fit"),
        (torch.zeros(300, dtype=torch.long), torch.randn(300), "does not label the rows"),
        (torch.zeros(300, dtype=torch.long), torch.randn(84, 6), "does not label the rows"),
        (torch.zeros(300, dtype=torch.long), (torch.randn(300, 6), 1), "returns a tuple"),
    ],
)
def test_no_loss_says_why(labels, output, why):
    graph = node_graph()
    del graph.y
    if labels is not None:
        graph.y = labels
    resolved = default(graph, output)
    assert resolved.function is None
    assert why in resolved.sentence


def test_labels_without_a_column_are_named():
    graph = node_graph()
    graph.y[graph.train_mask.nonzero()[3]] = 9
    with pytest.raises(TraceError, match=r"label 9, but the model's output has 6 columns"):
        default(graph, torch.randn(300, CLASSES))
    graph = node_graph()
    graph.y[graph.train_mask.nonzero()[3]] = -1
    with pytest.raises(TraceError, match="label -1"):
        default(graph, torch.randn(300, CLASSES))


def test_labels_outside_the_mask_and_ignored_ones_are_not_looked_at():
    graph = node_graph()
    graph.y[~graph.train_mask] = -1
    graph.y[graph.train_mask.nonzero()[3]] = -100
    assert default(graph, torch.randn(300, CLASSES)).function is not None


def test_the_users_loss_is_taken():
    def my_loss(out, graph):
        return out.sum()

    graph = node_graph()
    resolved = resolve_loss(my_loss, graph, GraphSchema.of(graph), None, {})
    assert resolved.function is my_loss
    assert "'my_loss'" in resolved.sentence
    with pytest.raises(TraceError, match=r"loss is a str; give a function loss\(out, graph\)"):
        resolve_loss("mse", graph, GraphSchema.of(graph), None, {})
