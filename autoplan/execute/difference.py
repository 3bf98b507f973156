"""Where a plan's step first differs from one device's: every value of the program compared, then every gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from autoplan.execute.lockstep import StepResult, run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.opgraph import GRAPH, Op, OpGraph, TensorMeta
from autoplan.partition.halo import NodeRows, Shard
from autoplan.program.ir import Program
from autoplan.states import sharded_axis

TOLERANCE = 1e-10
"""For float64 (DESIGN 8)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first value, in program order, that is not one device's.

    Attributes:
        what: the op, or the parameter or buffer.
        where: the op's module and source line.
        strategy: what the op runs as.
        error: largest absolute difference; infinite for differing shapes, integers or NaN.
        bound: what was allowed.
    """

    what: str
    where: str
    strategy: str
    error: float
    bound: float

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        how = f" run as {self.strategy}" if self.strategy else ""
        return f"{self.what}{place}{how} differs from one device by {self.error:.3g}, more than {self.bound:.3g}"


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """A result as one rank saw it."""

    rank: int
    state: str
    tensor: torch.Tensor
    keys: torch.Tensor | None


def first_difference(
    program: Program,
    opgraph: OpGraph,
    choices: Mapping[int, str],
    shards: Sequence[Shard],
    attributes: Mapping[str, torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    buffers: Mapping[str, torch.Tensor],
    *,
    seed: int = 0,
    step: int = 0,
    tolerance: float = TOLERANCE,
) -> Difference | None:
    """Runs one step with the choices on ranks and in R on one, and compares.

    Args:
        program: the traced program.
        opgraph: the same program as ops.
        choices: by op index, the name of its strategy.
        shards: one per rank.
        attributes: the whole graph's tensors by name.
        parameters: by path.
        buffers: by path.
        seed: of random draws.
        step: number of the step.
        tolerance: of values, relative to the largest of the tensor (at least 1); of gradients, to that of the parameter or
            a thousandth of the largest of all (a bias before a batch norm has a gradient of rounding noise).

    Raises:
        AutoplanError: the step fails.
    """
    alone: dict[str, list[_Value]] = {}
    spread: dict[str, list[_Value]] = {}
    results: list[StepResult] = []
    whole = (_whole(shards[0], attributes),)
    for chosen, group, values in (({}, whole, alone), (choices, shards, spread)):
        written = rank_program(program, opgraph, chosen, capture=True)

        def capture(
            rank: int,
            _op: int,
            name: str,
            state: str,
            tensor: torch.Tensor,
            keys: torch.Tensor | None,
            into: dict[str, list[_Value]] = values,
        ) -> None:
            value = _Value(rank, state, tensor.detach().clone(), keys)
            into.setdefault(name, []).append(value)

        results.append(
            run_lockstep(
                written,
                group,
                attributes,
                parameters,
                buffers,
                seed=seed,
                step=step,
                capture=capture,
            )
        )
    compared = _read_tensors(opgraph)
    for op in opgraph.ops:
        for name in op.outputs:
            if name in compared and name in alone:
                expected = alone[name][0].tensor
                error = _value_error(opgraph, name, spread[name], expected, shards)
                bound = tolerance * max(1.0, _largest(expected))
                if not error <= bound:
                    return _of_op(op, choices, error, bound)
    return _state_difference(results[1], results[0], tolerance)


def _read_tensors(opgraph: OpGraph) -> set[str]:
    """What an op reads or the program returns; kernels leave out what only a recorded op's own backward would read."""
    return {name for op in opgraph.ops for name in op.inputs} | set(opgraph.outputs)


def _whole(shard: Shard, attributes: Mapping[str, torch.Tensor]) -> Shard:
    """The shard of a rank that owns everything. Only R is run on it, which reads no edges."""
    counts = {axis: int(count.sum()) for axis, count in shard.owned_counts.items()}
    rows = {axis: np.arange(count) for axis, count in counts.items()}
    return Shard(
        rank=0,
        parts=1,
        nodes={axis: NodeRows.alone(rows[axis], 1) for axis in shard.nodes},
        edge_rows={axis: rows[axis] for axis in shard.edge_rows},
        edge_index={},
        index_rows={axis: rows[axis] for axis in shard.index_rows},
        index_values={},
        owned_counts={axis: np.array([count]) for axis, count in counts.items()},
        graph_rows=rows.get(GRAPH),
        graphs=shard.graphs,
    )


