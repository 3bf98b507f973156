"""What rules make of rows per graph: owned on closed partitions, partial sums on others."""

from __future__ import annotations

import torch
from torch_geometric import nn as gnn

from autoplan.opgraph import IndexInto, OpGraph
from tests.closed import Classifier, VirtualNode, batch_of, gin, small_graph, traced
from tests.trace.recorded import ops, strategies


def described(pool=gnn.global_add_pool, between=None, loss=None) -> OpGraph:
    return traced(Classifier(gin, pool, between), batch_of(), loss).opgraph


def kinds(op) -> dict[str, bool | None]:
    return {strategy.name: strategy.closed for strategy in op.strategies}


def pooling(graph: OpGraph):
    """The scatter into rows per graph."""
    return [
        op for op in ops(graph, "scatter_add") if graph.tensors[op.outputs[0]].dims[0] == "graph"
    ]


def test_batch_holds_positions_of_graphs():
    graph = described()
    batch = next(t for t in graph.tensors.values() if t.source == "batch")
    assert batch.index == IndexInto(("graph",), ("self",))
    assert batch.states == ("R", "O", "H"), (
        "numbers of graphs mean the same for all who read a node"
    )
    assert graph.axes["graph"].kind == "base"
    assert graph.axes["graph"].role == "graph"


def test_pooling_is_local_on_closed_partitions_and_a_partial_sum_on_others():
    (op,) = pooling(described())
    assert strategies(op)["O"] == ("OOO", "O")
    assert strategies(op)["partial"] == ("SOO", "S")
    assert kinds(op) == {"R": None, "O": True, "partial": False}


def test_the_number_of_graphs_is_read_from_batch_without_its_rows():
    graph = described()
    (maximum,) = ops(graph, "max")
    assert strategies(maximum)["O"] == ("O", "R")
    assert maximum.strategies[1].kernel == "last_graph"
    assert kinds(maximum) == {"R": None, "O": None}
    assert list(graph.last.values()) == ["graph"]
    made = [op for op in ops(graph, "new_zeros") if "graph" in graph.tensors[op.outputs[0]].dims]
    assert all(kinds(op) == {"R": None, "O": True, "S": False} for op in made)


def test_rows_per_graph_are_read_by_their_nodes():
    graph = described(between=VirtualNode())
    (read,) = [op for op in ops(graph, "index") if graph.tensors[op.inputs[0]].dims[0] == "graph"]
    assert strategies(read)["O"] == ("OO", "O")
    assert strategies(read)["whole"] == ("RO", "O")
    assert kinds(read) == {"R": None, "O": True, "whole": False}


def test_losses_count_the_targets_of_all_graphs_or_add_their_counts_up():
    (loss,) = ops(described(), "nll_loss_forward")
    assert strategies(loss)["O"] == ("OO", "RR")
    assert strategies(loss)["counted"] == ("OR", "SR")
    assert kinds(loss) == {"R": None, "O": True, "counted": True}


def test_means_over_graphs_need_no_count():
    graph = described(loss=lambda out, g: ((out[:, 0] - g.value) ** 2).mean())
    (mean,) = ops(graph, "mean")
    (sharded,) = [s for s in mean.strategies if s.name == "O"]
    assert (sharded.outputs, sharded.collectives, sharded.closed) == (("S",), (), True)


def test_the_graph_of_one_batch_is_not_cut():
    graph = small_graph(20, 0)
    graph.batch = torch.zeros(20, dtype=torch.int64)
    found = traced(Classifier(gin, gnn.global_add_pool), graph).opgraph
    assert found.axes["graph"].kind == "other"
    assert all(s.closed is None for op in found.ops for s in op.strategies if s.name != "counted")
