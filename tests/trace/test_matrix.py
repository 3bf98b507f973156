"""The shared case's 25 common models: general and exact on a size they have not seen, or concrete with the right reason.

`cases/trace_matrix.py` builds the models, and then tries other tracers on them, which is left out here.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SchNet

from autoplan.trace.copies import copy_model
from autoplan.trace.core import generalise_module
from autoplan.trace.validation import validate

CASE = (
    Path(os.environ.get("AUTOPLAN_CASES", Path(__file__).parents[2].parent / "shared" / "cases"))
    / "trace_matrix.py"
)

# torch's sparse CSR tensors are in beta; the case's own
pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support", "ignore:Sparse invariant checks"
)

GENERAL = [
    "GCN+F.dropout", "SAGE mean/max", "GATv2+edge_attr", "GIN+BN+JKcat+pool", "JK lstm", "TopKPooling", "SAGPooling",
    "dropout_edge", "if on E (shape)", "forward(Data)", "GPSConv", "DenseDiffPool", "sparse CSR adj", "RGCN", "GCN cached",
    "Set2Set", "SortAggr", "HeteroConv dicts", "to_hetero", "HGTConv", "SchNet", "DimeNet-like models.GCN", "GraphUNet",
]  # fmt: skip
CONCRETE = {
    "if on value": "runs part at .* in forward",
    "neg sampling inside": "draws from Python's or NumPy's random generator",
}
NODES, EDGES, GRAPHS = (83, 97, 114, 62, 131), (211, 308, 402, 149, 517), (5, 7, 12, 4, 9)
OTHER_NODES, OTHER_EDGES = (47, 60, 67, 31, 71), (223, 311, 410, 152, 533)
MATRICES, ROWS = (2, 3, 5, 7, 4), (6, 11, 13, 17, 8)
"""Sizes of five samples; the fourth is held back by the trace, the fifth is seen by nothing but the test."""


@functools.cache
def models() -> dict[str, tuple[nn.Module, int]]:
    """The case's models by name, and how many arguments they are called with."""
    if not CASE.is_file():
        pytest.skip(
            "the shared case trace_matrix.py is not beside this checkout (set AUTOPLAN_CASES)"
        )
    built: dict[str, Any] = {"__name__": "trace_matrix"}
    disabled = logging.root.manager.disable
    source = CASE.read_text().split("from torch.utils._python_dispatch")[0]
    exec(compile(source, str(CASE), "exec"), built)
    logging.disable(disabled)  # the case silences all loggers
    found = {name: (model, len(args)) for name, model, args in built["cases"] if model is not None}
    # its own holds the edges of one graph
    found["SchNet"] = (SchNet(16, 16, 2, interaction_graph=ring), 3)
    return found


def ring(pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Three neighbours of each atom and their distances."""
    atoms = pos.size(0)
    source = torch.arange(atoms).repeat_interleave(3)
    target = (source + torch.arange(1, 4).repeat(atoms)) % atoms
    return torch.stack([source, target]), (pos[source] - pos[target]).norm(dim=-1)


def sample(name: str, arguments: int, k: int) -> tuple[Any, ...]:
    """What a model is called with, in the k-th of five sizes. Edges stay within graphs."""
    generator = torch.Generator().manual_seed(100 + k)

    def whole(high: int | Tensor, *sizes: int) -> Tensor:
        return torch.randint(0, 1 << 30, sizes, generator=generator) % high

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    nodes, edges = NODES[k], EDGES[k]
    batch = torch.arange(nodes) * GRAPHS[k] // nodes
    count = torch.bincount(batch)
    source = whole(nodes, edges)
    first = (count.cumsum(0) - count)[batch[source]]
    edge_index = torch.stack([source, first + whole(count[batch[source]], edges)])
    x = normal(nodes, 8)
    if name in ("HeteroConv dicts", "to_hetero", "HGTConv"):
        others, back = OTHER_NODES[k], OTHER_EDGES[k]
        written = torch.stack([whole(others, edges), whole(nodes, edges)])
        returned = torch.stack([whole(nodes, back), whole(others, back)])
        features = {"p": normal(nodes, 5), "a": normal(others, 7)}
        return features, {("a", "w", "p"): written, ("p", "r", "a"): returned}
    if name == "sparse CSR adj":
        adjacency = torch.sparse_coo_tensor(edge_index, torch.ones(edges), (nodes, nodes))
        return x, adjacency.coalesce().to_sparse_csr()
    if name == "DenseDiffPool":
        rows = ROWS[k]
        return normal(MATRICES[k], rows, 8), normal(MATRICES[k], rows, rows).abs()
    special: dict[str, tuple[Any, ...]] = {
        "RGCN": (x, edge_index, whole(3, edges)),
        "SchNet": (whole(8, nodes) + 1, normal(nodes, 3), batch),
        "forward(Data)": (Data(x=x, edge_index=edge_index, batch=batch),),
        "GATv2+edge_attr": (x, edge_index, normal(edges, 4)),
    }
    return special.get(name, (x, edge_index, batch)[:arguments])


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", [*GENERAL, *CONCRETE])
def test_general_and_exact_or_concrete_with_the_reason(name: str, training: bool) -> None:
    model, arguments = models()[name]
    copied = copy_model(model.train(training), training=training)
    traced = generalise_module(copied, [sample(name, arguments, k) for k in range(4)])
    if name in CONCRETE:
        assert traced.program is None
        assert traced.reason is not None
        assert re.search(CONCRETE[name], traced.reason)
        return
    assert traced.program is not None, traced.reason
    found = validate(traced.program, copied, sample(name, arguments, 4), seed=5)
    assert found == {"outputs": 0.0, "gradients": 0.0, "state": 0.0}


def test_no_model_is_left_out() -> None:
    assert {*GENERAL, *CONCRETE} == models().keys()
    assert len(GENERAL) >= 23
