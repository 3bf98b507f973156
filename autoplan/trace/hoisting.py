"""Which ops depend on the graph alone, so that their results can be computed once and kept (torch).

Features count as the graph: SGC's propagation of ``x`` leaves the training loop as GCN's normalisation does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from autoplan.opgraph import Axis, Op, TensorMeta
from autoplan.program.ir import OpStep, Program
from autoplan.program.torch_internals import READ_DATA, is_operator
from autoplan.trace import alias
from autoplan.trace.inseparable import sizes_told

_PURE = frozenset({"aten", "autoplan"})
"""Namespaces of operators that are known to depend on nothing but their arguments (and, where tagged, random state)."""
_READ_ONLY = (torch.autograd.grad, READ_DATA, torch.Tensor.tolist)
"""Opaque steps that change nothing."""


def hoistable(
    program: Program,
    ops: Sequence[Op],
    tensors: Mapping[str, TensorMeta],
    axes: Mapping[str, Axis],
    *,
    training: bool,
) -> frozenset[int]:
    """Indices of the ops that compute the same in every step on one graph.

    Among what such an op is computed from there is no parameter, no random draw, no opaque Python code, no buffer or graph
    attribute that the program writes, and nothing that asks for a gradient; nor does an op that is none write over its
    result. Between evaluations training may have written any buffer. Guards are no such ops: they stay.

    Args:
        program: the traced program.
        ops: its ops, `Op.numbers` filled in.
        tensors: what they read and make.
        axes: of the tensors' dimensions.
        training: the mode that the program was recorded in.
    """
    root = program.samples[0].alias
    steps = {index: step for index, step in enumerate(program.steps) if isinstance(step, OpStep)}
    writers: dict[str, set[int]] = {}
    for index, step in steps.items():
        for value in _written(step):
            writers.setdefault(root.get(value, value), set()).add(index)
    maker = {name: op.index for op in ops for name in op.outputs}
    needs: dict[int, set[int]] = {}
    for op in ops:
        call = steps.get(op.index)
        if call is None or not _repeats(call):
            continue
        values = [name for name in (*call.reads, *call.outs) if name in root]
        metas = [tensors[name] for name in (*op.inputs, *op.outputs)]
        if any(_changes(meta, writers, root, training) for meta in metas):
            continue
        needs[op.index] = {maker[name] for name in op.inputs if name in maker}
        needs[op.index].update(op.numbers)
        for value in values:
            needs[op.index] |= writers.get(root[value], set())
    for made, read in sizes_told(program, ops, tensors, axes):
        if read in needs:
            needs[read].add(made)
    found = set(needs)
    while True:
        kept = {index for index in found if needs[index] <= found}
        if kept == found:
            return frozenset(found)
        found = kept


def _written(step: OpStep) -> tuple[str, ...]:
    """Values that a step changes: what opaque Python code is given, it may write, or ask a gradient of."""
    if step.opaque and step.func not in _READ_ONLY:
        return tuple(name for name in step.reads if name.startswith("v"))
    return alias.written(step)


def _repeats(step: OpStep) -> bool:
    """Whether equal arguments give equal results."""
    if step.opaque or not is_operator(step.func):
        return False
    drawn = torch.Tag.nondeterministic_seeded in step.func.tags
    return step.func.namespace in _PURE and not drawn


def _changes(
    meta: TensorMeta, writers: Mapping[str, set[int]], root: Mapping[str, str], training: bool
) -> bool:
    """Whether a tensor may hold other values in the next step, or a gradient is asked of it."""
    if meta.origin == "parameter" or meta.requires_grad:
        return True
    value = meta.name.partition(".")[0]
    written = root.get(value, value) in writers
    if meta.origin == "buffer":
        return written or not training
    return meta.origin == "input" and written
