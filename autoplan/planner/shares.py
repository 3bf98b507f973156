"""How many rows the masks of a graph select, counted on the graph itself instead of taken from the samples (torch)."""

from __future__ import annotations

from dataclasses import replace

import torch

from autoplan.opgraph import Axis, OpGraph
from autoplan.planner.dataflow import Made, ancestors, made_of_the_graph, run_steps
from autoplan.planner.workload import Workload
from autoplan.program.ir import Program
from autoplan.symbolic import ZERO, Polynomial
from autoplan.trace.scope import AnyGraph


def counted(workload: Workload, graph: AnyGraph) -> Workload:
    """The workload, where axes of rows that a mask selects have this graph's share of the mask.

    Masks that follow from the graph alone are computed on the whole of it (``train_mask``; the edges that are no self-loops);
    others, and axes of which no mask is known, keep the share seen on the samples.

    Args:
        workload: traced, and right on this graph.
        graph: whose rows are priced.
    """
    program, opgraph = workload.traced.program, workload.opgraph
    if program is None or not workload.general:
        return workload
    tensors = workload.traced.schema.tensors(graph)
    made = made_of_the_graph(program)
    masks = {name: mask for name in opgraph.axes if (mask := _mask(name)) in made}
    if not masks:
        return workload
    axes = dict(opgraph.axes)
    for (name, _), chosen in zip(
        masks.items(), _values(program, made, list(masks.values()), tensors), strict=True
    ):
        axis = axes[name]
        if chosen.dtype == torch.bool and chosen.dim() == 1 and chosen.numel():
            share = int(chosen.sum()) / chosen.numel()
            axes[name] = replace(axis, rows=_rows(axes, axis.parts[0]) * share)
    return replace(workload, opgraph=_derived(opgraph, axes))


def _mask(axis: str) -> str:
    """The value that selects an axis's rows: ``v12`` of ``select(v12)``, no value of others."""
    return axis[len("select(") : -1] if axis.startswith("select(") else ""


def _values(
    program: Program, made: Made, wanted: list[str], tensors: tuple[torch.Tensor, ...]
) -> list[torch.Tensor]:
    needed = {
        number for name in wanted for v in ancestors(program, made, name) for number in made[v]
    }
    return run_steps(program, [program.steps[n] for n in sorted(needed)], wanted, tensors)


def _rows(axes: dict[str, Axis], name: str) -> Polynomial:
    axis = axes[name]
    return Polynomial.of(1, name) if axis.kind in ("base", "index") else axis.rows


def _derived(opgraph: OpGraph, axes: dict[str, Axis]) -> OpGraph:
    """The graph with these axes, and with axes that are made of them following."""
    for name, axis in axes.items():
        rows = [_rows(axes, part) for part in axis.parts]
        if axis.kind == "concat":
            axes[name] = replace(axis, rows=sum(rows, ZERO))
        elif axis.kind == "blocks":
            axes[name] = replace(axis, rows=rows[0] * axis.width)
    return replace(opgraph, axes=axes)
