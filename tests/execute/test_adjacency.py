"""Models that take a sparse adjacency: one device's numbers on shards, and costs that follow its entries."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.utils import coalesce, to_torch_coo_tensor, to_torch_csr_tensor

from autoplan.errors import TraceError
from autoplan.execute.difference import first_difference
from autoplan.execute.lockstep import run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.opgraph import Op, OpGraph
from autoplan.partition.halo import build_shards
from autoplan.trace.build import build_opgraph
from autoplan.trace.schema import GraphSchema
from autoplan.trace.step import trace_step
from autoplan.trace.step_module import user_name

# of PyG, which converts COO itself, and torch's, once in a process, of every user of sparse tensors
pytestmark = pytest.mark.filterwarnings(
    "ignore:Converting sparse tensor to CSR",
    "ignore:Sparse CS. tensor support",
    "ignore:Sparse invariant checks",
)

NODES, WIDTH = 120, 6


class Net(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.second(self.first(x, adj_t).relu(), adj_t)


class Plain(nn.Module):
    """Products written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return torch.sparse.mm(adj_t, self.linear(x)) + adj_t @ (adj_t @ self.linear(x))


MODELS = {
    "SAGE": lambda: Net(SAGEConv(WIDTH, 8), SAGEConv(8, 3)),
    "GCN": lambda: Net(GCNConv(WIDTH, 8), GCNConv(8, 3)),
    "GIN": lambda: Net(GINConv(nn.Linear(WIDTH, 8)), GINConv(nn.Linear(8, 3))),
    "SAGE max": lambda: Net(SAGEConv(WIDTH, 8, aggr="max"), SAGEConv(8, 3, aggr="max")),
    "plain": Plain,
}
LAYOUTS = {"csr": to_torch_csr_tensor, "coo": to_torch_coo_tensor}


def graph(layout: str = "csr", *, weighted: bool = True) -> Data:
    """Directed, with isolated nodes and most edges at few nodes."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, NODES - 8, (2, 600), generator=generator)
    ends[1, :200] %= 7
    ends = coalesce(ends)
    weight = torch.rand(ends.size(1), generator=generator, dtype=torch.float64)
    value = weight if weighted else torch.ones_like(weight)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64),
        y=torch.arange(NODES) % 3,
        train_mask=torch.arange(NODES) % 4 > 0,
        adj_t=LAYOUTS[layout](ends.flip(0), value, size=(NODES, NODES)),
    )


@functools.cache
def traced(name: str, layout: str):
    torch.manual_seed(1)
    module = MODELS[name]().double().train()
    data = graph(layout)
    step = trace_step(module, data)
    assert step.program is not None, step.reason
    opgraph = build_opgraph(
        step.program, step.schema.attributes, step.sample_rows, has_loss=True, training=True
    )
    attributes = dict(zip(step.schema.names, step.schema.tensors(data), strict=True))
    return module, step.program, opgraph, step.state_tensors(module), attributes, data


def shards(parts: int, attributes):
    owner = (torch.arange(NODES) * 7 % 11 % parts).numpy()
    return build_shards(owner, {"edge": attributes["adj_t"].numpy()}, {}, parts=parts)


def products(opgraph: OpGraph) -> list[Op]:
    return [op for op in opgraph.ops if op.rule == "spmm"]


CASES = [(name, "csr") for name in MODELS] + [("SAGE", "coo"), ("GCN", "coo")]


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_one_device_and_shards_are_eager(name: str, layout: str) -> None:
    module, program, opgraph, state, attributes, data = traced(name, layout)
    eager = copy.deepcopy(module)
    out = eager(data.x, data.adj_t)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()

    found = run_lockstep(
        rank_program(program, opgraph, {}), shards(1, attributes), attributes, state, state
    )

    torch.testing.assert_close(found.loss, loss.detach())
    for path, gradient in found.gradients.items():
        expected = eager.get_parameter(user_name(path)).grad
        torch.testing.assert_close(gradient, expected)
    chosen = {
        op.index: "O" if any(strategy.name == "O" for strategy in op.strategies) else "R"
        for op in opgraph.ops
    }
    assert products(opgraph)
    assert all(chosen[op.index] == "O" for op in products(opgraph))
    for parts in (2, 3):
        assert (
            first_difference(
                program, opgraph, chosen, shards(parts, attributes), attributes, state, state
            )
            is None
        )


def test_no_step_makes_a_sparse_tensor_and_costs_follow_the_entries() -> None:
    _, _, opgraph, *_ = traced("GCN", "csr")
    assert not any("sparse" in op.name for op in opgraph.ops)
    first, second = products(opgraph)
    for op, width in ((first, 8), (second, 3)):
        # the entries, and a loop at every node
        for edges in (500.0, 5000.0):
            rows = {"node": float(NODES), "edge": edges}
            sizes = {name: axis.count(rows) for name, axis in opgraph.axes.items()}
            assert op.forward.nnz.evaluate(sizes) == edges + NODES
            assert op.forward.flops.evaluate(sizes) == 2 * (edges + NODES) * width
    assert first.forward.kind == "spmm"


def test_attention_over_an_adjacency_is_recorded() -> None:
    torch.manual_seed(0)
    module = Net(GATConv(WIDTH, 4, add_self_loops=False), GATConv(4, 3, add_self_loops=False))
    step = trace_step(module.double(), graph())
    assert step.program is not None, step.reason


def test_what_an_adjacency_is_made_of() -> None:
    data = graph()
    schema = GraphSchema.of(data)
    assert schema.names == ("adj_t", "adj_t.values", "train_mask", "x", "y")
    assert schema["adj_t"].index is not None
    assert schema["adj_t"].index.ends == ("src", "dst")
    assert schema["adj_t.values"].dims == ("edge",)
    pairs, values, *_ = schema.tensors(data)
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    dense[pairs[1], pairs[0]] = values
    assert torch.equal(dense, data.adj_t.to_dense())
    data.edge_index = torch.zeros(2, 3, dtype=torch.int64)
    assert GraphSchema.of(data)["adj_t"].dims == (2, "edge:adj_t")


@pytest.mark.parametrize(
    ("adjacency", "message"),
    [
        (
            lambda: torch.eye(NODES).to_sparse_csc(),
            r"graph\.adj_t .*sparse_csc.*adj_t\.to_sparse_csr\(\)",
        ),
        (lambda: torch.eye(9).to_sparse_csr(), r"graph\.adj_t is \[9, 9\].*\[120, 120\]"),
        (lambda: torch.ones(4, 4, 4).to_sparse(), "3 sparse dimensions"),
    ],
)
def test_other_sparse_tensors_are_refused_by_name(
    adjacency: Callable[[], Tensor], message: str
) -> None:
    data = graph()
    data.adj_t = adjacency()
    with pytest.raises(TraceError, match=message):
        GraphSchema.of(data)
