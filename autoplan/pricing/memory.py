"""Where each device's tensor memory goes, over one step: by liveness, in forward and in backward.

Tensors that share storage (views, in-place versions) are one *unit* per state. A unit is *present* when some op produces it
or a transition makes it, and *saved* when some op keeps it for backward. At forward point i a unit counts from its first
producer to its last consumer, and, saved, until backward; at backward point i (the adjoint of op i) it counts until the
first op that saved it is done. Gradients of units are alive between the same ops as the units, in backward. What
`usage` returns is linear in presence and in saving, so that the search can bound it by rows of an integer programme.

After backward comes the optimizer's update, one point: inputs are still there, activations are not, and the optimizer makes
temporaries (`optimizermemory`), and nothing is exchanged. With one large weight that is where the peak is.

Simplifications, on the safe side: every copy of a tensor is alive as long as any; all its possible savers count as savers.
On the other side: an expanded view costs nothing, and temporaries inside one kernel are not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.graphstats import GraphStats
from autoplan.opgraph import DTYPE_BYTES, SUMMED_BYTES, Op, OpGraph, State
from autoplan.optimizermemory import optimizer_states, update_bytes
from autoplan.plan import MemorySheet
from autoplan.pricing.group import Group
from autoplan.states import sharded_axis

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A parameter or buffer of the model, under the model's own name; tied ones once.

    Attributes:
        name: ``conv1.lin.weight``; bytes: its size; gets_gradient: the loss reaches it (False for buffers).
        dtype: of its elements.
    """

    name: str
    bytes: int
    gets_gradient: bool
    dtype: str = "float32"

    @property
    def summed_bytes(self) -> int:
        """Of its gradient in an all-reduce of stages; DistributedDataParallel's hand over ``bytes``."""
        return self.bytes // DTYPE_BYTES[self.dtype] * SUMMED_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class StaticMemory:
    """Bytes that every rank holds throughout; the gradients are DistributedDataParallel's buckets.

    ``update``: in addition, temporaries of the optimizer's step.
    """

    weights: float
    gradients: float
    optimizer: float
    update: float = 0.0

    @property
    def total(self) -> float:
        """All that is held throughout."""
        return self.weights + self.gradients + self.optimizer


