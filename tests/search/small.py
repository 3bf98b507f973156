"""A hand-made two-layer GCN as an OpGraph, its sizes, and clusters: what the search's tests plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from autoplan.device import Cluster, Device, DeviceProfile, Link
from autoplan.graphstats import GraphStats, PartitionStats, ShardSizes
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
from autoplan.pricing.memory import ModelTensor

AXES = {
    "node": Axis("node", "node", "base", rows=Polynomial.of(1, "node")),
    "edge": Axis("edge", "edge", "base", rows=Polynomial.of(1, "edge")),
}
NODE_STATES: tuple[State, ...] = ("R", "O", "H")


def profile(**changes: Any) -> DeviceProfile:
    figures: dict[str, Any] = {
        "name": "test_cpu",
        "kind": "cpu",
        "title": "a processor",
        "flop_per_s": {"float32": 2e11},
        "bytes_per_s": 1e10,
        "launch_seconds": 5e-6,
        "cores": 4,
        "torch_device": "cpu",
    }
    return DeviceProfile(**{**figures, **changes})


def cluster(
    count: int,
    memory_bytes: int | None = None,
    latency: float = 5e-5,
    bandwidth: float = 5e9,
    kind: DeviceProfile | None = None,
) -> Cluster:
    kind = kind or profile()
    devices = tuple(Device(f"cpu:{i}", kind, 0, i, memory_bytes) for i in range(count))
    return Cluster(devices, Link(latency, bandwidth), text=f"{count}xcpu")


def stats(
    nodes: int = 10_000,
    edges: int = 80_000,
    parts: tuple[int, ...] = (2, 3),
    listed: dict[str, int] | None = None,
) -> GraphStats:
    """Unequal shards: rank r of P owns a share that grows with r; every rank's halo is 30 % of its owned rows.

    ``listed``: rows of index axes, shared out equally.
    """
    listed = listed or {}
    partitions = {}
    for count in parts:
        weights = [count + rank for rank in range(count)]
        total = sum(weights)
        owned = [nodes * w // total for w in weights]
        owned[-1] += nodes - sum(owned)
        lines = [edges * w // total for w in weights]
        lines[-1] += edges - sum(lines)
        halo = [rows * 3 // 10 for rows in owned]
        sent = [sum(halo) // count] * count
        sent[-1] += sum(halo) - sum(sent)
        partitions[count] = PartitionStats(
            count,
            "given",
            0,
            edges // 5,
            tuple(
                ShardSizes(
                    {"node": o, "edge": e, **{axis: k // count for axis, k in listed.items()}},
                    {"node": h},
                    {"node": s},
                )
                for o, e, h, s in zip(owned, lines, halo, sent, strict=True)
            ),
        )
    return GraphStats(
        {"node": nodes, "edge": edges, **listed}, 50, edges / nodes, 0, {}, partitions
    )


def closed(
    nodes: int = 10_000,
    edges: int = 80_000,
    units: int = 12,
    shares: dict[int, tuple[float, ...]] | None = None,
) -> GraphStats:
    """Many graphs: every number of parts up to ``units``, equal as far as rows allow; ``shares`` sets those of one number."""
    found = {}
    for count in range(2, units + 1):
        weights = (shares or {}).get(count, (1.0,) * count)
        owned, lines = (_shared(rows, weights) for rows in (nodes, edges))
        found[count] = PartitionStats(
            count,
            "closed",
            0,
            0,
            tuple(
                ShardSizes({"node": o, "edge": e}, {}, {})
                for o, e in zip(owned, lines, strict=True)
            ),
        )
    whole = stats(nodes, edges, parts=())
    return replace(whole, closed=found, units=units, unit="graph")


def _shared(rows: int, weights: tuple[float, ...]) -> list[int]:
    parts = [int(rows * weight / sum(weights)) for weight in weights]
    parts[0] += rows - sum(parts)
    return parts


def tensor(name: str, *dims: str | int, origin: str = "op", **more: Any) -> TensorMeta:
    states: tuple[State, ...] = ("R",)
    if "node" in dims:
        states = NODE_STATES
    elif "edge" in dims:
        states = ("R", "O")
    given: dict[str, Any] = {"dtype": "float32", "states": states, **more}
    return TensorMeta(name, dims, origin=origin, **given)  # type: ignore[arg-type]


class Builder:
    """Adds ops one after the other."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.tensors: dict[str, TensorMeta] = {}

    def put(self, meta: TensorMeta) -> str:
        self.tensors[meta.name] = meta
        return meta.name

    def op(
        self,
        name: str,
        kind: Any,
        inputs: tuple[str, ...],
        output: TensorMeta,
        strategies: tuple[OpStrategy, ...],
        *,
        flops: Polynomial | None = None,
        nnz: Polynomial | None = None,
        width: float = 0,
        saved: tuple[str, ...] = (),
        rule: str | None = "rule",
    ) -> str:
        read = Polynomial()
        for each in inputs:
            read = read + self.tensors[each].bytes
        work = Work(
            kind,
            flops or Polynomial(),
            read,
            output.bytes,
            nnz or Polynomial(),
            Polynomial.of(width),
        )
        self.put(output)
        self.ops.append(
            Op(
                index=len(self.ops) + 3,
                name=name,
                module=f"layer{len(self.ops)}",
                where="model.py:1 in forward",
                inputs=inputs,
                outputs=(output.name,),
                rule=rule,
                forward=work,
                backward=work if output.reaches_loss else None,
                saved=saved,
                strategies=strategies,
                differentiates=tuple(
                    n for n in inputs if output.reaches_loss and self.tensors[n].reaches_loss
                ),
            )
        )
        return output.name


