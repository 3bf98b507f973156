"""Plans for a GraphSpec: priced at its sizes with a stated halo model, refused by whatever runs, rebound to a real graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, HeteroConv, SAGEConv

import autoplan
from autoplan import GraphSpec, errors
from autoplan.cli.options import _PUBLIC
from autoplan.graphsizes import PUBLIC
from autoplan.partition.measure import measure
from autoplan.partition.metis import partition_nodes
from autoplan.partition.model import halo_rows, modelled_partition
from autoplan.report.text import WIDTH

ARXIV = GraphSpec.named("OGBN-arxiv")


@pytest.fixture(scope="module")
def plan() -> autoplan.Plan:
    return autoplan.optimize(_gcn(), ARXIV, "4xa100_sxm4_80gb", strategy="data")


def _gcn() -> nn.Module:
    torch.manual_seed(0)
    return GCN(128, 16, 2, 40)


def test_a_plan_for_sizes_says_that_its_halo_is_a_model(plan: autoplan.Plan) -> None:
    assert plan.planning_only
    assert dict(plan.data.graph_rows) == {"node": 169_343, "edge": 1_166_243}
    cut = plan.data.partition
    assert cut is not None
    assert cut.method == "model"
    assert sum(cut.owned_nodes) == 169_343
    text = plan.explain()
    assert all(len(line) <= WIDTH for line in text.splitlines())
    for said in (
        "planning only",
        "modelled, not measured",
        "log2(P)",
        "stated halo model",
        "Open Graph Benchmark",
    ):
        assert said in " ".join(text.split())


def test_what_is_sent_follows_the_modelled_halo(plan: autoplan.Plan) -> None:
    halo = round(halo_rows(ARXIV, "node", 169_343, 4))
    assert plan.data.partition is not None
    assert set(plan.data.partition.halo_nodes) == {halo}
    moves = [m for m in plan.stages[0].transitions if m.exchange == "halo_exchange"]
    assert moves
    assert all(sent % halo == 0 for move in moves for sent in move.forward_bytes)
    # the loss has the spec's share of rows, not that of the graph that was generated
    assert 0 < sum(plan.predicted.communication_bytes) < 4 * 200 * 4 * halo


def test_such_a_plan_is_saved_and_loaded_and_equal_each_time(plan: autoplan.Plan, tmp_path: Path):
    plan.save(tmp_path / "plan.json")
    assert autoplan.Plan.load(tmp_path / "plan.json").data == plan.data
    again = autoplan.optimize(_gcn(), ARXIV, "4xa100_sxm4_80gb", strategy="data")
    assert again.data.to_json() == plan.data.to_json()


def _arxiv_like() -> Data:
    generator = torch.Generator().manual_seed(1)
    masks = torch.rand(400, generator=generator)
    return Data(
        x=torch.randn(400, 128, generator=generator),
        edge_index=torch.randint(400, (2, 2000), generator=generator),
        y=torch.randint(40, (400,), generator=generator),
        train_mask=masks < 0.5,
        val_mask=(masks >= 0.5) & (masks < 0.7),
        test_mask=masks >= 0.7,
    )


def test_nothing_runs_without_a_graph_until_the_plan_is_rebound(plan: autoplan.Plan) -> None:
    graph = _arxiv_like()
    with pytest.raises(errors.PlanError, match=r"planning only.*plan\.rebind\(graph\)"):
        plan.step(_gcn(), graph)
    for call in (
        lambda: plan.train(_gcn(), ARXIV, epochs=1),
        lambda: plan.predict(_gcn(), ARXIV),
        lambda: autoplan.verify(plan, _gcn(), ARXIV),
    ):
        with pytest.raises(errors.PlanError, match=r"ogbn-arxiv is a GraphSpec.*plan\.rebind"):
            call()
    bound = plan.rebind(graph, _gcn())
    assert not bound.planning_only
    assert bound.data.partition is not None
    assert bound.data.partition.method == "metis"
    assert bound.step(_gcn(), graph, seed=0).loss > 0


def test_several_types_are_planned_for_with_their_reverse_edges() -> None:
    spec = GraphSpec.named("ogbn-mag").with_reverse_edges()
    assert spec.total_edges == 2 * 21_111_007
    assert spec.total_nodes == 1_939_743

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = HeteroConv(
                {
                    ("paper", "cites", "paper"): SAGEConv(128, 349),
                    ("paper", "rev_writes", "author"): SAGEConv((128, 128), 349),
                }
            )

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict) -> Tensor:
            edges = {key: edge_index_dict[key] for key in [("paper", "cites", "paper")]}
            return self.conv({"paper": x_dict["paper"]}, edges)["paper"]

    def loss(out: Tensor, graph) -> Tensor:
        mask = graph["paper"].train_mask
        return nn.functional.cross_entropy(out[mask], graph["paper"].y[mask])

    plan = autoplan.optimize(Net(), spec, "2xh100_sxm5", loss=loss)
    rows = dict(plan.data.graph_rows)
    assert rows["node[paper]"] == 736_389
    assert rows["edge[author__writes__paper]"] == 7_145_660
    assert rows["edge[paper__rev_writes__author]"] == 7_145_660
    assert plan.planning_only


@pytest.mark.parametrize("spec", PUBLIC, ids=lambda spec: spec.name)
def test_modelled_partitions_add_up(spec: GraphSpec) -> None:
    rows = {axis: spec.rows(axis) for ends in spec.relations.values() for axis in ends}
    rows |= {axis: spec.rows(axis) for axis in spec.relations}
    for parts in (1, 2, 8, 64, 1024):
        made = modelled_partition(spec, rows, parts)
        for axis, count in rows.items():
            assert sum(shard.owned_rows[axis] for shard in made.shards) == count
        assert 0 <= made.cut_edges <= spec.total_edges
        assert (made.cut_edges > 0) == (parts > 1)
        assert made.shards[0].halo <= spec.total_nodes


def test_the_halo_model_holds_within_what_it_states_on_a_real_graph(data_directory: Path) -> None:
    stored = np.load(data_directory / "cora" / "graph.npz", allow_pickle=True)
    starts = stored["adj_indptr"]
    destinations = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    pairs = np.stack([destinations, stored["adj_indices"]]).astype(np.int64)
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    nodes = len(starts) - 1
    spec = GraphSpec(nodes=nodes, edges=edges.shape[1], features=8)
    for parts in (2, 4, 8, 16):
        cut = measure(partition_nodes(edges, nodes, parts), {"edge": edges}, parts=parts)
        found = sum(shard.halo for shard in cut.shards) / parts
        assert 0.86 <= halo_rows(spec, "node", nodes, parts) / found <= 1.32


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GraphSpec.named("ogbn-paper"), "ogbn-papers100M"),
        (lambda: GraphSpec(nodes=0, edges=1, features=1), "nodes 0"),
        (lambda: GraphSpec(nodes={"a": 1}, edges=1, features=1), "by type"),
        (lambda: GraphSpec(nodes={"a": 1}, edges={("a", "r", "b"): 1}, features={}), "type b"),
        (lambda: GraphSpec(nodes=1, edges=1, features=1, labelled=1.5), "labelled=1.5"),
        (lambda: autoplan.optimize(_gcn(), ARXIV, "2xcpu", batch_size=2), "batch_size"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_what_to_give(make, said: str) -> None:
    with pytest.raises(errors.PlanError, match=said):
        make()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: GCN(64, 16, 2, 40), "x of 128 columns, 40 classes"),
        (lambda: GCN(128, 16, 2, 10), "ogbn-arxiv (x of 128 columns, 40 classes)"),
    ],
)
def test_a_model_of_other_widths_is_told_those_of_the_sizes(model, said: str) -> None:
    with pytest.raises(errors.TraceError) as raised:
        autoplan.optimize(model(), ARXIV, "2xcpu")
    message = str(raised.value)
    assert said in message
    assert "drawn from the graph" not in message


def test_readme_and_help_tell_the_widths_of_every_public_graph(repository: Path) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    for spec in PUBLIC:
        assert spec.attributes in _PUBLIC
        assert f"| `{spec.name}` | {spec.attributes} |" in readme