def static_memory(
    parameters: Iterable[ModelTensor],
    optimizer: str,
    *,
    training: bool,
    kinds: Collection[str] = ("cpu",),
) -> StaticMemory:
    """What does not depend on the plan's states. An unknown optimizer counts as Adam.

    Args:
        parameters: of the model.
        optimizer: by name, with torch's default arguments: a plan knows no others.
        training: whether there is a backward and an update.
        kinds: of the devices, which update in different ways; of several the one that needs most counts.
    """
    parameters = tuple(parameters)
    weights = float(sum(p.bytes for p in parameters))
    if not training:
        return StaticMemory(weights, 0.0, 0.0)
    sizes = [float(p.bytes) for p in parameters if p.gets_gradient]
    return StaticMemory(
        weights,
        sum(sizes),
        optimizer_states(optimizer) * sum(sizes),
        max(update_bytes(optimizer, sizes, kind=kind) for kind in kinds),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MemoryModel:
    """Units and when they count. U units, n points (ops in order), P ranks.

    Attributes:
        units: (storage's tensor name, state). unit_of: (tensor, state) -> unit.
        bytes: [U, P]. first, last: [U] points of the first producer and last consumer.
        first_saver: [U] the lowest point that may save it; n where none does.
        gradient: [U] a gradient of it is formed; edge: [U] counts edges; resident: [U] loaded for the whole step;
        output: [U] returned by the program, so alive to the end.
        points: n. static: per rank the same. training: whether there is a backward.
    """

    units: tuple[tuple[str, State], ...]
    unit_of: Mapping[tuple[str, State], int]
    bytes: FloatArray
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    first_saver: NDArray[np.int64]
    gradient: BoolArray
    edge: BoolArray
    resident: BoolArray
    output: BoolArray
    points: int
    static: StaticMemory
    training: bool

    @property
    def directions(self) -> tuple[str, ...]:
        """``forward``, and in training ``backward`` and ``update``."""
        return ("forward", "backward", "update") if self.training else ("forward",)

    def fixed(self, direction: str) -> float:
        """Bytes of a direction whatever is present and saved."""
        return self.static.total + (self.static.update if direction == "update" else 0.0)

    def counts(self, direction: str) -> tuple[BoolArray, BoolArray]:
        """[n, U] masks: what counts when present, and what (in addition) when saved; [1, U] of the update."""
        if direction == "update":
            return self.resident[None, :], np.zeros((1, len(self.units)), dtype=bool)
        point = np.arange(self.points)[:, None]
        alive = (self.first <= point) & (point <= self.last)
        if direction == "forward":
            return alive | self.resident, ~alive & (point > self.last) & ~self.resident
        live = (alive & self.gradient) | self.resident | self.output
        return live, (self.first_saver <= point) & ~self.resident & ~self.output

    def usage(
        self, present: BoolArray, saved: BoolArray, buffers: Sequence[float]
    ) -> dict[str, FloatArray]:
        """[n, P] bytes at every point of every direction, all included; [1, P] of the update.

        Args:
            present: [U] some op, transition or load makes it.
            saved: [U] some op keeps it for backward.
            buffers: per rank, of the largest exchange.
        """
        result = {}
        for direction in self.directions:
            base = self.fixed(direction) + np.zeros(self.bytes.shape[1])
            if direction != "update":
                base += np.asarray(buffers, dtype=np.float64)
            live, kept = self.counts(direction)
            result[direction] = (live & present) @ self.bytes + (kept & saved) @ self.bytes + base
        return result

    def sheets(
        self,
        present: BoolArray,
        saved: BoolArray,
        buffers: Sequence[float],
        capacities: Sequence[float | None],
        head_room: float,
    ) -> tuple[MemorySheet, ...]:
        """One sheet per rank, taken where that rank's memory is at its highest."""
        usage = self.usage(present, saved, buffers)
        sheets = []
        for rank, capacity in enumerate(capacities):
            direction = max(usage, key=lambda name: float(usage[name][:, rank].max(initial=0.0)))
            column = usage[direction][:, rank]
            point = int(column.argmax()) if len(column) else 0
            sheets.append(
                self._sheet(direction, point, rank, present, saved, buffers, capacity, head_room)
            )
        return tuple(sheets)

    def _sheet(
        self,
        direction: str,
        point: int,
        rank: int,
        present: BoolArray,
        saved: BoolArray,
        buffers: Sequence[float],
        capacity: float | None,
        head_room: float,
    ) -> MemorySheet:
        sizes = self.bytes[:, rank]
        if self.points or direction == "update":
            live, kept = (mask[point] for mask in self.counts(direction))
        else:
            live = kept = np.zeros(len(self.units), dtype=bool)
        inputs = float(sizes[live & present & self.resident].sum())
        kept_now = kept & saved
        if direction == "forward":
            kept_now |= live & present & saved & ~self.resident
        activations = float(sizes[kept_now & ~self.edge].sum())
        messages = float(sizes[kept_now & self.edge].sum())
        everything = float(sizes[live & present].sum() + sizes[kept & saved].sum())
        fixed = self.fixed(direction)
        moving = 0.0 if direction == "update" else buffers[rank]
        peak_here = everything + fixed + moving
        room = head_room * (capacity if capacity is not None else peak_here)
        return MemorySheet(
            weights=self.static.weights,
            gradients=self.static.gradients,
            optimizer=self.static.optimizer,
            activations=activations,
            messages=messages,
            inputs=inputs,
            transient=max(0.0, everything - inputs - activations - messages)
            + (fixed - self.static.total),
            buffers=moving,
            head_room=room,
            capacity=capacity,
        )


def storage_roots(graph: OpGraph) -> dict[str, str]:
    """Tensor -> the tensor whose storage it shares: through ops of kind ``view``, and in-place versions (``v5.1`` -> ``v5``)."""
    roots = {name: name for name in graph.tensors}
    for op in graph.ops:
        for output in op.outputs:
            parent = _shares_with(op, output)
            if parent is not None and parent in roots:
                roots[output] = roots[parent]
    return roots


def _shares_with(op: Op, output: str) -> str | None:
    base = output.split(".")[0]
    for name in op.inputs:
        if "." in output and name.split(".")[0] == base:
            return name
    return op.inputs[0] if op.forward.kind == "view" and op.inputs else None


def memory_model(
    graph: OpGraph, stats: GraphStats, group: Group, static: StaticMemory, *, training: bool
) -> MemoryModel:
    """The units of a graph on a group. Parameters and buffers are in ``static``."""
    roots = storage_roots(graph)
    points = len(graph.ops)
    rows = {state: group.rows(graph, stats, state) for state in ("R", "O", "H")}
    own = {name for name, t in graph.tensors.items() if t.origin in ("parameter", "buffer")}
    spans = _spans(graph, roots)
    savers = _first_savers(graph, roots)
    members: dict[str, list[str]] = {}
    for name, root in roots.items():
        if root not in own:
            members.setdefault(root, []).append(name)

    units: list[tuple[str, State]] = []
    unit_of: dict[tuple[str, State], int] = {}
    for root, names in members.items():
        states = dict.fromkeys(state for name in names for state in graph.tensors[name].states)
        for state in states:
            unit_of.update({(name, state): len(units) for name in names})
            units.append((root, state))

    sizes = np.zeros((len(units), group.size))
    alike: dict[tuple[object, ...], list[int]] = {}
    for unit, (root, state) in enumerate(units):
        tensor = graph.tensors[root]
        alike.setdefault((tensor.dims, tensor.dtype, state), []).append(unit)
    for same in alike.values():
        root, state = units[same[0]]
        size = graph.tensors[root].bytes
        sizes[same] = [size.evaluate(local) for local in rows["R" if state == "S" else state]]
    formed = {roots[n] for n, t in graph.tensors.items() if t.reaches_loss and t.requires_grad}
    counts_edges = {n for n, t in graph.tensors.items() if _counts_edges(graph, n)}
    returned = {roots[name] for name in graph.outputs if name in roots}
    return MemoryModel(
        units=tuple(units),
        unit_of=unit_of,
        bytes=sizes,
        first=np.array([spans[root][0] for root, _ in units], dtype=np.int64),
        last=np.array([spans[root][1] for root, _ in units], dtype=np.int64),
        first_saver=np.array([savers.get(root, points) for root, _ in units], dtype=np.int64),
        gradient=np.array([root in formed for root, _ in units], dtype=bool),
        edge=np.array([root in counts_edges for root, _ in units], dtype=bool),
        resident=np.array([graph.tensors[root].origin != "op" for root, _ in units], dtype=bool),
        output=np.array([root in returned for root, _ in units], dtype=bool),
        points=points,
        static=static,
        training=training,
    )


def _spans(graph: OpGraph, roots: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = dict.fromkeys(graph.tensors, (0, -1))
    first: dict[str, int] = {}
    for point, op in enumerate(graph.ops):
        for name in (*op.inputs, *op.outputs):
            if name in roots:
                root = roots[name]
                first.setdefault(root, point)
                spans[root] = (first[root], point)
    for name in graph.outputs:
        if name in roots:
            root = roots[name]
            spans[root] = (first.get(root, 0), len(graph.ops) - 1)
    return spans


def _first_savers(graph: OpGraph, roots: Mapping[str, str]) -> dict[str, int]:
    first: dict[str, int] = {}
    for point, op in enumerate(graph.ops):
        for name in op.saved:
            if name in roots:
                first.setdefault(roots[name], point)
    return first


def _counts_edges(graph: OpGraph, name: str) -> bool:
    tensor = graph.tensors[name]
    axis = sharded_axis(tensor, graph.axes)
    if axis is not None:
        return graph.axes[axis].role == "edge"
    return any(isinstance(dim, str) and graph.axes[dim].role == "edge" for dim in tensor.dims)
