"""Models of whole graphs on closed partitions: one device's outputs, gradients and buffers, with rows per graph owned."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data
from torch_geometric.nn.models import GCN

from autoplan.execute.difference import first_difference
from autoplan.execute.rewrite import rank_program
from autoplan.planner.check import state_of
from autoplan.planner.measured import shards_of
from autoplan.planner.workload import Workload, cast
from autoplan.search.local import NotLocal, local_strategies
from tests.closed import (
    WIDTH,
    Classifier,
    VirtualNode,
    batch_of,
    difference_on,
    gat,
    gin,
    label_ops,
    owned_choices,
    perceptron,
    traced,
)

from .graphs import awkward_graph

MODELS: dict[str, Callable[[], nn.Module]] = {
    "gin_add": lambda: Classifier(gin, gnn.global_add_pool),
    "gcn_mean": lambda: Classifier(gnn.GCNConv, gnn.global_mean_pool),
    "gat_max": lambda: Classifier(gat, gnn.global_max_pool),
    "graph_norm": lambda: Classifier(gin, gnn.global_add_pool, gnn.GraphNorm(WIDTH)),
    "instance_norm": lambda: Classifier(gin, gnn.global_add_pool, gnn.InstanceNorm(WIDTH)),
    "layer_norm": lambda: Classifier(gin, gnn.global_add_pool, gnn.LayerNorm(WIDTH)),
    "virtual_node": lambda: Classifier(gin, gnn.global_mean_pool, VirtualNode()),
    "attention": lambda: Classifier(gin, gnn.AttentionalAggregation(perceptron(WIDTH, 1))),
    "means_and_deviations": lambda: Classifier(
        gin, lambda h, batch: gnn.MeanAggregation()(h, batch) + gnn.StdAggregation()(h, batch)
    ),
}
"""Without batch norm: no rank needs another's rows."""

NORMALISED: dict[str, Callable[[], nn.Module]] = {
    "nodes": lambda: Classifier(gin, gnn.global_add_pool, gnn.BatchNorm(WIDTH)),
    "readout": lambda: Classifier(gin, gnn.global_add_pool, readout_norm=True),
}

WHOLE: dict[str, Callable[[], nn.Module]] = {
    "sorted": lambda: Classifier(
        gin, lambda h, batch: gnn.SortAggregation(3)(h, batch).view(-1, 3, WIDTH).sum(1)
    ),
    "top_k": lambda: Classifier(gin, TopK()),
}
"""What their readout does has no rule; it runs whole."""

LOSSES: dict[str, Callable[..., Tensor]] = {
    "weighted": lambda out, g: F.cross_entropy(
        out, g.y, weight=torch.tensor([0.2, 1.0, 3.0], dtype=out.dtype)
    ),
    "label_smoothing": lambda out, g: F.cross_entropy(out, g.y, label_smoothing=0.1),
    "ignored": lambda out, g: F.cross_entropy(out, g.y, ignore_index=1),
    "summed": lambda out, g: F.cross_entropy(out, g.y, reduction="sum"),
    "binary": lambda out, g: F.binary_cross_entropy_with_logits(out[:, :2], g.targets),
    "weighted_binary": lambda out, g: F.binary_cross_entropy_with_logits(
        out[:, :2], g.targets, pos_weight=torch.tensor([0.5, 2.0], dtype=out.dtype)
    ),
    "square": lambda out, g: F.mse_loss(out[:, 0], g.value),
    "absolute": lambda out, g: F.l1_loss(out[:, 0], g.value),
    "smooth": lambda out, g: F.smooth_l1_loss(out[:, 0], g.value),
    "by_hand": lambda out, g: ((out[:, 0] - g.value) ** 2).mean(),
    "divided_by_graphs": lambda out, g: F.cross_entropy(out, g.y, reduction="sum") / out.size(0),
    "labelled": lambda out, g: selected(F.cross_entropy, g.y > 0, out, g.y),
    "labelled_binary": lambda out, g: selected(
        F.binary_cross_entropy_with_logits, g.y > 0, out[:, :2], g.targets
    ),
}


def selected(loss: Callable[..., Tensor], rows: Tensor, out: Tensor, target: Tensor) -> Tensor:
    return loss(out[rows], target[rows])


