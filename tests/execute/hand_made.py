"""Programs of small models and OpGraphs made by a few rules of their own, to test the rewriting apart from the rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from autoplan.opgraph import (
    Axis,
    Collective,
    IndexInto,
    Op,
    OpGraph,
    OpStrategy,
    Polynomial,
    State,
    TensorMeta,
    Work,
)
from autoplan.program.ir import ConstantStep, Expression, OpStep, Program
from autoplan.program.torch_internals import operator_name, tree_unflatten
from autoplan.trace.core import generalise_module

SIZES = ((84, 211), (97, 310), (113, 404), (61, 190))
AXES = {
    "node": Axis("node", "node", "base", (), Polynomial.of(1, "node")),
    "edge": Axis("edge", "edge", "base", (), Polynomial.of(1, "edge")),
}
ATTRIBUTES = ("x", "edge_index", "y", "mask")


class MeanConvolution(nn.Module):
    """Mean over incoming edges plus a self connection; reads sizes as shapes and one as a value."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width, out)
        self.own = nn.Linear(width, out, bias=False)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        source, target = edge_index[0], edge_index[1]
        messages = self.lin(x).index_select(0, source)
        total = x.new_zeros((x.size(0), messages.size(1))).index_add(0, target, messages)
        count = x.new_zeros((x.size(0), 1)).index_add(0, target, x.new_ones((source.size(0), 1)))
        return total / count.clamp(min=1) + self.own(x) * (10 / x.size(0))


class Step(nn.Module):
    """Two convolutions, in-place dropout and relu, a masked cross-entropy and a mean as a regulariser."""

    def __init__(self, dropout: float = 0.5, select: bool = False) -> None:
        super().__init__()
        self.first, self.second = MeanConvolution(6, 8), MeanConvolution(8, 3)
        self.dropout = nn.Dropout(dropout)
        self.select = select
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x, edge_index, y, mask):
        h = self.first(x, edge_index).relu_()
        self.steps += 1
        h = self.dropout(h)
        out = self.second(h, edge_index)
        if self.select:
            loss = nn.functional.cross_entropy(out[mask], y[mask])
        else:
            loss = nn.functional.cross_entropy(out, y.masked_fill(~mask, -100))
        return loss + 0.1 * h.square().mean(), out


