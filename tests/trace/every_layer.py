"""Traces every layer and model of PyG as its user left it and prints, as JSON, the seconds of each and what changed (torch).

Each was trained for a step with gradients and filled caches, and has a layer in evaluation mode. Seconds are process time of
one thread: recording, generalising, checking and describing a training step.
"""

from __future__ import annotations

import json
import time
import warnings

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, PNA, GraphSAGE
from torch_geometric.utils import degree

from autoplan.trace.build import build_opgraph
from autoplan.trace.loss import LossFunction
from autoplan.trace.step import trace_step
from tests.layers.case import Case, Step, batch_of_graphs, directed_graph, mean_of_squares
from tests.layers.registry import CASES
from tests.trace.graphs import SIZES, masked_loss, node_graph
from tests.trace.marks import Marks


def used(case: Case) -> tuple[nn.Module, Data]:
    """A case's model after a step, and its graph."""
    torch.manual_seed(1)
    graph = batch_of_graphs(case.needs) if case.batch else directed_graph(case.needs)
    model = Step(case).train()
    for module in model.modules():
        if isinstance(getattr(module, "cached", None), bool):
            module.cached = True
    loss = mean_of_squares(model(graph), graph)
    if loss.requires_grad:
        loss.backward()
    next(iter(model.layer.children()), model.first).eval()
    return model, graph


def three_layers() -> dict[str, nn.Module]:
    """Models of three layers, for `node_graph`."""
    features, width, _, classes = SIZES
    spread = torch.bincount(degree(node_graph().edge_index[1]).long())
    made = {make.__name__: make(features, width, 3, classes) for make in (GCN, GAT, GIN, GraphSAGE)}
    scaled = {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"]}
    return made | {"PNA": PNA(features, width, 3, classes, deg=spread, **scaled)}


def seconds_of(model: nn.Module, graph: Data, loss: LossFunction) -> float:
    """To trace and describe a training step."""
    started = time.process_time()
    step = trace_step(model, graph, loss)
    program = step.program or step.recording
    assert program is not None, step.reason
    build_opgraph(
        program,
        step.schema.attributes,
        step.sample_rows if step.program else step.sample_rows[:1],
        has_loss=True,
        training=True,
        generality="general" if step.program else "concrete",
        reason=step.reason,
    )
    return time.process_time() - started


def main() -> None:
    """Prints one JSON object."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    layers = {
        name: seconds_of(model, node_graph(), masked_loss) for name, model in three_layers().items()
    }
    seconds, changes = {}, {}
    for name, case in CASES.items():
        model, graph = used(case)
        before = Marks(model=model, graph=graph)
        seconds[name] = seconds_of(model, graph, mean_of_squares)
        changes[name] = before.changes(model=model, graph=graph)
    print(json.dumps({"three_layers": layers, "seconds": seconds, "changes": changes}))


if __name__ == "__main__":
    main()
