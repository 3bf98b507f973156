"""Rows that masks select are counted on the graph that is planned for; counts are whole."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, Sequential

from autoplan.cluster import parse_cluster
from autoplan.planner.analysis import analyse_step
from autoplan.planner.shares import counted
from autoplan.planner.source import source_of
from autoplan.planner.steps import trace_source
from autoplan.planner.workload import StepRequest, make_workload
from autoplan.report.analysis import analysis_document


def graph() -> Data:
    """150 nodes, a few self-loops among 700 edges, 57 nodes to train on."""
    edges = torch.randint(0, 150, (2, 700), generator=torch.Generator().manual_seed(3))
    edges[1, :9] = edges[0, :9]
    mask = torch.zeros(150, dtype=torch.bool)
    mask[torch.randperm(150, generator=torch.Generator().manual_seed(4))[:57]] = True
    return Data(
        x=torch.randn(150, 5), edge_index=edges, y=torch.randint(0, 3, (150,)), train_mask=mask
    )


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Sequential("x, edge_index", [(GCNConv(5, 3), "x, edge_index -> x")])


REQUEST = StepRequest(
    loss=lambda out, data: cross_entropy(out[data.train_mask], data.y[data.train_mask])
)


def rows_of(workload, data: Data) -> dict[str, float]:
    base = {"node": float(data.num_nodes), "edge": float(data.num_edges)}
    return {name: axis.count(base) for name, axis in workload.opgraph.axes.items()}


def test_masks_and_self_loops_are_counted_on_the_graph():
    data = graph()
    loops = int((data.edge_index[0] == data.edge_index[1]).sum())
    workload = trace_source(model(), source_of(data), REQUEST)

    rows = rows_of(workload, data)

    kept = {name: count for name, count in rows.items() if name.startswith("select(")}
    assert sorted(kept.values()) == [57, 700 - loops]
    both = [count for name, count in rows.items() if name.startswith("concat(")]
    assert both == [700 - loops + 150]


def test_on_samples_alone_they_are_estimates():
    data = graph()
    workload = make_workload(model(), data, REQUEST)
    seen = rows_of(workload, data)
    now = rows_of(counted(workload, data), data)
    assert seen != now
    assert all(count == round(count) for count in (*seen.values(), *now.values()))


def test_numbers_of_an_analysis_are_whole():
    report = analyse_step(model(), source_of(graph()), parse_cluster("2xcpu"), REQUEST)
    fractional = [
        (path, value)
        for path, value in leaves(analysis_document(report))
        if path[-1] in ("nnz", "rows", "flops") and value != round(value)
    ]
    assert not fractional


def leaves(value, path=()):
    """Numbers of a document, with where they are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    elif isinstance(value, int | float):
        yield path, value