def sample(nodes: int, edges: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    # half of the edges end at a few nodes; the last nodes have none
    edge_index[1, : edges // 2] %= 3
    edge_index %= nodes - 4
    return (
        torch.randn(nodes, 6, dtype=torch.float64, generator=generator),
        edge_index,
        torch.randint(0, 3, (nodes,), generator=generator),
        torch.rand(nodes, generator=generator) < 0.3,
    )


def traced(module: nn.Module) -> Program:
    result = generalise_module(module, [sample(*sizes, seed=k) for k, sizes in enumerate(SIZES)])
    assert result.program is not None, result.reason
    return result.program


class GraphMaker:
    """Ops of a program; dimensions by the sizes of the samples."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.axes = dict(AXES)
        self.tensors: dict[str, TensorMeta] = {}
        self.version: dict[str, str] = {}
        self.positions: dict[str, IndexInto] = {}
        self.selected: dict[tuple[int, ...], str] = {}

    def dims(self, value: str) -> tuple[str | int, ...]:
        shapes = [s.shapes[value] for s in self.program.samples]
        dims: list[str | int] = []
        for column in zip(*shapes, strict=True):
            nodes, edges = zip(*SIZES[:3], strict=True)
            names = {nodes: "node", edges: "edge"} | self.selected
            dims.append(column[0] if len(set(column)) == 1 else names[column])
        return tuple(dims)

    def add(self, name: str, origin: str, **more) -> TensorMeta:
        value = name.partition(".")[0]
        dtype = str(self.program.samples[0].dtypes[value]).removeprefix("torch.")
        self.tensors[name] = TensorMeta(name, self.dims(value), dtype, origin, **more)
        return self.tensors[name]

    def make(self) -> OpGraph:
        for name, attribute in zip(self.program.inputs, ATTRIBUTES, strict=True):
            index = IndexInto(("node",), ("src", "dst")) if attribute == "edge_index" else None
            self.add(name, "input", source=attribute, index=index)
        for slot in self.program.state:
            learned = slot.kind == "parameter"
            self.add(
                slot.name,
                "parameter" if learned else "buffer",
                source=slot.path,
                requires_grad=learned,
                reaches_loss=learned,
            )
        for step in self.program.steps:
            if isinstance(step, ConstantStep):
                self.add(step.name, "constant")
        ops = [
            self.op(index, step)
            for index, step in enumerate(self.program.steps)
            if isinstance(step, OpStep)
        ]
        names = [o.text for o in self.program.outputs if isinstance(o, Expression)]
        versions = [self.version.get(name, name) for name in names]
        outputs = tuple(name for name in versions if name in self.tensors)
        return OpGraph(tuple(ops), self.tensors, self.axes, outputs, True, True)

    def op(self, index: int, step: OpStep) -> Op:
        texts = [a.text for a in step.args if isinstance(a, Expression) and a.text.startswith("v")]
        values = [t for t in dict.fromkeys(texts) if t in self.program.samples[0].shapes]
        inputs = [self.version.get(v, v) for v in values]
        name = operator_name(step.func) or "python"
        if name == "aten.index.Tensor":
            mask = inputs[1]
            self.axes[f"select({mask})"] = Axis(f"select({mask})", "node", "select", ("node",))
            sizes = [s.shapes[step.outs[0]][0] for s in self.program.samples]
            self.selected[tuple(sizes)] = f"select({mask})"
        outputs = []
        for out in step.outs:
            if not out.startswith("v"):
                continue
            fresh = out
            if out in self.tensors:
                before = self.version.get(out, out).partition(".")[2] or "0"
                fresh = f"{out}.{int(before) + 1}"
            self.version[out] = fresh
            self.add(
                fresh, "op", requires_grad=True, reaches_loss=True, states=("R", "O", "H", "S")
            )
            outputs.append(fresh)
        if name.startswith("aten.select") and self.tensors[inputs[0]].index is not None:
            args, _ = tree_unflatten(list(step.args), step.spec)
            end = ("src", "dst")[args[2]]
            meta = self.tensors[outputs[0]]
            index_into = IndexInto(("node",), (end,))
            self.tensors[outputs[0]] = TensorMeta(
                meta.name, meta.dims, meta.dtype, "op", index=index_into
            )
        whole = OpStrategy("R", ("R",) * len(inputs), ("R",) * len(outputs), "R", self.kernel(name))
        return Op(
            index,
            name,
            step.module,
            step.where,
            tuple(inputs),
            tuple(outputs),
            "hand",
            Work("other"),
            None,
            (),
            (whole, *self.strategies(name, step, inputs, outputs)),
            tuple(i for i in inputs if self.tensors[i].requires_grad),
        )

    def kernel(self, name: str) -> str:
        return "keyed_bernoulli" if "bernoulli" in name else "local"

    def strategies(
        self, name: str, step: OpStep, inputs: Sequence[str], outputs: Sequence[str]
    ) -> list[OpStrategy]:
        metas = [self.tensors[i] for i in inputs]
        cut = [any(isinstance(d, str) for d in m.dims) for m in metas]
        owned: list[State] = ["O" if c else "R" for c in cut]
        result = self.tensors[outputs[0]] if outputs else None
        if result is None:
            return []
        sharded = any(isinstance(d, str) for d in result.dims)
        if name.startswith(("aten.index_select", "aten.embedding")):
            return [OpStrategy("O", ("H", "O"), ("O",), "O")]
        if name.startswith("aten.nll_loss_forward"):
            sums = Collective(2, result.dtype, 1, 1)
            return [OpStrategy("O", tuple(owned), ("R", "R"), "O", "nll_loss", (sums,))]
        if name.startswith("aten.mean"):
            return [OpStrategy("O", ("O",), ("S",), "O", "mean_over_rows")]
        if not sharded:
            if any(cut) or name.startswith("aten.add_"):
                return []
            linear = name == "aten.mul.Tensor" and len(inputs) == 1
            return [OpStrategy("S", ("S",), ("S",), "R")] if linear else []
        found = [OpStrategy("O", tuple(owned), ("O",) * len(outputs), "O", self.kernel(name))]
        halo = "index_add" not in name and "select(" not in str(result.dims)
        if "node" in result.dims and halo:
            wide = tuple("H" if s == "O" else "R" for s in owned)
            found.append(OpStrategy("H", wide, ("H",) * len(outputs), "H", self.kernel(name)))
        return found


def opgraph_of(program: Program) -> OpGraph:
    return GraphMaker(program).make()


def choices(opgraph: OpGraph, *preferred: str) -> dict[int, str]:
    """Per op the first of the preferred strategies that it has, else R."""
    chosen = {}
    for op in opgraph.ops:
        names = [s.name for s in op.strategies]
        chosen[op.index] = next(p for p in itertools.chain(preferred, "R") if p in names)
    return chosen
