"""What a traced program costs on a graph: by op, by layer and in all; work, depth and parallelism. No torch.

Work counts operations and copied elements; depth is the longest chain of them (Besta & Hoefler, "Parallel and Distributed
Graph Neural Networks", section 2). Of several ops together, depth is that of the critical path through the tensors that
join them, so that work / depth is the average parallelism that the program admits on any number of processors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from autoplan.criticalpath import CriticalPath
from autoplan.graphstats import GraphStats, axis_rows
from autoplan.graphstructure import GraphStructure
from autoplan.opgraph import (
    EDGE,
    NODE,
    Axis,
    Op,
    OpGraph,
    Phase,
    TensorMeta,
    Work,
    type_of_axis,
)
from autoplan.storage import Hoisted, hoisted_values, saved_bytes
from autoplan.symbolic import counted_in, most
from autoplan.unread import unread_ops

PHASES: tuple[Phase, ...] = get_args(Phase)
LOSS, MODEL = "(loss)", "(model)"
"""Names of the layers of ops outside the model, and of ops in its own forward."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one or more ops ask of a device in one direction, on one graph.

    Attributes:
        flops: arithmetic operations; work: those, and elements copied.
        bytes_read, bytes_written: of arguments and results.
        nnz: rows gathered or scattered, nonzeros of sparse factors; cells: row pairs that these are out of.
        depth: operations on the longest chain.
    """

    flops: float = 0.0
    work: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    nnz: float = 0.0
    cells: float = 0.0
    depth: float = 0.0

    @property
    def bytes(self) -> float:
        """Read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def density(self) -> float | None:
        """Share of row pairs (read, written) that meet; None: every pair does, or no row is read by position."""
        return self.nnz / self.cells if self.cells else None

    @property
    def parallelism(self) -> float | None:
        """Average number of operations that can run at once; None without work."""
        return self.work / max(1.0, self.depth) if self.work else None


