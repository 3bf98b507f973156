"""The operator dataflow graph: what the search, the prices and the reader see of a traced program. No torch.

An `OpGraph` is a list of `Op`s in program order and the `TensorMeta`s between them. Tensor names are in single
assignment: an in-place op reads ``v5`` and writes ``v5.1``. Sizes are `Polynomial`s in the rows of `Axis`es, so that
one graph serves every graph size and every shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from autoplan.symbolic import INSTANT, ZERO
from autoplan.symbolic import Depth as Depth
from autoplan.symbolic import Polynomial as Polynomial

if TYPE_CHECKING:
    import networkx as nx

State = Literal["R", "O", "H", "S"]
"""How a tensor lies on a group (DESIGN 4): replicated, owned rows, owned + halo rows, partial sum."""

Role = Literal["node", "edge", "graph", "feature", "const"]
Phase = Literal["update", "gather", "message", "aggregate", "other"]
"""What an op does in a layer, after Besta & Hoefler: rows of nodes, rows moved to edges, rows of edges, rows of edges
summed (or compared) into nodes, and the rest."""

NODE, EDGE, GRAPH = "node", "edge", "graph"
"""Names of the base axes of a homogeneous graph; ``graph`` counts the graphs of a batch of several."""

End = Literal["src", "dst", "self", "any"]
"""Which end of a relation a position names: see `IndexInto`."""


def node_axis(kind: str | None = None) -> str:
    """The axis of nodes: ``node``, or of one type of several ``node[paper]``."""
    return NODE if kind is None else f"{NODE}[{kind}]"


def edge_axis(relation: str | None = None, attribute: str | None = None) -> str:
    """The axis of edges: ``edge``, ``edge[author__writes__paper]``; of further relations ``edge:pairs``."""
    name = EDGE if relation is None else f"{EDGE}[{relation}]"
    return name if attribute is None else f"{name}:{attribute}"


def index_axis(attribute: str, kind: str | None = None) -> str:
    """The axis of an attribute that lists nodes: ``index:train_idx``, ``index[paper]:train_idx``."""
    return f"index:{attribute}" if kind is None else f"index[{kind}]:{attribute}"


def is_node_axis(name: str) -> bool:
    """Whether it is the base axis of nodes, or of one type of them."""
    return name == NODE or (name.startswith(f"{NODE}[") and name.endswith("]"))


def is_edge_axis(name: str) -> bool:
    """Whether it is the base axis of edges of some relation."""
    return name == EDGE or name.startswith((f"{EDGE}[", f"{EDGE}:"))


def is_primary_relation(name: str) -> bool:
    """Whether it is the axis of a relation's own edges (``edge_index``), not of further pairs of nodes."""
    return is_edge_axis(name) and (name == EDGE or name.endswith("]"))


def is_index_axis(name: str) -> bool:
    """Whether its rows are the entries of an attribute that lists nodes."""
    return name.startswith(("index:", "index["))


def type_of_axis(name: str) -> str | None:
    """The node type, or the relation, of a base or index axis: ``paper`` for ``node[paper]``; None: there is only one."""
    head = name.rpartition("]:")[0] or name.removesuffix("]")
    _, bracket, kind = head.partition("[")
    return kind if bracket else None