def strategy(
    name: str, inputs: tuple[State, ...], output: State, rows: State | None = None, **more: Any
) -> OpStrategy:
    state: State = rows or (output if output in ("R", "O", "H") else "O")
    return OpStrategy(name, inputs, (output,), state, **more)


def row_wise(*others: Literal["R"]) -> tuple[OpStrategy, ...]:
    return tuple(strategy(s, (s, *others), s) for s in NODE_STATES)


def gcn(
    features: int = 256,
    hidden: int = 16,
    classes: int = 8,
    gather_first: bool = False,
    layers: int = 2,
    norm: bool = False,
) -> OpGraph:
    """x W1 -> gather, scatter -> relu -> W2 -> gather, scatter -> mean loss; ``gather_first``: aggregate x, then W1.

    ``layers``: more of the middle. ``norm``: a batch norm before the last layer.
    """
    b = Builder()
    on = {"requires_grad": True, "reaches_loss": True}
    x = b.put(tensor("x", "node", features, origin="input", source="x"))
    ends = IndexInto(("node",), ("src",))
    src = b.put(tensor("src", "edge", origin="input", source="src", dtype="int64", index=ends))
    ends = IndexInto(("node",), ("dst",))
    dst = b.put(tensor("dst", "edge", origin="input", source="dst", dtype="int64", index=ends))
    w1 = b.put(tensor("w1", features, hidden, origin="parameter", source="conv1.weight", **on))
    second = classes if layers == 2 else hidden
    w2 = b.put(tensor("w2", hidden, second, origin="parameter", source="conv2.weight", **on))

    def linear(name: str, source: str, weight: str, width: int, out: int) -> str:
        return b.op(
            "aten.mm.default",
            "dense",
            (source, weight),
            tensor(name, "node", out, **on),
            row_wise("R"),
            flops=Polynomial.of(2 * width * out, "node"),
            saved=(source, weight),
        )

    def aggregate(name: str, source: str, width: int, grad: bool = True) -> str:
        more = on if grad else {}
        rows = Polynomial.of(1, "edge")
        message = b.op(
            "aten.index_select.default",
            "gather",
            (source, src),
            tensor(f"{name}_message", "edge", width, **more),
            (strategy("R", ("R", "R"), "R"), strategy("O", ("H", "O"), "O")),
            nnz=rows,
            width=4 * width,
            saved=(src,),
        )
        return b.op(
            "aten.scatter_add.default",
            "scatter",
            (message, dst),
            tensor(name, "node", width, **more),
            (strategy("R", ("R", "R"), "R"), strategy("O", ("O", "O"), "O")),
            nnz=rows,
            width=4 * width,
            saved=(dst,),
        )

    if gather_first:
        first = linear("h1", aggregate("a1", x, features, grad=False), w1, features, hidden)
    else:
        first = aggregate("a1", linear("h1", x, w1, features, hidden), hidden)
    for layer in range(1, layers):
        inside = hidden if layer < layers - 1 else classes
        relu = b.op(
            "aten.relu.default",
            "elementwise",
            (first,),
            tensor(f"r{layer}", "node", hidden, **on),
            row_wise(),
            flops=Polynomial.of(hidden, "node"),
            saved=(f"r{layer}",),
        )
        if norm and layer == layers - 1:
            both = Collective(2 * hidden, "float32", 1, 1)
            relu = b.op(
                "aten.native_batch_norm.default",
                "elementwise",
                (relu,),
                tensor("n1", "node", hidden, **on),
                (
                    strategy("R", ("R",), "R"),
                    strategy("O", ("O",), "O", kernel="sync_batch_norm", collectives=(both,)),
                ),
            )
        number = layer + 1
        if layer > 1:
            w2 = b.put(
                tensor(
                    f"w{number}",
                    hidden,
                    inside,
                    origin="parameter",
                    source=f"conv{number}.weight",
                    **on,
                )
            )
        h = linear(f"h{number}", relu, w2, hidden, inside)
        first = aggregate(f"a{number}", h, inside)
    last = first
    shared = Collective(2, "float32", 1, 1)
    b.op(
        "aten.nll_loss.default",
        "reduce",
        (last,),
        replace(tensor("loss", **on), states=("R", "S")),
        (
            strategy("R", ("R",), "R"),
            strategy("O", ("O",), "R", rows="O", kernel="nll_loss", collectives=(shared,)),
            strategy("P", ("O",), "S", rows="O", kernel="partial_loss"),
        ),
    )
    return OpGraph(tuple(b.ops), b.tensors, AXES, ("loss", last), has_loss=True, training=True)


def parameters(graph: OpGraph) -> tuple[ModelTensor, ...]:
    return tuple(
        ModelTensor(t.source or t.name, round(t.bytes.evaluate({})), True)
        for t in graph.tensors.values()
        if t.origin == "parameter"
    )
