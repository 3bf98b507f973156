"""`autoplan analyze`: figures of real traces at 100 columns and as a document; traffic that adds up; unknown ops by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GraphSAGE

import autoplan
from autoplan.analysis import analyse_at
from autoplan.cli.main import main
from autoplan.cluster import parse_cluster
from autoplan.graphspec import GraphSpec
from autoplan.planner.analysis import analyse_step
from autoplan.planner.source import source_of
from autoplan.planner.workload import StepRequest, make_workload
from autoplan.report.analysis import ProgramReport, analysis_document, analysis_text
from autoplan.report.names import broken
from autoplan.report.text import WIDTH
from autoplan.report.units import decimal, size

FILE = """
import torch
from tests.planner.test_analysis import Net, graph
def build():
    return Net(), graph()
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first_convolution_with_a_very_long_name = GATConv(12, 8, heads=2)
        self.second = GCNConv(16, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first_convolution_with_a_very_long_name(x, edge_index).relu()
        # no rule covers it
        h = torch.special.i0e(h)
        return self.second(h, edge_index)


def graph(nodes: int = 60, edges: int = 300) -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(nodes, 12, generator=generator),
        edge_index=torch.randint(0, nodes, (2, edges), generator=generator),
        y=torch.randint(0, 5, (nodes,), generator=generator),
    )


@pytest.fixture(scope="module")
def report() -> ProgramReport:
    torch.manual_seed(0)
    return analyse_step(Net(), source_of(graph()), parse_cluster("3xcpu"), StepRequest())


def _sound(text: str) -> None:
    """No line is too long, nothing is cut."""
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert "…" not in text


def test_every_layer_shows_its_figures_on_two_lines_of_at_most_100_columns(report) -> None:
    text = analysis_text(report, ops=True)
    _sound(text)
    lines = text.splitlines()
    for group in (*report.figures.layers, report.figures.total):
        for name, figures in (("fwd", group.forward), ("bwd", group.backward)):
            shown = [
                decimal(figures.flops),
                size(figures.bytes),
                decimal(figures.work),
                decimal(figures.parallelism),
            ]
            assert any(name in line and all(s in line for s in shown) for line in lines)
    assert all(f"{op.index} {op.name.split('.')[1]}" in text for op in report.figures.ops)


def test_figures_of_any_size_are_neither_cut_nor_wrapped(report) -> None:
    opgraph = make_workload(Net(), graph(), StepRequest()).opgraph
    for scale in (1.0, 999.6, 1e6, 999.7e9):
        rows = {
            axis: scale * n
            for axis, n in {**report.figures.rows, "node": 777.0, "edge": 9999.0}.items()
        }
        figures = analyse_at(opgraph, rows)
        text = analysis_text(replace(report, figures=figures), ops=True)
        _sound(text)
        assert size(figures.total.forward.bytes) in text


def test_layers_and_classes_add_up_to_the_total(report) -> None:
    document = analysis_document(report)
    total = document["total"]["forward"]
    for groups in (document["layers"], document["classes"]):
        for figure in ("flops", "bytes", "work", "nnz"):
            assert sum(g["forward"][figure] for g in groups) == pytest.approx(total[figure])
    assert total["parallelism"] == pytest.approx(total["work"] / total["depth"])
    assert {"update", "gather", "aggregate"} <= {group["name"] for group in document["classes"]}


def test_what_no_rule_covers_is_named_with_the_reason_of_its_price(report) -> None:
    (unknown,) = analysis_document(report)["unknown"]
    assert unknown["name"].startswith("aten.special_i0e")
    assert unknown["ops"] == 1
    text = " ".join(analysis_text(report).split())
    assert unknown["name"] in text
    assert "priced by the sizes of their tensors" in text


def test_traffic_of_each_strategy_adds_up_to_what_the_plan_predicts(report) -> None:
    sent = {volume.name: volume for volume in report.volumes}
    data = sent["data on 3 devices"]
    parameters = sum(p.numel() for p in Net().parameters())
    assert data.gradients == 3 * 4 * parameters
    assert data.halo > 0
    assert data.stages == 0
    model = next(v for v in report.volumes if v.strategy == "model" and v.reason is None)
    assert model.stages == model.total > 0
    for volume in report.volumes:
        parts = volume.halo + volume.gather + volume.reduce + volume.stages + volume.gradients
        assert volume.total == parts
        if volume.strategy == "pipeline":
            assert volume.reason is not None
            assert volume.total == 0


def test_the_command_prints_one_document_and_takes_a_number_of_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "target.py"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["analyze", f"{path}:build", "-p", "2", "--json"])
    assert not ended.value.code
    document = json.loads(capsys.readouterr().out)
    assert document["devices"] == "2xcpu"
    assert document["generality"] == "general"
    assert len(document["ops"]) == len(document["total"]["ops"])
    assert any(v["strategy"] == "data" and v["total"] for v in document["communication"])


def test_sizes_of_a_graph_that_is_not_here_are_analysed_too() -> None:
    spec = GraphSpec.named("ogbn-arxiv")
    report = analyse_step(GCNConv(128, 40), source_of(spec), parse_cluster("2xcpu"), StepRequest())
    assert report.stats.rows["node"] == 169_343
    assert report.structure is None
    text = analysis_text(report)
    _sound(text)
    assert "modelled, not measured" in " ".join(text.split())


class Wasteful(nn.Module):
    """A layer whose output nothing reads, one that is not called, and a count that is only written."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(12, 5)
        self.norm = nn.BatchNorm1d(5)
        self.dead = nn.Linear(5, 40)
        self.teacher = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.conv(x, edge_index))
        self.dead(h).relu_().sum()
        return h


def test_what_nothing_reads_and_what_is_not_used_is_told_in_text_and_document() -> None:
    found = analyse_step(Wasteful(), source_of(graph()), parse_cluster("1xcpu"), StepRequest())

    text, document = analysis_text(found, ops=True), analysis_document(found)
    unread = [op for op in document["ops"] if op["unread"]]

    assert {op["layer"] for op in unread} == {"dead", "(model)"}
    assert {op["name"].split(".")[1] for op in unread} >= {"relu_", "sum"}
    assert "all unread" in text
    assert "unread" in text[text.index("By op") :]
    assert any("all of dead" in note and "are wasted" in note for note in document["notes"])
    assert any("does not use teacher (4 parameters, 96 B)" in n for n in document["notes"])
    told = " ".join(text[text.index("\nNotes") : text.index("\nLegend")].split())
    assert all(note in told for note in document["notes"])
    notes = autoplan.optimize(Wasteful(), graph(), "1xcpu").data.notes
    assert any("nothing reads the results of" in note and "dead" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("convs.0.author__writes__paper", 16, ["convs.0.author__", "writes__paper"]),
        ("convs.0", 16, ["convs.0"]),
        ("a_long_word_of_many", 8, ["a_long_", "word_of_", "many"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("", 3, [""]),
    ],
)
def test_names_break_where_their_parts_meet(name: str, width: int, lines: list[str]) -> None:
    assert broken(name, width) == lines


def test_copies_that_operators_drop_themselves_are_marked_but_no_waste() -> None:
    """A maximum keeps no copy of its own; the user's forward has nothing to leave out."""
    largest = GraphSAGE(12, 8, 2, 5, aggr="max")
    found = analyse_step(largest, source_of(graph()), parse_cluster("1xcpu"), StepRequest())
    assert any(op.unread for op in found.figures.ops)
    assert not any("nothing reads" in note for note in analysis_document(found)["notes"])
    assert not any(
        "nothing reads" in n for n in autoplan.optimize(largest, graph(), "cpu").data.notes
    )
