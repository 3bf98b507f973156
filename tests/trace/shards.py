"""Runs a program on one sample, cuts every tensor as a partition would, and runs single ops on the pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autoplan.opgraph import Op, OpGraph, OpStrategy
from autoplan.program.ir import ConstantStep, Expression, OpStep, Program
from autoplan.trace import alias
from autoplan.trace.rules.numbers import Numbers
from autoplan.trace.size_reads import is_tensor

_NAMES = {"torch": torch, "math": math, "inf": math.inf, "nan": math.nan}


class Run:
    """Every version of every tensor of a program on one graph.

    Args:
        program: what to run.
        graph: what describes it.
        state: parameters and buffers by path.
        inputs: the graph's tensors.
        parts: number of ranks; nodes are dealt out unevenly.
        names: of the inputs.
    """

    def __init__(
        self,
        program: Program,
        graph: OpGraph,
        state: Mapping[str, Tensor],
        inputs: tuple[Tensor, ...],
        parts: int,
        names: Sequence[str] = ("x", "edge_index", "y", "mask", "train_idx"),
    ) -> None:
        self.program, self.graph, self.parts = program, graph, parts
        self.values: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {}
        self.inputs = dict(zip(names, inputs, strict=True))
        nodes = inputs[0].size(0)
        self.owner = (torch.arange(nodes) * 7 % 11) % parts
        self.dims_at: dict[int, dict[str, tuple[Any, ...]]] = {}
        self._run(state, inputs)

    def _run(self, state: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> None:
        ops = {op.index: op for op in self.graph.ops}
        env: dict[str, Any] = dict(
            zip(self.program.inputs, (t.clone() for t in inputs), strict=True)
        )
        env.update((slot.name, state[slot.path].detach().clone()) for slot in self.program.state)
        self.values.update((name, value.clone()) for name, value in env.items())
        newest = {name: name for name in env}
        torch.manual_seed(5)
        for index, step in enumerate(self.program.steps):
            if isinstance(step, ConstantStep):
                value = step.value
                if value is None:
                    scope = {**self.sizes(env), **self.numbers}
                    value = _evaluated(step.expression, env, scope)
                env[step.name] = value.clone()
                self.values[step.name] = env[step.name].clone()
                newest[step.name] = step.name
            if not isinstance(step, OpStep):
                continue
            self.dims_at[index] = {
                value: self.graph.tensors[version].dims for value, version in newest.items()
            }
            scope = {**self.sizes(env), **self.numbers}
            arguments = [_evaluated(a, env, scope) for a in step.args]
            args, kwargs = pytree.tree_unflatten(arguments, step.spec)
            with torch.no_grad():
                results = pytree.tree_leaves(step.func(*args, **kwargs))
            versions = iter(ops[index].outputs)
            for name, result in zip(step.outs, results, strict=False):
                if is_tensor(name):
                    env[name] = result
                    version = next(versions)
                    newest[name] = version
                    self.values[version] = result.detach().clone()
                elif name.startswith("i"):
                    self.numbers[name] = result

    @staticmethod
    def sizes(env: Mapping[str, Any]) -> dict[str, int]:
        found = {}
        for name, value in env.items():
            if isinstance(value, Tensor) and value.layout == torch.strided:
                found[f"n{name[1:]}"] = value.numel()
                for dim, size in enumerate(value.shape):
                    found[f"s{name[1:]}_{dim}"] = size
        return found

    def rows(self, axis: str, state: str, rank: int) -> Tensor:
        """Global rows, along an axis, that a rank has in a state, in local order."""
        described = self.graph.axes[axis]
        if axis == "node":
            owned = (self.owner == rank).nonzero().view(-1)
            if state == "O":
                return owned
            source, target = self.inputs["edge_index"]
            needed = source[self.owner[target] == rank].unique()
            halo = needed[self.owner[needed] != rank]
            halo = halo[torch.argsort(self.owner[halo], stable=True)]
            return torch.cat([owned, halo])
        if axis == "edge":
            return (self.owner[self.inputs["edge_index"][1]] == rank).nonzero().view(-1)
        if axis == "index:train_idx":
            return (self.owner[self.inputs["train_idx"]] == rank).nonzero().view(-1)
        if described.kind == "select":
            mask = self.values[axis.removeprefix("select(").removesuffix(")")]
            parent = self.rows(described.parts[0], state, rank)
            return (mask.long().cumsum(0) - 1)[parent[mask[parent]]]
        assert described.kind == "concat", axis
        found, offset = [], 0
        for part in described.parts:
            found.append(self.rows(part, state, rank) + offset)
            offset += self.total(part)
        return torch.cat(found)

    def total(self, axis: str) -> int:
        """All rows of an axis."""
        described = self.graph.axes[axis]
        if described.kind == "concat":
            return sum(self.total(part) for part in described.parts)
        if described.kind == "select":
            return int(self.values[axis.removeprefix("select(").removesuffix(")")].sum())
        if axis == "node":
            return self.inputs["x"].size(0)
        if axis == "edge":
            return self.inputs["edge_index"].size(1)
        return self.inputs[axis.removeprefix("index:")].size(0)

    def local(self, name: str, state: str, rank: int) -> Tensor:
        """A tensor as a rank has it."""
        value, meta = self.values[name], self.graph.tensors[name]
        if state == "R":
            return value.clone()
        cut = [
            d
            for d, dim in enumerate(meta.dims)
            if isinstance(dim, str) and self.graph.axes[dim].kind != "other"
        ]
        assert len(cut) == 1, (name, meta.dims)
        piece = value.index_select(cut[0], self.rows(meta.dims[cut[0]], state, rank))
        if meta.index is None:
            return piece
        known = self.rows(meta.index.axis, "H" if meta.index.axis == "node" else "O", rank)
        where = torch.full((self.total(meta.index.axis),), -1)
        where[known] = torch.arange(known.numel())
        piece = where[piece]
        assert (piece >= 0).all(), f"{name} names rows that rank {rank} does not have"
        for row, end in enumerate(meta.index.ends):
            if end in ("dst", "self") and piece.numel():
                positions = piece if len(meta.index.ends) == 1 else piece[row]
                owned = self.rows(meta.index.axis, "O", rank).numel()
                assert (positions < owned).all(), f"{name}: {end} is not owned"
        return piece

    def outputs(self, op: Op, strategy: OpStrategy, rank: int) -> list[Tensor]:
        """What an op returns on one rank under a strategy with kernel ``local``."""
        step = self.program.steps[op.index]
        assert isinstance(step, OpStep)
        read = dict.fromkeys(
            a.text for a in step.args if isinstance(a, Expression) and is_tensor(a.text)
        )
        env: dict[str, Any] = {
            value: self.local(name, state, rank)
            for value, name, state in zip(read, op.inputs, strategy.inputs, strict=False)
        }
        dims = self.dims_at[op.index]
        numbers = Numbers(lambda value: dims[value], self.graph.axes)
        given = alias.arguments_of(step)
        kinds = {a.name: str(a.type) for a in step.func._schema.arguments}

        def resolved(value: Any, kind: str) -> Any:
            if isinstance(value, list | tuple):
                return [resolved(entry, kind) for entry in value]
            if not isinstance(value, Expression) or is_tensor(value.text):
                return env[value.text] if isinstance(value, Expression) else value
            as_value = "int" not in kind.lower() and "arange" not in op.name
            text, scope = value.text, dict(self.numbers)
            for k, (size, (_, counted)) in enumerate(numbers.sizes(text).items()):
                total = 1
                for dim in counted:
                    total *= (
                        dim if isinstance(dim, int) else self._count(dim, strategy, rank, as_value)
                    )
                text, scope[f"size{k}"] = text.replace(size, f"size{k}"), total
            return eval(text, _NAMES, {**env, **scope})

        arguments = {name: resolved(value, kinds[name]) for name, value in given.items()}
        positional = [arguments[a.name] for a in step.func._schema.arguments if not a.kwarg_only]
        named = {a.name: arguments[a.name] for a in step.func._schema.arguments if a.kwarg_only}
        with torch.no_grad():
            returned = pytree.tree_leaves(step.func(*positional, **named))
        return [value for value in returned if isinstance(value, Tensor)]

    def _count(self, axis: str, strategy: OpStrategy, rank: int, as_value: bool) -> int:
        if as_value or strategy.rows == "R" or self.graph.axes[axis].kind == "other":
            return self.total(axis)
        return self.rows(axis, strategy.rows, rank).numel()

    def check(self, op: Op, strategy: OpStrategy) -> None:
        """Asserts that the pieces are those of the whole."""
        results = [self.outputs(op, strategy, rank) for rank in range(self.parts)]
        for k, (name, state) in enumerate(zip(op.outputs, strategy.outputs, strict=True)):
            where = f"{op.index} {op.name} {strategy} output {name}"
            if state == "S":
                total = torch.stack([result[k] for result in results]).sum(0)
                assert torch.allclose(total, self.values[name], 1e-4, 1e-5), where
                continue
            for rank, result in enumerate(results):
                wanted = self.local(name, state, rank)
                assert result[k].shape == wanted.shape, where
                if "empty" in op.name:
                    continue
                assert torch.allclose(result[k], wanted, 1e-4, 1e-5, equal_nan=True), where


def _evaluated(argument: Any, env: Mapping[str, Any], scope: Mapping[str, Any]) -> Any:
    if not isinstance(argument, Expression):
        return argument
    if is_tensor(argument.text):
        return env[argument.text]
    return eval(argument.text, _NAMES, {**env, **scope})