def listed_axis(index: str) -> str:
    """The axis of the nodes that an index axis lists: ``node[paper]`` for ``index[paper]:train_idx``."""
    return node_axis(type_of_axis(index))


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that tensor dimensions count. Two dimensions on one axis are aligned row for row.

    Attributes:
        name: ``node``, ``edge`` (base), of several types ``node[paper]``; ``select(v12)`` (the rows of ``parts[0]`` where mask v12 holds);
            ``concat(select(v12),node)`` (parts in order); ``node*3`` (three for each row of ``parts[0]``); any other name
            for ``other``.
        role: what its rows are.
        kind: ``base`` axes have rows given by the graph and a place in a partition; ``index`` axes are positions of a
            graph attribute that lists nodes (``train_idx``), owned where the listed node is; ``select``, ``concat`` and
            ``blocks`` (rows and heads in one dimension) follow from their parts; ``other`` has a size but no place in a
            partition (R only).
        parts: the axes a derived axis is made of.
        rows: number of rows, as a polynomial in base axes (for ``select``: the graph's own share where its mask can be
            counted, else that seen on the samples).
        width: rows per row of the part (``blocks``).
    """

    name: str
    role: Role
    kind: Literal["base", "index", "select", "concat", "blocks", "other"]
    parts: tuple[str, ...] = ()
    rows: Polynomial = ZERO
    width: int = 1

    def count(self, base_rows: Mapping[str, float]) -> float:
        """Rows where the base axes have these: whole, and none below zero, as a fit to the samples may be."""
        return max(0.0, float(round(self.rows.evaluate(base_rows))))


@dataclass(frozen=True, slots=True)
class IndexInto:
    """The values of an integer tensor are positions along axes.

    Attributes:
        axes: the axis pointed into, for each of ``ends`` (``("node[author]", "node[paper]")``). One that is given for
            several ends holds for all of them: ``("node",)`` becomes ``("node", "node")``.
        ends: which end of a relation: ``src`` (an owned or a halo row), ``dst`` or ``self`` (always an owned row),
            ``any`` (could be any row: R only). One entry, or one per row of dimension 0 (``edge_index``: src, dst).

    In state R values are global positions; in state O they are local ones: owned rows first, then halo rows. Positions
    along the graph axis are global in O, too, where the partition is not closed.
    """

    axes: tuple[str, ...]
    ends: tuple[End, ...]

    def __post_init__(self) -> None:
        if len(self.axes) == 1 < len(self.ends):
            object.__setattr__(self, "axes", self.axes * len(self.ends))
        if len(self.axes) != len(self.ends):
            raise ValueError(f"{len(self.axes)} axes for {len(self.ends)} ends")

    @property
    def axis(self) -> str | None:
        """The axis that all values are positions along; None where the ends lie along different ones."""
        return self.axes[0] if len(set(self.axes)) == 1 else None

    def entries(self, chosen: slice) -> IndexInto:
        """The provenance of some rows of dimension 0, where each has its own."""
        return IndexInto(self.axes[chosen], self.ends[chosen])

    def repeated(self, times: int) -> IndexInto:
        """The provenance of as many copies, one after another along dimension 0."""
        return IndexInto(self.axes * times, self.ends * times)


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """One tensor of the program.

    Attributes:
        name: single-assignment name, ``v12`` or ``v12.1`` (the second version of v12).
        dims: per dimension an axis name, or its fixed size.
        dtype: torch's name without the prefix, ``float32``.
        origin: where it comes from.
        source: graph attribute (input), or the model's own name (parameter, buffer).
        requires_grad: a gradient may be asked of it.
        reaches_loss: a gradient of the loss does reach it (False: nothing of it crosses in backward).
        index: set when its values are positions along an axis.
        states: the states it may lie in; inputs may be loaded in any of them.
    """

    name: str
    dims: tuple[str | int, ...]
    dtype: str
    origin: Literal["input", "parameter", "buffer", "constant", "op"]
    source: str | None = None
    requires_grad: bool = False
    reaches_loss: bool = False
    index: IndexInto | None = None
    states: tuple[State, ...] = ("R",)

    @property
    def elements(self) -> Polynomial:
        """Number of elements, as a polynomial in its axes' rows."""
        total = Polynomial.of(1)
        for dim in self.dims:
            total = total * (Polynomial.of(dim) if isinstance(dim, int) else Polynomial.of(1, dim))
        return total

    @property
    def bytes(self) -> Polynomial:
        """Size in bytes, as a polynomial in its axes' rows."""
        return self.elements * DTYPE_BYTES[self.dtype]


DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "complex128": 16,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
SUMMED_BYTES: Mapping[str, int] = {**DTYPE_BYTES, "bfloat16": 4, "int16": 4}
"""Bytes of an element in an all-reduce: sums of these types travel, and are added, in a type twice as wide."""
DRAWING = frozenset({"keyed_bernoulli"})
"""Kernels whose random draws are keyed by the rows of the op's first input."""
LOCAL_ROWS = "local_rows"
"""The kernel of an op whose numbers are all counts of this rank's rows."""
FINDING = frozenset({"nll_loss_counted", "mean_loss_counted"})
"""Kernels that find the rows of the op's first input in a whole tensor, by their keys."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an op asks of a device, in one direction.

    Attributes:
        kind: how it is priced: ``dense`` (matrix product), ``gather``, ``scatter``, ``spmm``, ``elementwise``,
            ``reduce``, ``random``, ``sort``, ``view`` (no data moves), ``other``.
        flops, bytes_read, bytes_written: totals, as polynomials in axis rows.
        nnz: rows gathered or scattered, nonzeros of a sparse factor; row_width_bytes: bytes of one such row. Zero elsewhere.
        moves: elements that are copied without being computed with.
        cells: rows read times rows written where ``nnz`` counts which of these pairs meet; ``nnz / cells`` is the density.
        depth: longest chain of operations that must follow one another (`symbolic.Depth`), on as many processors as help.
        towards: of a backward, by input the depth of its gradient, where that of another input is longer (a weight's is a tree
            over all rows, but the gradients of earlier layers do not wait for it).
    """

    kind: Literal[
        "dense",
        "gather",
        "scatter",
        "spmm",
        "elementwise",
        "reduce",
        "random",
        "sort",
        "view",
        "other",
    ]
    flops: Polynomial = ZERO
    bytes_read: Polynomial = ZERO
    bytes_written: Polynomial = ZERO
    nnz: Polynomial = ZERO
    row_width_bytes: Polynomial = ZERO
    moves: Polynomial = ZERO
    cells: Polynomial = ZERO
    depth: Depth = INSTANT
    towards: tuple[tuple[str, Depth], ...] = ()

    @property
    def operations(self) -> Polynomial:
        """Work in the sense of the work-depth model: what is computed and what is moved, element by element."""
        return self.flops + self.moves


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that an op's kernel issues itself.

    ``forward`` and ``backward`` count how often it is issued in each direction of one training step.

    Attributes:
        elements: of ``dtype`` in an all-reduce; with an ``axis``, in each row.
        axis: None, or the node axis whose halo rows are sent to their owners and added there, or in backward the other way.
    """

    elements: int
    dtype: str
    forward: int = 1
    backward: int = 0
    axis: str | None = None


@dataclass(frozen=True, slots=True)
class OpStrategy:
    """One way to run an op on a group.

    Attributes:
        name: unique within the op: ``R``, ``O``, ``H``, ``S`` (linear in a partial sum) or a rule's own.
        inputs: the state each of the op's inputs must be in.
        outputs: the state each output is in.
        rows: whose row counts replace sizes in shape arguments: R, O or H. Sizes used as values stay global.
        kernel: ``local`` calls the recorded op on the local tensors; other names are in `autoplan.program.kernels`.
        collectives: what the kernel issues itself.
        closed: True: only on closed partitions, where rows of the graph axis have owners and positions along it are local
            in O; False: only on others, where they are global; None: on any.
        lossy: how its numbers differ from one device's, by design; None: they do not. Offered only with ``exact=False``.
    """

    name: str
    inputs: tuple[State, ...]
    outputs: tuple[State, ...]
    rows: State
    kernel: str = "local"
    collectives: tuple[Collective, ...] = ()
    closed: bool | None = None
    lossy: str | None = None

    def runs_on(self, closed: bool) -> bool:
        """Whether it may be used on a partition that is closed, or on one that is not."""
        return self.closed is None or self.closed is closed


@dataclass(frozen=True, slots=True)
class Op:
    """One node of the traced program.

    Attributes:
        index: position among the steps of the program (not all steps are ops).
        name: ``aten.mm.default``; ``guard`` and ``size`` for Python's reads that constrain states.
        module: path of the module that called it, ``convs.0.lin``; where: ``file.py:12 in forward``.
        inputs: names of the tensors among its arguments, once each, in order; then those whose size it reads (the rows of
            a `select` axis are known only from a tensor that has them).
        outputs: tensor names.
        rule: the rule that covers it, or None: it runs replicated and is listed as unknown.
        forward, backward: work (backward None: no gradient passes through it).
        saved: tensors kept from forward to backward because of this op.
        strategies: at least ``R``.
        differentiates: the inputs that a gradient of the loss reaches through this op. A transition has a backward when
            one of the ops that read its result differentiates it.
        numbers: indices of earlier ops whose result, a Python number (``.item()``), it reads.
        hoistable: it depends on the graph alone: no parameter, no random draw, no buffer that changes and no guard is among
            what it is computed from, so that one result serves every step on that graph.
        phase: what it does in a layer.
        outside: it is of the loss or a metric, not of the model.
    """

    index: int
    name: str
    module: str
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rule: str | None
    forward: Work
    backward: Work | None
    saved: tuple[str, ...]
    strategies: tuple[OpStrategy, ...]
    differentiates: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    hoistable: bool = False
    phase: Phase = "other"
    outside: bool = False


@dataclass(frozen=True, slots=True)
class OpGraph:
    """A traced program as data.

    Attributes:
        ops: in program order; tensors and axes: by name.
        outputs: names of the returned tensors, the loss first when there is one (``has_loss``).
        training: recorded in training mode.
        generality: ``general`` for any graph size, or ``concrete`` with the ``reason``.
        single_only: why no strategy may rewrite this program (an opaque Python function), or None.
        inseparable: groups of op indices that no cut may separate (see `stages.together`, which merges them).
        last: numbers read from tensors (``i4``) that are the highest position along an axis, the axis: one less than its
            rows, which is how ``int(batch.max()) + 1`` counts graphs.
    """

    ops: tuple[Op, ...]
    tensors: Mapping[str, TensorMeta]
    axes: Mapping[str, Axis]
    outputs: tuple[str, ...]
    has_loss: bool
    training: bool
    generality: Literal["general", "concrete"] = "general"
    reason: str | None = None
    single_only: str | None = None
    inseparable: tuple[tuple[int, ...], ...] = ()
    last: Mapping[str, str] = field(default_factory=dict)

    @property
    def unknown_ops(self) -> tuple[Op, ...]:
        """Ops that no rule covers; they run replicated and are priced by their tensors' sizes."""
        return tuple(op for op in self.ops if op.rule is None)

    def to_networkx(self) -> nx.DiGraph:
        """Ops as nodes (attributes ``name``, ``module``, ``kind``), one edge per tensor (``tensor``)."""
        import networkx as nx

        graph = nx.DiGraph()
        producer: dict[str, int] = {}
        for op in self.ops:
            graph.add_node(op.index, name=op.name, module=op.module, kind=op.forward.kind)
            for name in op.inputs:
                if name in producer:
                    graph.add_edge(producer[name], op.index, tensor=name)
            producer.update((name, op.index) for name in op.outputs)
        return graph
