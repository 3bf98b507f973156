"""What an op does in a layer, by Besta & Hoefler's classes: from the rows it reads and writes, and by which positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoplan.opgraph import Axis, Op, Phase, Role, TensorMeta
from autoplan.trace.step_module import CAPTURED


def phase_of(op: Op, tensors: Mapping[str, TensorMeta], axes: Mapping[str, Axis]) -> Phase:
    """The class of an op.

    ``gather`` moves rows of nodes to edges, ``aggregate`` rows of edges into nodes; ``message`` is what is computed along
    edges in between, ``update`` along nodes. What is outside the model (loss, metrics), has rows of neither, makes rows of
    graphs (a readout and what follows it), or positions and masks only, is ``other``.
    """
    if is_outside(op) or not op.outputs:
        return "other"
    made = [tensors[name] for name in op.outputs]
    if all(_counts(meta) for meta in made):
        return "other"
    kind = op.forward.kind
    if kind == "spmm":
        return "aggregate"
    read = [tensors[name] for name in op.inputs if not _counts(tensors[name])]
    given, written = _roles(read, axes), _roles(made, axes)
    if kind == "gather" and "edge" in written and "node" in given and "edge" not in given:
        return "gather"
    if kind == "scatter" and "node" in written and "edge" not in written:
        positions = [tensors[name] for name in op.inputs if _counts(tensors[name])]
        if "edge" in given | _roles(positions, axes):
            return "aggregate"
    if "graph" in written:
        return "other"
    for rows in (written, given):
        if "edge" in rows:
            return "message"
        if "node" in rows:
            return "update"
    return "other"


def is_outside(op: Op) -> bool:
    """Whether it was called by the loss or a metric: the step's own code, or a module that these capture."""
    return not op.module or op.module.partition(".")[0] == CAPTURED


def _counts(meta: TensorMeta) -> bool:
    """Whether it holds positions, numbers of rows or a mask, and no values of a model."""
    return meta.dtype == "bool" or meta.dtype.startswith(("int", "uint"))


def _roles(metas: Iterable[TensorMeta], axes: Mapping[str, Axis]) -> set[Role]:
    return {axes[dim].role for meta in metas for dim in meta.dims if isinstance(dim, str)}
