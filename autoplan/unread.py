"""What a program computes or holds and nothing reads: ops whose results go nowhere, parameters that no op takes. No torch."""

from __future__ import annotations

from collections.abc import Iterable

from autoplan.opgraph import OpGraph
from autoplan.storage import storages

_HEAVY = frozenset({"dense", "gather", "scatter", "spmm"})


def is_waste(kind: str, *, computes: bool) -> bool:
    """Whether an unread op of this kind of work costs something that leaving it out would save.

    Views cost nothing; copies are mostly those that torch's own operators make and drop.
    """
    return kind in _HEAVY or computes


def unread_ops(graph: OpGraph) -> tuple[int, ...]:
    """Indices of the ops of which nothing reaches an output, a buffer, a decision of Python's or a number that it reads.

    Memory that is written in place is one thing: who reads any part of it reads all that was written there.
    """
    if graph.single_only is not None:
        # what an opaque function reads by other ways is not known
        return ()
    storage = storages(graph)
    live = {storage[name] for name in graph.outputs}
    live |= {
        storage[name] for name, meta in graph.tensors.items() if meta.origin not in ("op", "input")
    }
    named = set(graph.outputs)
    numbers: set[int] = set()
    unread = []
    for op in reversed(graph.ops):
        # a view (of a weight, say) writes nothing into what it looks at
        view = op.forward.kind == "view"
        made = set(op.outputs) if view else {storage[name] for name in op.outputs}
        if made and not made & (named if view else live) and op.index not in numbers:
            unread.append(op.index)
            continue
        named.update(op.inputs)
        live |= {storage[name] for name in op.inputs}
        numbers.update(op.numbers)
    return tuple(reversed(unread))


def read_of_model(graph: OpGraph) -> frozenset[str]:
    """Names (`TensorMeta.source`) of the parameters and buffers that some op reads or writes, or that are returned."""
    storage = storages(graph)
    touched = {storage[name] for op in graph.ops for name in (*op.inputs, *op.outputs)} | set(
        graph.outputs
    )
    return frozenset(
        meta.source
        for name, meta in graph.tensors.items()
        if meta.origin in ("parameter", "buffer") and meta.source is not None and name in touched
    )


def by_module(names: Iterable[str], among: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Some of a model's tensors, together where they are all that a module has: by the outermost such module, or by name.

    Args:
        names: of these, ``teacher.0.weight``.
        among: names of all the model's tensors.
    """
    chosen = list(dict.fromkeys(names))
    others = [name for name in among if name not in set(chosen)]
    found: dict[str, list[str]] = {}
    for name in chosen:
        parts = name.split(".")
        paths = (".".join(parts[:length]) for length in range(1, len(parts)))
        whole = (p for p in paths if not any(other.startswith(f"{p}.") for other in others))
        found.setdefault(next(whole, name), []).append(name)
    return {path: tuple(together) for path, together in found.items()}
