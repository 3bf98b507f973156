"""The sizes of a `GraphSpec` in the place of a measured graph (torch)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from autoplan.errors import GuardError
from autoplan.graphspec import GraphSpec
from autoplan.graphstats import GraphStats
from autoplan.opgraph import DTYPE_BYTES, OpGraph, Polynomial, is_node_axis
from autoplan.partition.model import formula, modelled_partition
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import Workload, concrete
from autoplan.program.binding import check_input_guards
from autoplan.trace.schema import GraphSchema


@dataclass(frozen=True, slots=True, eq=False)
class SpecifiedGraph(MeasuredGraph):
    """Sizes of a graph that is not here; its partitions are modelled, so that nothing can be cut or run."""

    @property
    def fingerprint(self) -> str:
        """That of the schema: any graph of it may be bound with `Plan.rebind`."""
        return self.schema_fingerprint


def specified(spec: GraphSpec, workload: Workload, parts: Iterable[int]) -> SpecifiedGraph:
    """The sizes of a spec's graph, and what is modelled of its partitions.

    Args:
        spec: of the graph.
        workload: traced with the generated graph.
        parts: numbers of parts.
    """
    traced = workload.traced.schema
    rows = {axis: _rows(spec, axis, count) for axis, count in traced.rows.items()}
    schema = replace(traced, rows=rows)
    partitions = {count: modelled_partition(spec, rows, count) for count in sorted({1, *parts})}
    mean = spec.mean_degree
    stats = GraphStats(
        rows=rows,
        max_in_degree=spec.max_in_degree or max(1, round(mean)),
        mean_in_degree=mean,
        isolated_nodes=0,
        attribute_bytes=_attribute_bytes(schema),
        partitions=partitions,
    )
    return SpecifiedGraph(schema, {}, stats, {}, {})


def _rows(spec: GraphSpec, axis: str, generated: int) -> int:
    rows = spec.rows(axis)
    return generated if rows is None else rows


def _attribute_bytes(schema: GraphSchema) -> dict[str, int]:
    found = {}
    for attribute in schema.attributes:
        size = DTYPE_BYTES[attribute.dtype]
        for dim in attribute.dims:
            size *= dim if isinstance(dim, int) else schema.rows[dim]
        found[attribute.name] = size
    return found


def held_to_sizes(workload: Workload, spec: GraphSpec) -> Workload:
    """The workload at the sizes of a spec: masks select the spec's share of nodes, and decisions on sizes hold there.

    A decision that comes out differently makes it concrete.
    """
    program = workload.traced.program
    workload = replace(workload, opgraph=_with_shares(workload.opgraph, spec))
    if program is None or not workload.general:
        return workload
    schema = workload.traced.schema
    rows = {axis: _rows(spec, axis, count) for axis, count in schema.rows.items()}
    sizes = tuple(
        torch.empty(
            [dim if isinstance(dim, int) else rows[dim] for dim in attribute.dims],
            dtype=getattr(torch, attribute.dtype),
            device="meta",
        )
        for attribute in schema.attributes
    )
    try:
        check_input_guards(program, sizes, workload.traced.module)
    except GuardError as error:
        return concrete(workload, f"not valid for the sizes of {spec.name}: {error}")
    return workload


def _with_shares(opgraph: OpGraph, spec: GraphSpec) -> OpGraph:
    """The graph, where masks of the data select the labelled share of the nodes (the first mask) or the rest."""
    if spec.labelled is None:
        return opgraph
    shares = {
        name: spec.labelled if name == spec.masks[0] else 1.0 - spec.labelled for name in spec.masks
    }
    axes = dict(opgraph.axes)
    for name, axis in opgraph.axes.items():
        if axis.kind != "select" or not is_node_axis(axis.parts[0]):
            continue
        mask = opgraph.tensors.get(name[len("select(") : -1])
        source = None if mask is None or mask.source is None else mask.source.rpartition(".")[2]
        if source in shares:
            axes[name] = replace(axis, rows=Polynomial.of(shares[source], axis.parts[0]))
    return replace(opgraph, axes=axes)


def notes_of(spec: GraphSpec) -> tuple[str, ...]:
    """What a plan says of a graph that is not here."""
    return (
        f"planning only: sizes of {spec.name} ({spec.source}), no graph; plan.rebind(graph) makes a plan that runs",
        formula(spec),
    )