class TopK(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = gnn.TopKPooling(WIDTH, ratio=0.5)

    def forward(self, h: Tensor, batch: Tensor) -> Tensor:
        none = torch.empty(2, 0, dtype=torch.int64)
        h, _, _, batch, *_ = self.pool(h, none, None, batch)
        return gnn.global_mean_pool(h, batch)


def equal_on_closed_partitions(workload: Workload, choices: dict[int, str], batch) -> None:
    for parts in (2, 3, 4):
        assert difference_on(workload, choices, batch, parts) is None
    assert difference_on(workload, choices, batch, 3, empty=True) is None


def whole_ops(workload: Workload, choices: dict[int, str]) -> list[str]:
    """Heavy ops of rows that run whole; a list of labels may."""
    graph = workload.opgraph
    return [
        f"{op.name} ({op.where})"
        for op in graph.ops
        if op.forward.kind in ("dense", "gather", "scatter")
        and any(isinstance(dim, str) for name in op.inputs for dim in graph.tensors[name].dims)
        and choices[op.index] == "R"
        and op.index not in label_ops(graph)
    ]


def collectives(workload: Workload, choices: dict[int, str]) -> list[tuple[str, str]]:
    """What ranks of a closed partition need of each other, as (tensor or op, how)."""
    graph = workload.opgraph
    written = rank_program(workload.traced.program, graph, choices)
    exchanges = [
        (move.tensor, move.exchange)
        for move in written.transitions
        if move.exchange not in ("none", "halo_exchange")
    ]
    kernels = [
        (op.name, strategy.kernel)
        for op in graph.ops
        for strategy in op.strategies
        if strategy.name == choices[op.index] and strategy.collectives
    ]
    return exchanges + kernels


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    torch.manual_seed(0)
    batch = batch_of()
    workload = traced(MODELS[name](), batch)
    choices = owned_choices(workload.opgraph)

    equal_on_closed_partitions(workload, choices, batch)

    assert not whole_ops(workload, choices)
    loss = workload.opgraph.outputs[0]
    assert collectives(workload, choices) == [(loss, "all_reduce")]


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    torch.manual_seed(0)
    batch = batch_of()
    batch.y[:3] = torch.tensor([0, 1, 2])
    workload = traced(MODELS["gin_add"](), batch, LOSSES[name])
    choices = owned_choices(workload.opgraph)

    equal_on_closed_partitions(workload, choices, batch)

    assert not whole_ops(workload, choices)
    loss = workload.opgraph.outputs[0]
    assert collectives(workload, choices) == [(loss, "all_reduce")]


@pytest.mark.parametrize("name", ["gin_add", "gat_max", "virtual_node"])
@pytest.mark.parametrize("loss", [None, "weighted", "labelled"])
def test_micro_batches_need_nothing_of_each_other(name: str, loss: str | None) -> None:
    torch.manual_seed(0)
    batch = batch_of()
    batch.y[:3] = torch.tensor([0, 1, 2])
    workload = traced(MODELS[name](), batch, LOSSES[loss] if loss else None)
    found = local_strategies(workload.opgraph, {})
    choices = {op: strategy.name for op, strategy in found.items()}

    assert difference_on(workload, choices, batch, 4, empty=True) is None
    assert collectives(workload, choices) == [(workload.opgraph.outputs[0], "all_reduce")]
    assert not whole_ops(workload, choices)


PENALISED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "behind": lambda loss, penalty: loss + 0.01 * penalty,
    "in_front": lambda loss, penalty: 0.01 * penalty + loss,
    "subtracted": lambda loss, penalty: loss - 0.01 * penalty,
}


@pytest.mark.parametrize("name", PENALISED)
def test_each_part_adds_its_share_of_a_penalty(name: str) -> None:
    torch.manual_seed(0)
    batch, model = batch_of(), MODELS["gin_add"]()

    def loss(out: Tensor, graph) -> Tensor:
        penalty = model.last.weight.square().sum() + model.first.nn[0].weight.abs().sum()
        return PENALISED[name](F.cross_entropy(out, graph.y), penalty)

    workload = traced(model, batch, loss)
    found = local_strategies(workload.opgraph, {})
    choices = {op: strategy.name for op, strategy in found.items()}

    for parts in (2, 3):
        assert difference_on(workload, choices, batch, parts) is None
    assert difference_on(workload, choices, batch, 4, empty=True) is None
    assert collectives(workload, choices) == [(workload.opgraph.outputs[0], "all_reduce")]
    assert any(choice.startswith("share") for choice in choices.values())


