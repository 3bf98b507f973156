"""Why nothing fits, and the smallest change that would: named tensors and numbers, never a solver's status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoplan.device import Device
from autoplan.opgraph import OpGraph
from autoplan.opnames import op_name
from autoplan.pricing.memory import ModelTensor, StaticMemory
from autoplan.search.check import presence
from autoplan.search.layouts import Layout
from autoplan.search.problem import Problem
from autoplan.search.solution import Solution
from autoplan.search.stage_cuts import best_cuts
from autoplan.search.stage_problem import StageProblem, evaluate_stages
from autoplan.states import STATE_WORDS

MIB = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a candidate does not fit.

    Attributes:
        reason: in words.
        capacity: bytes that each of its devices must have for it to fit, what is reserved included; None: more memory does not
            help, or how much is not known.
        exact: that much suffices; False: it takes more, as activations have not been counted.
    """

    reason: str
    capacity: float | None = None
    exact: bool = True


def too_large(
    parameters: Sequence[ModelTensor], devices: Sequence[Device], head_room: float
) -> Shortage | None:
    """A parameter or buffer that no device can hold at all, or None."""
    if not parameters or not devices or any(d.memory_bytes is None for d in devices):
        return None
    heaviest = max(parameters, key=lambda parameter: parameter.bytes)
    roomiest = max(devices, key=lambda device: device.memory_bytes or 0)
    capacity = roomiest.memory_bytes or 0
    if heaviest.bytes <= capacity * (1 - head_room):
        return None
    return Shortage(
        f"'{heaviest.name}' needs {heaviest.bytes / MIB:.1f} MiB, "
        f"the largest device has {capacity / MIB:.1f} MiB{_kept(head_room)}; "
        f"give a device with at least {_capacity(heaviest.bytes, head_room)}",
        heaviest.bytes / (1 - head_room),
        exact=False,
    )


def model_too_large(
    static: StaticMemory, optimizer: str, devices: Sequence[Device], head_room: float
) -> Shortage | None:
    """Weights with gradients, optimizer state and temporaries of the update that some device of a group cannot hold, or None.

    Every device of a ``single`` or ``data`` plan holds the whole model.
    """
    known = [device for device in devices if device.memory_bytes is not None]
    if not known:
        return None
    smallest = min(known, key=lambda device: device.memory_bytes or 0)
    capacity = smallest.memory_bytes or 0
    need = static.total + static.update
    if need <= capacity * (1 - head_room):
        return None
    update = f", its update {static.update / MIB:.1f}" if static.update else ""
    return Shortage(
        f"the model needs {need / MIB:.1f} MiB on every device (weights {static.weights / MIB:.1f}, "
        f"gradients {static.gradients / MIB:.1f}, state of {optimizer} {static.optimizer / MIB:.1f}{update}) "
        f"before any activation, '{smallest.name}' has "
        f"{capacity / MIB:.1f} MiB{_kept(head_room)}; "
        f"give a device with more than {_capacity(need, head_room)}",
        need / (1 - head_room),
        exact=False,
    )


def short_of_memory(
    graph: OpGraph,
    problem: Problem,
    least: Solution,
    devices: Sequence[Device],
    head_room: float,
) -> Shortage:
    """What is short in the plan of this family that needs least, and its largest tensor.

    Args:
        graph: the program.
        problem: of one op a block, with a memory model.
        least: its solution for the objective ``memory``.
        devices: of the group, in rank order.
        head_room: share of each capacity that is reserved.
    """
    assert problem.memory is not None
    if least.assignment is None or least.evaluation is None:
        return Shortage("no choice of strategies satisfies all the states that ops need")
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
            f"; the largest tensor is {_described(graph, name)}, {STATE_WORDS[state]}, "
            f"{sizes[largest] / MIB:.1f} MiB"
        )
    return Shortage(
        f"{message}; give a device with at least {_capacity(peaks[rank], head_room)}",
        peaks[rank] / (1 - head_room),
    )


def stages_too_small(
    graph: OpGraph, problems: Sequence[tuple[Layout, StageProblem]], head_room: float
) -> Shortage:
    """Which stage is short in the cuts that need least, by how much, and of what: the problem that is nearest to fitting.

    Args:
        graph: the program.
        problems: layouts with their problems, none of which has a solution within its limits.
        head_room: share of each capacity that is reserved.
    """
    nearest: tuple[float, Layout, StageProblem, tuple[int, ...]] | None = None
    for layout, problem in problems:
        free = replace(problem, slots=tuple(replace(slot, limit=None) for slot in problem.slots))
        cuts = best_cuts(free, objective="memory")
        if cuts is None:
            continue
        missing = max(evaluate_stages(problem, cuts).excess)
        if nearest is None or missing < nearest[0]:
            nearest = missing, layout, problem, cuts
    if nearest is None:
        return Shortage("the program has fewer parts that a cut may separate than there are stages")
    _, layout, problem, cuts = nearest
    found = evaluate_stages(problem, cuts)
    stage = max(range(layout.stages), key=lambda s: (found.excess[s], found.bytes[s], -s))
    ranks = [layout.rank(replica, stage) for replica in range(layout.replicas)]
    device = min((layout.group.devices[r] for r in ranks), key=lambda d: d.memory_bytes or 0)
    capacity = device.memory_bytes or 0
    missing = max(0.0, found.bytes[stage] - capacity * (1 - head_room))
    flight = f" with {layout.micro_batches} micro-batches" if layout.micro_batches > 1 else ""
    return Shortage(
        f"stage {stage} of {layout.stages}{flight} needs {found.bytes[stage] / MIB:.1f} MiB on '{device.name}' in the "
        f"cuts that need least, which has {capacity / MIB:.1f} MiB{_kept(head_room)}: short by {missing / MIB:.1f} MiB"
        f"{_largest(graph, problem, cuts, stage)}; give devices with at least "
        f"{_capacity(found.bytes[stage], head_room)}, or more of them for more stages",
        found.bytes[stage] / (1 - head_room),
    )


def _largest(graph: OpGraph, problem: StageProblem, cuts: Sequence[int], stage: int) -> str:
    """The largest thing that a stage holds or keeps for backward."""
    sizes = {
        each.name: each.bytes
        for each in problem.held
        if any(cuts[block] == stage for block in each.readers)
    }
    names = {name: f"'{name}'" for name in sizes}
    for number, unit in enumerate(problem.units):
        if any(cuts[block] == stage for block in unit.savers):
            sizes[unit.name] = float(problem.kept[stage, number])
            names[unit.name] = _described(graph, unit.name)
    if not sizes:
        return ""
    largest = max(sizes, key=lambda name: sizes[name])
    return f"; the largest it holds is {names[largest]}, {sizes[largest] / MIB:.1f} MiB"


def _described(graph: OpGraph, name: str) -> str:
    """``v53 [edge, 4, 16] (mul in conv1)``, or the attribute of an input."""
    tensor = graph.tensors[name]
    roles = [str(d) if isinstance(d, int) else graph.axes[d].role for d in tensor.dims]
    shape = f"[{', '.join(roles)}]"
    if tensor.origin != "op":
        return f"'{tensor.source or name}' {shape}"
    makers = [op for op in graph.ops if name in op.outputs]
    made = "".join(
        f" ({op_name(op.name)} in {op.module or 'the model itself'})" for op in makers[:1]
    )
    return f"{name} {shape}{made}"


def _kept(head_room: float) -> str:
    return f" ({100 * head_room:.0f} % of it reserved)" if head_room else ""


def _capacity(need: float, head_room: float) -> str:
    return f"{need / (1 - head_room) / MIB:.1f} MiB"
