"""Plans as files: the same bytes from any process, and the same training from a loaded plan."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT, GCN

import autoplan
from autoplan.errors import PlanError
from autoplan.plan import PlanData
from autoplan.search.result import FAMILIES

from .graphs import awkward_graph

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, torch
sys.path.insert(0, {root!r})
from torch_geometric.nn.models import GAT
import autoplan
from tests.integration.graphs import awkward_graph
torch.manual_seed(int(sys.argv[1]))
from autoplan.errors import InfeasibleError
from autoplan.search.result import FAMILIES
for strategy in ("auto", *FAMILIES):
    try:
        plan = autoplan.optimize(GAT(8, 12, 2, 4, heads=3), awkward_graph(), "2xcpu", strategy=strategy)
    except InfeasibleError as error:
        text = f"no plan: {{error}}"
    else:
        assert strategy in ("auto", plan.strategy)
        text = plan.data.to_json()
    with open(f"{{sys.argv[2]}}/{{strategy}}", "w", encoding="utf-8") as file:
        file.write(text)
"""


@pytest.mark.long
def test_same_bytes_from_other_processes_and_other_weights(tmp_path: Path) -> None:
    texts = []
    for seed in ("0", "1"):
        path = tmp_path / f"plans-{seed}"
        path.mkdir()
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            SCRIPT.format(root=str(ROOT)),
            seed,
            str(path),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, check=True, env=environment, capture_output=True)
        texts.append({file.name: file.read_bytes() for file in path.iterdir()})

    assert texts[0].keys() == {"auto", *FAMILIES}
    assert texts[0] == texts[1]
    PlanData.from_json(texts[0]["single"].decode())
    PlanData.from_json(texts[0]["data"].decode())


def test_a_loaded_plan_trains_alike(tmp_path: Path) -> None:
    losses = []
    graph = awkward_graph()
    torch.manual_seed(0)
    plan = autoplan.optimize(GCN(8, 12, 2, 4, dropout=0.5), graph, "cpu")
    plan.save(tmp_path / "plan.json")
    for used in (plan, autoplan.Plan.load(tmp_path / "plan.json")):
        torch.manual_seed(0)
        model = GCN(8, 12, 2, 4, dropout=0.5)
        losses.append(used.train(model, graph, epochs=5, seed=3, progress=False).losses)

    assert losses[0] == losses[1]


def test_another_graph_or_model_is_refused(tmp_path: Path) -> None:
    graph = awkward_graph()
    plan = autoplan.optimize(GCN(8, 12, 2, 4), graph, "cpu")

    with pytest.raises(PlanError, match=r"another graph.*edges or listed nodes are not"):
        plan.predict(GCN(8, 12, 2, 4), awkward_graph(seed=1))
    with pytest.raises(PlanError, match="it had 260 rows of axis 'edge', here 261"):
        plan.predict(GCN(8, 12, 2, 4), awkward_graph(num_edges=261))
    wider = awkward_graph()
    wider.edge_weight = torch.rand(260)
    with pytest.raises(PlanError, match="edge_weight was absent"):
        plan.predict(GCN(8, 12, 2, 4), wider)
    with pytest.raises(PlanError, match=r"another program.*Plan\.load\(path, loss="):
        plan.predict(GAT(8, 12, 2, 4), graph)
    relabelled = graph.clone()
    relabelled.y = (graph.y + 1) % 4
    plan.predict(GCN(8, 12, 2, 4), relabelled)


def test_metrics_that_cannot_be_recorded_are_refused_on_workers() -> None:
    graph = awkward_graph()
    model = GCN(8, 12, 2, 4)
    plan = autoplan.optimize(model, graph, "2xcpu", strategy="data")

    def by_numpy(out: torch.Tensor, graph: Data) -> float:
        return float((out.argmax(-1).numpy() == graph.y.numpy()).mean())

    with pytest.raises(PlanError, match=r"metrics hits cannot run on 2 workers.*plan\.predict"):
        plan.train(model, graph, epochs=1, metrics={"hits": by_numpy}, progress=False)
    alone = autoplan.optimize(model, graph, "cpu")
    result = alone.train(model, graph, epochs=1, metrics={"hits": by_numpy}, progress=False)
    assert 0 <= result.metrics["hits"] <= 1


def test_what_is_no_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(PlanError, match=r"other\.json: "):
        autoplan.Plan.load(path)
