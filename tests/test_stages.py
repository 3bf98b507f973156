from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv

from autoplan.errors import PlanError
from autoplan.stages import (
    check_stages,
    crossings,
    following,
    module_stages,
    monotone,
    reads,
    together,
    unknown_axes,
)
from tests.trace.recorded import Convolutions, described, ops


def group_of(graph, op):
    return next((group for group in together(graph) if op.index in group), frozenset({op.index}))


def halves(graph, module="second"):
    """Stage 1 from the first op of a module on."""
    first = next(op.index for op in graph.ops if module in op.module)
    return {op.index: int(op.index >= first) for op in graph.ops}


def test_what_is_written_in_place_stays_with_its_maker():
    graph = described(Convolutions(GCNConv))
    for scatter in ops(graph, "scatter_add"):
        maker = next(op for op in graph.ops if scatter.inputs[0] in op.outputs)
        assert maker.index in group_of(graph, scatter)
    (normalise, _) = ops(graph, "pow")
    assert group_of(graph, normalise) == group_of(graph, ops(graph, "scatter_add")[0])
    # readers after the last write may be elsewhere
    assert all(len(group_of(graph, op)) == 1 for op in ops(graph, "mm"))


def test_views_that_are_read_after_a_write_stay_with_it():
    def between(h, edge_index):
        h = h + 1
        flat = h.view(-1)
        h.mul_(2.0)
        return flat.view(-1, 16)

    graph = described(Convolutions(GCNConv, between))
    (write,) = [op for op in graph.ops if op.name == "aten.mul_.Tensor"]
    group = group_of(graph, write)
    assert {op.index for op in ops(graph, "view") if not op.module} <= group
    product = ops(graph, "mm")[-1]
    assert product.index in group


def test_running_statistics_that_are_used_twice():
    class Twice(Convolutions):
        def __init__(self):
            super().__init__(GCNConv)
            self.norm = nn.BatchNorm1d(16)
            self.between = lambda h, edge_index: self.norm(self.norm(h).tanh())

    graph = described(Twice())
    first, second = ops(graph, "native_batch_norm")
    assert second.index in group_of(graph, first)
    counts = [op for op in graph.ops if op.name == "aten.add_.Tensor"]
    assert counts[1].index in group_of(graph, counts[0])
    assert counts[0].index not in group_of(graph, first)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_tensors_stay_where_they_are_made():
    def between(h, edge_index):
        ones = torch.ones(edge_index.size(1))
        adjacency = torch.sparse_coo_tensor(edge_index, ones, (h.size(0), h.size(0)))
        return h * torch.sparse.sum(adjacency, 1).to_dense().view(-1, 1)

    graph = described(Convolutions(GCNConv, between))
    made = [op for op in graph.ops if "sparse" in op.name]
    assert len(made) == 2
    assert made[1].index in group_of(graph, made[0])


def test_groups_are_disjoint_and_in_order():
    groups = together(described(Convolutions(GATConv)))
    members = [index for group in groups for index in group]
    assert len(set(members)) == len(members)
    assert [min(group) for group in groups] == sorted(min(group) for group in groups)


def test_numbers_are_read_again():
    def between(h, edge_index):
        scale = edge_index.max().item()
        weight = torch.tensor(1.0 + scale)
        return h * weight / scale

    graph = described(Convolutions(GCNConv, between))
    (item,) = ops(graph, "_local_scalar_dense")
    readers = [op for op in graph.ops if item.index in op.numbers]
    assert [op.name for op in readers] == ["aten.lift_fresh.default", "aten.div.Tensor"]
    for op in readers:
        assert item.inputs[0] in reads(graph)[op.index]
    cut = {op.index: int(op.index > item.index) for op in graph.ops}
    crossing = {c.tensor: c for c in crossings(graph, {}, cut)}
    assert not crossing[item.inputs[0]].gradient


def test_masks_of_drawn_rows_cross():
    graph = described(Convolutions(lambda i, o: GATConv(i, o, dropout=0.5)))
    (draw, _) = ops(graph, "bernoulli")
    cut = {op.index: int(op.index >= min(group_of(graph, draw))) for op in graph.ops}
    (mask, _) = ops(graph, "ne")
    assert mask.outputs[0] in reads(graph)[draw.index]
    assert mask.outputs[0] in {c.tensor for c in crossings(graph, {}, cut)}


def test_a_stage_may_only_read_earlier_ones():
    graph = described(Convolutions(GCNConv))
    cut = halves(graph)
    check_stages(graph, cut)
    product = ops(graph, "mm")[0]
    with pytest.raises(PlanError, match=rf"reads what op {product.index} aten\.mm\.default in"):
        monotone(graph, {**cut, product.index: 2})
    scatter = ops(graph, "scatter_add")[-1]
    with pytest.raises(PlanError, match=rf"aten.new_zeros.*op {scatter.index} .*share memory"):
        check_stages(graph, {i: 1 + int(i >= scatter.index) if s else 0 for i, s in cut.items()})
    with pytest.raises(PlanError, match="has no stage"):
        check_stages(graph, {})
    with pytest.raises(PlanError, match="numbered from 0"):
        check_stages(graph, {index: 2 * stage for index, stage in cut.items()})


def test_axes_whose_rows_only_the_sender_knows():
    graph = described(Convolutions(GCNConv))
    joined = graph.tensors[ops(graph, "cat")[0].outputs[0]]
    product = graph.tensors[ops(graph, "mm")[0].outputs[0]]
    (mask, _) = ops(graph, "ne")
    found = unknown_axes([product, joined, joined], graph.axes)
    assert found == (f"concat(select({mask.outputs[0]}),node)",)
    assert unknown_axes([product], graph.axes) == ()


def test_an_evaluation_follows_the_training():
    model = Convolutions(GCNConv)
    training = described(model)
    cut = halves(training)
    held = {}
    for op in training.ops:
        for name in op.inputs:
            tensor = training.tensors[name]
            if tensor.origin == "parameter":
                held.setdefault(tensor.source, set()).add(cut[op.index])
    evaluation = described(model, training=False)
    modules = module_stages(training, cut)
    found = following(evaluation, held, modules)
    check_stages(evaluation, found)
    for op in evaluation.ops:
        assert found[op.index] == cut[op.index] or not op.module, op
    early = {name: {0} for name in held if "second" in name}
    with pytest.raises(
        PlanError, match=r"reads parameters of stages \[0\] after results of stage 1"
    ):
        following(evaluation, {**held, **early}, modules)
