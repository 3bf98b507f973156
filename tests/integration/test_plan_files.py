"""Plans as files: the same bytes from any process, and the same training from a loaded plan."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import to_hetero
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

import autoplan
from autoplan.errors import PlanError
from autoplan.plan import PlanData
from autoplan.search.result import FAMILIES

from .graphs import awkward_graph
from .many import Classifier, small_graphs

ROOT = Path(__file__).parents[2]
COMMON = """
import sys, torch
sys.path.insert(0, {root!r})
import autoplan
from tests.integration.many import small_graphs, Classifier
"""
PLANNING = (
    COMMON
    + """
from torch_geometric.nn.models import GAT
from autoplan.errors import InfeasibleError
from autoplan.search.result import FAMILIES
from tests.integration.graphs import awkward_graph
torch.manual_seed(int(sys.argv[1]))
for kind, data, model, devices in (
    ("graph", awkward_graph(), GAT(8, 12, 2, 4, heads=3), "2xcpu"),
    ("graphs", small_graphs(), Classifier(5, 3), "4xcpu"),
):
    for strategy in sys.argv[3:]:
        try:
            plan = autoplan.optimize(model, data, devices, strategy=strategy)
        except InfeasibleError as error:
            text = f"no plan: {{error}}"
        else:
            assert strategy in ("auto", plan.strategy)
            text = plan.data.to_json()
        with open(f"{{sys.argv[2]}}/{{kind}}-{{strategy}}", "w", encoding="utf-8") as file:
            file.write(text)
"""
)
TRAINING = (
    COMMON
    + """
import json
torch.manual_seed(0)
plan = autoplan.Plan.load(sys.argv[1])
result = plan.train(Classifier(5, 3), small_graphs(), epochs=2, seed=3, progress=False)
print(json.dumps(result.losses))
"""
)


def in_new_process(script: str, *arguments: str, hash_seed: str = "0") -> str:
    """What a script prints."""
    command = [sys.executable, "-W", "ignore", "-c", script.format(root=str(ROOT)), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


EVERY = ("auto", *FAMILIES)


@pytest.mark.long
@pytest.mark.parametrize(
    "families", [("auto", "data"), pytest.param(EVERY, marks=pytest.mark.accept)]
)
def test_same_bytes_from_other_processes_and_other_weights(
    tmp_path: Path, families: tuple[str, ...]
) -> None:
    texts = []
    for seed in ("0", "1"):
        path = tmp_path / f"plans-{seed}"
        path.mkdir()
        in_new_process(PLANNING, seed, str(path), *families, hash_seed=seed)
        texts.append({file.name: file.read_bytes() for file in path.iterdir()})

    kinds = [f"{kind}-{family}" for kind in ("graph", "graphs") for family in families]
    assert sorted(texts[0]) == sorted(kinds)
    assert texts[0] == texts[1]
    for family in {"single", "data", "model"} & set(families):
        assert PlanData.from_json(texts[0][f"graph-{family}"].decode()).strategy == family
    for family in set(FAMILIES) & set(families):
        assert PlanData.from_json(texts[0][f"graphs-{family}"].decode()).strategy == family


@pytest.mark.long
@pytest.mark.parametrize("strategy", [pytest.param("data", marks=pytest.mark.accept), "pipeline"])
def test_a_plan_loaded_in_a_new_process_trains_alike(tmp_path: Path, strategy: str) -> None:
    plan = autoplan.optimize(
        Classifier(5, 3), small_graphs(), "2xcpu", strategy=strategy, batch_size=4
    )
    plan.save(tmp_path / "plan.json")
    torch.manual_seed(0)
    here = plan.train(Classifier(5, 3), small_graphs(), epochs=2, seed=3, progress=False)

    there = in_new_process(TRAINING, str(tmp_path / "plan.json"), hash_seed="7")

    assert json.loads(there) == list(here.losses)


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


@pytest.mark.parametrize("strategy", ["single", "data"])
def test_a_plan_of_several_node_types_is_read_and_bound(tmp_path: Path, strategy: str) -> None:
    torch.manual_seed(0)
    graph = HeteroData()
    graph["paper"].x, graph["author"].x = torch.randn(40, 6), torch.randn(30, 5)
    graph["paper"].y = torch.randint(0, 3, (40,))
    for source, kind, target in (("paper", "by", "author"), ("author", "wrote", "paper")):
        ends = [torch.randint(graph[name].x.shape[0], (110,)) for name in (source, target)]
        graph[source, kind, target].edge_index = torch.stack(ends)
    model = to_hetero(GraphSAGE((-1, -1), 3, 1), graph.metadata())
    with torch.no_grad():
        model(graph.x_dict, graph.edge_index_dict)
    plan = autoplan.optimize(
        model,
        graph,
        "2xcpu",
        strategy=strategy,
        loss=lambda out, data: cross_entropy(out["paper"], data["paper"].y),
    )
    text = plan.data.to_json()
    assert PlanData.from_json(text).to_json() == text
    plan.save(tmp_path / "plan.json")
    loaded = autoplan.Plan.load(tmp_path / "plan.json", loss=plan.request.loss)
    step = loaded.step(model, graph, seed=1)
    with torch.no_grad():
        out = model(graph.x_dict, graph.edge_index_dict)["paper"]
        assert float(step.loss) == pytest.approx(
            float(cross_entropy(out, graph["paper"].y)), rel=1e-5
        )
    cut = json.loads(text)["partition"]
    assert (cut is not None) == (strategy == "data")
    if cut is None:
        return
    # what the plan says of each type is held to itself
    assert {kind["axis"] for kind in cut["types"]} == {"node[author]", "node[paper]"}
    swapped = cut["types"][::-1]
    renamed = [{**kind, "axis": "node[venue]"} for kind in cut["types"]]
    without = {key: value for key, value in cut.items() if key != "types"}
    for edited in ({**cut, "types": swapped}, {**cut, "types": renamed}, without):
        with pytest.raises(PlanError, match=r"partition\.types"):
            PlanData.from_json(json.dumps({**json.loads(text), "partition": edited}))


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
    frozen = GCN(8, 12, 2, 4)
    frozen.convs[1].bias.requires_grad_(False)
    with pytest.raises(
        PlanError,
        match=r"convs\.1\.bias was float32 \[4\], trained, here .* frozen \(requires_grad=False\); give it as it was, or plan",
    ):
        plan.train(frozen, graph, epochs=1, progress=False)
    with pytest.raises(PlanError, match=r"convs\.0\.bias was float32 \[12\], .* float32 \[14\]"):
        plan.predict(GCN(8, 14, 2, 4), graph)
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
