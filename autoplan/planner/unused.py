"""What a step leaves aside: parameters that no op reads or no gradient reaches, ops whose results nothing reads (torch)."""

from __future__ import annotations

from autoplan.analysis import layers_of
from autoplan.planner.workload import Workload, model_tensors
from autoplan.report.units import count, listed, size
from autoplan.symbolic import ZERO
from autoplan.trace.step_module import MODEL, user_name
from autoplan.unread import by_module, is_waste, read_of_model, unread_ops


def tensor_notes(workload: Workload) -> list[str]:
    """Parameters and buffers that the step does not use, and trained ones that get no gradient.

    Nothing is said of a trace that sees less than plain PyTorch runs.
    """
    if not workload.general:
        return []
    traced = workload.traced
    tensors = {tensor.name: tensor for tensor in model_tensors(workload)}
    read = {user_name(source) for source in read_of_model(workload.opgraph)}
    own = traced.module.get_submodule(MODEL)
    trainable = {name for name, p in own.named_parameters() if p.requires_grad}
    # a counter of a layer, such as a batch norm's, weighs nothing
    weights = [name for name, _ in own.named_parameters() if name in tensors]
    unused = [name for name in weights if name not in read]
    notes = []
    if unused:
        modules = [
            f"{path} ({_told(len(names), sum(tensors[name].bytes for name in names))})"
            for path, names in by_module(unused, tensors).items()
        ]
        notes.append(
            f"the step does not use {listed(modules)}: they take memory where the whole model is held, but no gradient and no optimizer state"
        )
    if traced.has_loss:
        idle = [
            name
            for name in weights
            if name in read and name in trainable and not tensors[name].gets_gradient
        ]
        if idle:
            notes.append(f"no gradient of the loss reaches {listed(idle)}")
    return notes


def op_notes(workload: Workload) -> list[str]:
    """Ops whose results nothing reads, by layer; as `tensor_notes`, of general traces."""
    unread = frozenset(unread_ops(workload.opgraph) if workload.general else ())
    ops = [op for op in workload.opgraph.ops if op.index in unread]
    if not any(is_waste(op.forward.kind, computes=op.forward.flops != ZERO) for op in ops):
        return []
    layers = layers_of(workload.opgraph)
    return [
        f"nothing reads the results of {count(len(ops), 'op')} in "
        f"{listed(list(dict.fromkeys(layers[op.index] for op in ops)))}: leave them out of forward where you can"
    ]


def _told(number: int, held: float) -> str:
    return f"{count(number, 'parameter')}, {size(held)}"
