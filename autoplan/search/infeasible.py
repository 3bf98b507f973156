"""Why nothing fits, and the smallest change that would: named tensors and numbers, never a solver's status."""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.device import Device
from autoplan.opgraph import OpGraph
from autoplan.pricing.memory import ModelTensor, StaticMemory
from autoplan.search.check import presence
from autoplan.search.problem import Problem
from autoplan.search.solution import Solution

MIB = float(1 << 20)


def too_large(
    parameters: Sequence[ModelTensor], devices: Sequence[Device], head_room: float
) -> str | None:
    """A parameter or buffer that no device can hold at all, or None."""
    if not parameters or not devices or any(d.memory_bytes is None for d in devices):
        return None
    heaviest = max(parameters, key=lambda parameter: parameter.bytes)
    roomiest = max(devices, key=lambda device: device.memory_bytes or 0)
    capacity = roomiest.memory_bytes or 0
    if heaviest.bytes <= capacity * (1 - head_room):
        return None
    return (
        f"'{heaviest.name}' needs {heaviest.bytes / MIB:.1f} MiB, "
        f"the largest device has {capacity / MIB:.1f} MiB{_kept(head_room)}; "
        f"give a device with at least {_capacity(heaviest.bytes, head_room)}"
    )


def model_too_large(
    static: StaticMemory, optimizer: str, devices: Sequence[Device], head_room: float
) -> str | None:
    """Weights with gradients and optimizer state that some device of a group cannot hold, or None.

    Every device of a ``single`` or ``data`` plan holds the whole model.
    """
    known = [device for device in devices if device.memory_bytes is not None]
    if not known:
        return None
    smallest = min(known, key=lambda device: device.memory_bytes or 0)
    capacity = smallest.memory_bytes or 0
    if static.total <= capacity * (1 - head_room):
        return None
    return (
        f"the model needs {static.total / MIB:.1f} MiB on every device (weights {static.weights / MIB:.1f}, "
        f"gradients {static.gradients / MIB:.1f}, state of {optimizer} {static.optimizer / MIB:.1f}) "
        f"before any activation, '{smallest.name}' has "
        f"{capacity / MIB:.1f} MiB{_kept(head_room)}; "
        f"give a device with more than {_capacity(static.total, head_room)}"
    )


def short_of_memory(
    graph: OpGraph,
    problem: Problem,
    least: Solution,
    devices: Sequence[Device],
    head_room: float,
) -> str:
    """What is short in the plan of this family that needs least, and its largest tensor.

    Args:
        graph: the program.
        problem: of one op a block, with a memory model.
        least: its solution for the objective ``memory``.
        devices: of the group, in rank order.
        head_room: share of each capacity that stays free.
    """
    assert problem.memory is not None
    if least.assignment is None or least.evaluation is None:
        return "no choice of strategies satisfies all the states that ops need"
    peaks = least.evaluation.peak
    short = [
        (peak - limit, -rank)
        for rank, (peak, limit) in enumerate(zip(peaks, problem.limits, strict=True))
        if limit is not None
    ]
    missing, negative = max(short)
    rank = -negative
    device = devices[rank]
    found = least.evaluation
    here, _ = presence(problem, least.assignment, found.moves, found.loads)
    sizes = problem.memory.bytes[:, rank] * here
    message = (
        f"the plan that needs least memory peaks at {peaks[rank] / MIB:.1f} MiB on '{device.name}', which has "
        f"{(device.memory_bytes or 0) / MIB:.1f} MiB{_kept(head_room)}: short by {missing / MIB:.1f} MiB"
    )
    if len(sizes):
        largest = int(sizes.argmax())
        name, state = problem.memory.units[largest]
        message += (
            f"; the largest tensor is {_described(graph, name)} in state {state}, "
            f"{sizes[largest] / MIB:.1f} MiB"
        )
    return f"{message}; give a device with at least {_capacity(peaks[rank], head_room)}"


def _described(graph: OpGraph, name: str) -> str:
    """``v53 [edge, 4, 16] (aten.mul.Tensor in conv1)``, or the attribute of an input."""
    tensor = graph.tensors[name]
    roles = [str(d) if isinstance(d, int) else graph.axes[d].role for d in tensor.dims]
    shape = f"[{', '.join(roles)}]"
    if tensor.origin != "op":
        return f"'{tensor.source or name}' {shape}"
    makers = [op for op in graph.ops if name in op.outputs]
    made = "".join(f" ({op.name} in {op.module or 'the model'})" for op in makers[:1])
    return f"{name} {shape}{made}"


def _kept(head_room: float) -> str:
    return f" ({head_room:.0%} of it stays free)" if head_room else ""


def _capacity(need: float, head_room: float) -> str:
    return f"{need / (1 - head_room) / MIB:.1f} MiB"
