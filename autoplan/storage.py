"""Which tensors of a program share memory; what is kept for backward, and what may be kept for good. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoplan.opgraph import Op, OpGraph


@dataclass(frozen=True, slots=True)
class Hoisted:
    """A value that can be computed once for a graph and kept.

    Attributes:
        tensor: its name; op: the index of the op that makes it; name: of that op.
        bytes: of the storage it looks at; zero where that is an input of the graph, or listed before.
        readers: ops that stay in the training loop and read it.
    """

    tensor: str
    op: int
    name: str
    bytes: float
    readers: tuple[int, ...]


def hoisted_values(graph: OpGraph, values: Mapping[str, float]) -> tuple[Hoisted, ...]:
    """The values that are kept where all that is hoistable is hoisted: made by such ops, read by others or returned.

    Args:
        graph: the program.
        values: rows of every axis.
    """
    maker = {name: op for op in graph.ops if op.hoistable for name in op.outputs}
    readers: dict[str, list[int]] = {}
    for op in graph.ops:
        if not op.hoistable:
            for name in dict.fromkeys(op.inputs):
                if name in maker:
                    readers.setdefault(name, []).append(op.index)
    for name in graph.outputs:
        if name in maker:
            readers.setdefault(name, [])
    storage = storages(graph)
    counted: set[str] = set()
    found: list[Hoisted] = []
    for name, read_by in readers.items():
        root = storage[name]
        own = root in maker and root not in counted
        counted.add(root)
        size = graph.tensors[root].bytes.evaluate(values) if own else 0.0
        found.append(Hoisted(name, maker[name].index, maker[name].name, size, tuple(read_by)))
    return tuple(found)


def saved_bytes(
    graph: OpGraph, values: Mapping[str, float], ops: Iterable[Op] | None = None
) -> float:
    """Bytes kept from forward to backward: each storage once, parameters left out, inputs of the graph included.

    This is what `torch.autograd.graph.saved_tensors_hooks` sees, by the same conventions.

    Args:
        graph: the program.
        values: rows of every axis.
        ops: because of which; None: all of the graph's.
    """
    names = {name for op in (graph.ops if ops is None else ops) for name in op.saved}
    # of two versions of one value (``v5``, ``v5.1``) the earlier is a copy: autograd refuses what was overwritten
    saved = (graph.tensors[name] for name in names)
    return sum(meta.bytes.evaluate(values) for meta in saved if meta.origin != "parameter")


def storages(graph: OpGraph) -> dict[str, str]:
    """By tensor, the first one that has its memory: through views, and back to the first version of what is written."""
    found = {
        name: name.partition(".")[0] if name.partition(".")[0] in graph.tensors else name
        for name in graph.tensors
    }
    for op in graph.ops:
        if op.forward.kind == "view" and op.inputs:
            source = found[op.inputs[0]]
            for name in op.outputs:
                if "." not in name:
                    found[name] = source
    for name, root in found.items():
        found[name] = found.get(root, root)
    return found
