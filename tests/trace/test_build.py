from __future__ import annotations

from torch_geometric.nn import GCNConv

from autoplan.opgraph import IndexInto
from tests.trace.recorded import Convolutions, described, ops, strategies


def test_gcn_end_to_end():
    graph = described(Convolutions(GCNConv))
    assert not graph.unknown_ops
    assert graph.single_only is None
    gathers = ops(graph, "index_select")
    assert [strategies(op)["O"] for op in gathers] == [("HO", "O")] * 2
    scattered = [op for op in ops(graph, "scatter_add") if op.differentiates]
    assert [strategies(op)["O"] for op in scattered] == [("OOO", "O")] * 2
    (loss,) = ops(graph, "nll_loss_forward")
    assert strategies(loss)["O"] == ("OO", "RR")
    assert graph.outputs[0] == loss.outputs[0]


def test_self_loops_are_appended():
    graph = described(Convolutions(GCNConv))
    joined = graph.tensors[ops(graph, "cat")[0].outputs[0]]
    mask = ops(graph, "ne")[0].outputs[0]
    assert joined.dims == (2, f"concat(select({mask}),node)")
    assert joined.index == IndexInto(("node",), ("src", "dst"))
    assert graph.axes[f"select({mask})"].parts == ("edge",)