@dataclass(frozen=True, slots=True)
class OpFigures:
    """One op.

    Attributes:
        index, name, module, where, phase, hoistable: of the `Op`.
        layer: see `layers_of`.
        kind: of its work; backward_kind: of its backward's, None without one.
        roles: of its first result's dimensions (of its first input's, where it returns no tensor).
        known: a rule covers it; without one its figures are guessed from the sizes of its tensors.
        unread: nothing reads what it makes (`autoplan.unread`).
        forward, backward: backward None: no gradient passes.
        saved: tensors kept for backward because of it.
    """

    index: int
    name: str
    module: str
    layer: str
    where: str
    kind: str
    backward_kind: str | None
    phase: Phase
    roles: tuple[str, ...]
    known: bool
    hoistable: bool
    unread: bool
    forward: Figures
    backward: Figures | None
    saved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Several ops together: a layer, a phase, everything.

    Attributes:
        name: of the layer or phase; ``total``, ``model``.
        ops: their indices.
        forward, backward: sums; depth along the critical path through these ops.
        saved_bytes: bytes kept for backward because of them, each storage once, parameters left out (they are kept anyway).
        unknown: how many of them no rule covers; hoistable: how many depend on the graph alone; unread: of how many nothing
            reads the results.
        once: the hoistable ones, part of ``forward``, which leave the training loop where they are hoisted; loop: the rest.
    """

    name: str
    ops: tuple[int, ...]
    forward: Figures
    backward: Figures
    saved_bytes: float
    unknown: int
    hoistable: int
    unread: int
    once: Figures
    loop: Figures

    @property
    def both(self) -> Figures:
        """Forward and backward, one after the other."""
        return _sum([self.forward, self.backward], self.forward.depth + self.backward.depth)


@dataclass(frozen=True, slots=True)
class Analysis:
    """A program's figures on one graph.

    Attributes:
        ops: in program order, guards left out.
        layers: in order of first use; phases: Besta & Hoefler's classes, those with ops.
        total: everything; model: all but loss and metrics.
        hoisted: `hoisted_values`.
        rows: of every axis.
    """

    ops: tuple[OpFigures, ...]
    layers: tuple[Group, ...]
    phases: tuple[Group, ...]
    total: Group
    model: Group
    hoisted: tuple[Hoisted, ...]
    rows: Mapping[str, float] = field(default_factory=dict)


def analyse(
    graph: OpGraph, stats: GraphStats, largest: Mapping[str, float] | None = None
) -> Analysis:
    """The figures of a program on a graph.

    Args:
        graph: the program.
        stats: sizes of the graph.
        largest: by the symbol of `symbolic.most`, how many rows go to one position at most; what it lacks is taken from
            ``stats``, and where that does not tell, bounded by the rows of the axis.
    """
    rows = axis_rows(graph.axes, stats, "R", None)
    degree = {most(EDGE, "dst", NODE): float(stats.max_in_degree)}
    return analyse_at(graph, rows, {**degree, **(largest or {})})


def largest_of(
    structure: GraphStructure, relations: Mapping[str, tuple[str, str]]
) -> dict[str, float]:
    """The largest degrees of a graph's own edges, for `analyse`.

    Args:
        structure: the graph, described.
        relations: by edge axis, the axes of its sources and destinations.
    """
    found: dict[str, float] = {}
    for axis, about in structure.relations.items():
        sources, destinations = relations[axis]
        found[most(axis, "src", sources)] = float(about.outgoing.max)
        found[most(axis, "dst", destinations)] = float(about.incoming.max)
    return found


def analyse_at(
    graph: OpGraph, rows: Mapping[str, float], largest: Mapping[str, float] | None = None
) -> Analysis:
    """The figures of a program where its axes have these rows (every axis of ``graph.axes``); see `analyse`."""
    values = _with_largest(graph, rows, largest or {})
    layers = layers_of(graph)
    unread = frozenset(unread_ops(graph))
    ops = tuple(
        _figures(op, layers[op.index], graph, values, unread=op.index in unread)
        for op in graph.ops
        if op.name != "guard"
    )
    groups = _Groups(graph, ops, values)
    named = dict.fromkeys(op.layer for op in ops)
    found = [phase for phase in PHASES if any(op.phase == phase for op in ops)]
    return Analysis(
        ops,
        tuple(groups.of(name, [op for op in ops if op.layer == name]) for name in named),
        tuple(groups.of(phase, [op for op in ops if op.phase == phase]) for phase in found),
        groups.of("total", ops),
        groups.of("model", [op for op in ops if op.layer != LOSS]),
        hoisted_values(graph, values),
        dict(rows),
    )


def layers_of(graph: OpGraph) -> dict[int, str]:
    """By op index, the layer it belongs to.

    A layer is the outermost module, below the model itself, that moves rows along edges in its own forward (a
    convolution and what it contains: ``convs.0`` has ``convs.0.lin``); outside of these each module is one.
    """
    # recorded paths begin with the step's own name for the model; those of a plan do not
    recorded = all(op.module.partition(".")[0] == "model" for op in graph.ops if not op.outside)
    paths = {op.index: _path(op, recorded) for op in graph.ops}
    moving = {
        paths[op.index]
        for op in graph.ops
        if op.phase in ("gather", "aggregate") and paths[op.index] not in (LOSS, MODEL)
    }

    def layer(path: str) -> str:
        parts = path.split(".")
        prefixes = (".".join(parts[:length]) for length in range(1, len(parts)))
        return next((prefix for prefix in prefixes if prefix in moving), path)

    return {index: layer(path) for index, path in paths.items()}


class _Groups:
    """Sums and critical paths of ops of one program."""

    def __init__(
        self, graph: OpGraph, ops: Sequence[OpFigures], values: Mapping[str, float]
    ) -> None:
        self.graph = graph
        self.values = values
        self.by_index = {op.index: op for op in graph.ops}
        self.path = CriticalPath(
            graph,
            {op.index: op.forward.depth for op in ops},
            {op.index: op.backward.depth for op in ops if op.backward is not None},
            {
                op.index: {name: depth.evaluate(values) for name, depth in op.backward.towards}
                for op in graph.ops
                if op.backward is not None and op.backward.towards
            },
        )

    def of(self, name: str, ops: Sequence[OpFigures]) -> Group:
        """Some of the program's ops together."""
        chosen = frozenset(op.index for op in ops)
        once = [op for op in ops if op.hoistable]
        loop = [op for op in ops if not op.hoistable]
        backwards = [op.backward for op in ops if op.backward is not None]
        return Group(
            name,
            tuple(op.index for op in ops),
            self._forward(ops),
            _sum(backwards, self.path.backward(chosen)),
            saved_bytes(self.graph, self.values, [self.by_index[op.index] for op in ops]),
            sum(not op.known for op in ops),
            len(once),
            sum(op.unread for op in ops),
            self._forward(once),
            self._forward(loop),
        )

    def _forward(self, ops: Sequence[OpFigures]) -> Figures:
        depth = self.path.forward(frozenset(op.index for op in ops))
        return _sum([op.forward for op in ops], depth)