def _value_error(
    opgraph: OpGraph,
    name: str,
    values: Sequence[_Value],
    expected: torch.Tensor,
    shards: Sequence[Shard],
) -> float:
    """The largest difference of any rank's value from what it should be."""
    meta = opgraph.tensors[name]
    axis = sharded_axis(meta, opgraph.axes)
    state = values[0].state
    if state == "S":
        ordered = sorted(values, key=lambda value: value.rank)
        return difference(torch.stack([value.tensor for value in ordered]).sum(0), expected)
    if state == "R" or axis is None:
        return max(difference(value.tensor, expected) for value in values)
    known = {*shards[0].owned_counts, GRAPH}
    if meta.index is not None and not known.issuperset(meta.index.axes):
        return 0.0  # positions along a derived axis: no global numbers to compare with
    dim = meta.dims.index(axis)
    parts = [(_global(value, meta, shards), value.keys) for value in values]
    if opgraph.axes[axis].kind in ("base", "index"):
        return max(
            difference(tensor, expected.index_select(dim, keys))
            for tensor, keys in parts
            if keys is not None
        )
    # rows of a derived axis are in the order of their keys; those of halos are on several ranks
    held = [(tensor, keys) for tensor, keys in parts if keys is not None]
    order = torch.unique(torch.cat([keys for _, keys in held]))
    if len(order) != expected.size(dim):
        return math.inf
    return max(
        difference(tensor, expected.index_select(dim, torch.searchsorted(order, keys)))
        for tensor, keys in held
    )


def _global(value: _Value, meta: TensorMeta, shards: Sequence[Shard]) -> torch.Tensor:
    """Local positions as global ones; anything else as it is."""
    if meta.index is None:
        return value.tensor
    shard = shards[value.rank]
    if meta.index.axis is not None:
        return _renumbered(value.tensor, meta.index.axis, shard)
    ends = zip(value.tensor, meta.index.axes, strict=True)
    return torch.stack([_renumbered(end, axis, shard) for end, axis in ends])


def _renumbered(numbers: torch.Tensor, axis: str, shard: Shard) -> torch.Tensor:
    if axis == GRAPH and shard.graph_rows is None:
        return numbers  # that axis is not cut: global numbers
    return torch.tensor(shard.local_rows(axis))[numbers.to(torch.int64)].to(numbers.dtype)


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest absolute difference; infinite for other shapes, dtypes, differing integers, and NaN against a number."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return math.inf
    if found.layout != torch.strided:
        found, expected = found.to_dense(), expected.to_dense()
    if not found.numel():
        return 0.0
    if not (found.is_floating_point() or found.is_complex()):
        return 0.0 if torch.equal(found, expected) else math.inf
    alike = (found == expected) | (found.isnan() & expected.isnan())
    error = torch.where(alike, 0.0, (found - expected).abs().double()).max().item()
    return math.inf if math.isnan(error) else float(error)


def _largest(tensor: torch.Tensor) -> float:
    if not tensor.numel() or not tensor.is_floating_point():
        return 0.0
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return float(tensor.abs().nan_to_num(0.0, 0.0, 0.0).max().item())


def _of_op(op: Op, choices: Mapping[int, str], error: float, bound: float) -> Difference:
    where = ", ".join(part for part in (op.module, op.where) if part)
    return Difference(f"op {op.index} {op.name}", where, choices.get(op.index, "R"), error, bound)


def _state_difference(
    found: StepResult, expected: StepResult, tolerance: float
) -> Difference | None:
    """The first parameter whose gradient, or buffer whose value, differs."""
    largest = max((_largest(g) for g in expected.gradients.values() if g is not None), default=0.0)
    for name, gradient in expected.gradients.items():
        mine = found.gradients.get(name)
        if gradient is None and mine is None:
            continue
        if gradient is None or mine is None:
            return Difference(f"the gradient of {name}", "", "", math.inf, 0.0)
        bound = tolerance * max(_largest(gradient), 1e-3 * largest)
        error = difference(mine, gradient)
        if not error <= bound:
            return Difference(f"the gradient of {name}", "", "", error, bound)
    for name, value in expected.buffers.items():
        bound = tolerance * max(1.0, _largest(value))
        error = difference(found.buffers[name], value)
        if not error <= bound:
            return Difference(f"buffer {name}", "", "", error, bound)
    return None