@pytest.mark.parametrize("name", NORMALISED)
def test_batch_norm_has_no_micro_batches(name: str) -> None:
    workload = traced(NORMALISED[name](), batch_of())
    with pytest.raises(NotLocal, match="batch_norm"):
        local_strategies(workload.opgraph, {})


@pytest.mark.parametrize("name", NORMALISED)
def test_batch_norm_counts_all_rows(name: str) -> None:
    """Three graphs of very different sizes (case h06)."""
    torch.manual_seed(0)
    batch = batch_of((50, 4, 5))
    workload = traced(NORMALISED[name](), batch)
    choices = owned_choices(workload.opgraph)

    for parts in (2, 3):
        assert difference_on(workload, choices, batch, parts) is None
    assert difference_on(workload, choices, batch, 4, empty=True) is None

    assert not whole_ops(workload, choices)
    kernels = [how for _, how in collectives(workload, choices)]
    assert kernels == ["all_reduce", "sync_batch_norm"]


@pytest.mark.parametrize("name", WHOLE)
def test_readouts_without_a_rule_run_whole(name: str) -> None:
    torch.manual_seed(0)
    batch = batch_of()
    workload = traced(WHOLE[name](), batch)
    choices = owned_choices(workload.opgraph)

    equal_on_closed_partitions(workload, choices, batch)


@pytest.mark.parametrize("name", ["gin_add", "gcn_mean", "virtual_node"])
def test_other_partitions_add_up_what_parts_of_a_graph_pool(name: str) -> None:
    torch.manual_seed(0)
    batch = batch_of()
    workload = traced(MODELS[name](), batch)
    choices = owned_choices(workload.opgraph, closed=False)
    schema = workload.traced.schema
    tensors = {name: cast(batch[name], torch.float64) for name in schema.names}
    owner = torch.randint(0, 3, (batch.num_nodes,)).numpy()
    shards = shards_of(owner, schema, tensors, 3)

    found = first_difference(
        workload.traced.program, workload.opgraph, choices, shards, tensors, *state_of(workload)
    )

    assert found is None
    assert "partial" in choices.values()


@pytest.mark.parametrize("name", ["gcn_mean", "gat_max"])
def test_a_graph_without_nodes_has_an_owner(name: str) -> None:
    torch.manual_seed(0)
    full = batch_of()
    batch = Data(
        x=full.x,
        edge_index=full.edge_index,
        batch=torch.where(full.batch < 2, full.batch, full.batch + 1),
        y=torch.randint(0, 3, (6,)),
    )
    workload = traced(MODELS[name](), batch)

    equal_on_closed_partitions(workload, owned_choices(workload.opgraph), batch)


@pytest.mark.parametrize("regression", [False, True])
def test_components_of_one_graph_need_nothing_of_each_other(regression: bool) -> None:
    torch.manual_seed(0)
    parts = [awkward_graph(nodes, 4 * nodes, seed=nodes) for nodes in (20, 31, 17)]
    joined = Batch.from_data_list(parts)
    graph = Data(**{name: joined[name] for name in ("x", "edge_index", "y", "train_mask")})

    def loss(out: Tensor, graph) -> Tensor:
        mine, wanted = out[graph.train_mask], graph.y[graph.train_mask]
        if regression:
            return F.mse_loss(mine[:, 0], wanted.to(out.dtype))
        return F.cross_entropy(mine, wanted)

    workload = traced(GCN(8, 12, 2, 4, dropout=0.3), graph, loss)
    found = local_strategies(workload.opgraph, {})
    choices = {op: strategy.name for op, strategy in found.items()}

    equal_on_closed_partitions(workload, choices, graph)
    assert collectives(workload, choices) == [(workload.opgraph.outputs[0], "all_reduce")]