def _figures(
    op: Op, layer: str, graph: OpGraph, values: Mapping[str, float], *, unread: bool
) -> OpFigures:
    shown = (op.outputs or op.inputs)[:1]
    return OpFigures(
        op.index,
        op.name,
        op.module,
        layer,
        op.where,
        op.forward.kind,
        op.backward.kind if op.backward is not None else None,
        op.phase,
        roles_of(graph.tensors[shown[0]], graph.axes) if shown else (),
        op.rule is not None,
        op.hoistable,
        unread,
        figures_of(op.forward, values),
        figures_of(op.backward, values) if op.backward is not None else None,
        op.saved,
    )


def figures_of(work: Work, values: Mapping[str, float]) -> Figures:
    """Work where axes have these rows and `symbolic.most` these values."""
    return Figures(
        work.flops.evaluate(values),
        work.operations.evaluate(values),
        work.bytes_read.evaluate(values),
        work.bytes_written.evaluate(values),
        work.nnz.evaluate(values),
        work.cells.evaluate(values),
        work.depth.evaluate(values),
    )


def roles_of(tensor: TensorMeta, axes: Mapping[str, Axis]) -> tuple[str, ...]:
    """What each dimension counts: ``node``, ``edge``, ``graph`` (``node[paper]`` of several types), ``feature``, ``const``."""
    values = not tensor.dtype.startswith(("int", "uint", "bool"))
    found: list[str] = []
    for dim in tensor.dims:
        if isinstance(dim, int):
            found.append("feature" if values and dim > 1 else "const")
            continue
        role, kind = axes[dim].role, type_of_axis(dim)
        found.append(role if kind is None else f"{role}[{kind}]")
    return tuple(found)


def _sum(figures: Sequence[Figures], depth: float) -> Figures:
    return Figures(
        sum(each.flops for each in figures),
        sum(each.work for each in figures),
        sum(each.bytes_read for each in figures),
        sum(each.bytes_written for each in figures),
        sum(each.nnz for each in figures),
        sum(each.cells for each in figures),
        depth,
    )


def _with_largest(
    graph: OpGraph, rows: Mapping[str, float], largest: Mapping[str, float]
) -> dict[str, float]:
    """Rows of axes, and what the program's depths need beside them."""
    values = {**rows, **largest}
    for op in graph.ops:
        for work in (op.forward, op.backward):
            for symbol in work.depth.symbols if work is not None else ():
                axis = counted_in(symbol)
                if axis is not None and symbol not in values:
                    values[symbol] = rows[axis]
    return values


def _path(op: Op, recorded: bool) -> str:
    """The path of the module that calls an op, below the model."""
    if op.outside:
        return LOSS
    return (op.module.partition(".")[2] if recorded else op.module) or MODEL
