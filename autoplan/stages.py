"""Cutting a program into stages: which ops must stay together, and what crosses from one stage to another. No torch.

A stage assignment gives every op a stage such that what an op reads was made in its own or an earlier stage. Graph
attributes, parameters and buffers are loaded by each stage that reads them; constants are made anew; everything else that
a later stage reads crosses: activations, skips, integers, masks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from autoplan.errors import PlanError
from autoplan.opgraph import DRAWING, FINDING, Axis, Op, OpGraph, OpStrategy, State, TensorMeta
from autoplan.states import sharded_axis


@dataclass(frozen=True, slots=True)
class Crossing:
    """A tensor that one stage makes and a later one reads.

    Attributes:
        tensor: its name; state: that it is made in, and travels in.
        source, target: stages.
        gradient: an op of the target stage passes a gradient of the loss back to it.
    """

    tensor: str
    state: State
    source: int
    target: int
    gradient: bool


def strategies_of(graph: OpGraph, choices: Mapping[int, str]) -> dict[int, OpStrategy]:
    """By op index, its chosen strategy; R where there is no choice."""
    return {
        op.index: next(s for s in op.strategies if s.name == choices.get(op.index, "R"))
        for op in graph.ops
    }


def together(graph: OpGraph) -> tuple[frozenset[int], ...]:
    """Groups of ops (by index, two or more each, disjoint) that no cut may separate, in program order.

    - Ops that touch a storage that is written in place, from its maker to its last writer: what a later stage has is a copy
      of what the storage holds at the end. All readers, too, where views of it are read under other names afterwards.
    - Ops that read or write a buffer that is written (running statistics), until its last write.
    - Ops that read the memory layout of a tensor; makers and readers of sparse tensors; ops that read a size that only
      another op's result tells.
    - All ops, where no strategy may rewrite the program, or where a parameter is written in place: its stage would have to hand
      it on, and take back its gradient.
    """
    if graph.single_only is not None or written_parameters(graph):
        every = frozenset(op.index for op in graph.ops)
        return (every,) if len(every) > 1 else ()
    group_of: dict[int, set[int]] = {}
    for group in (*graph.inseparable, *_written(graph)):
        merged = set(group).union(*(group_of.get(op, {op}) for op in group))
        group_of.update(dict.fromkeys(merged, merged))
    found = {min(group): frozenset(group) for group in group_of.values() if len(group) > 1}
    return tuple(found[first] for first in sorted(found))


def written_parameters(graph: OpGraph) -> tuple[str, ...]:
    """The model's own names of the parameters that the program writes in place (a weight that forward clamps)."""
    return tuple(
        tensor.source or tensor.name
        for tensor in graph.tensors.values()
        if tensor.origin == "parameter" and f"{tensor.name}.1" in graph.tensors
    )


def _written(graph: OpGraph) -> Iterable[tuple[int, ...]]:
    """Per value with a later version (``v5.1``), the ops that touch it until the last version is made."""
    touched: dict[str, list[int]] = {}
    last_write: dict[str, int] = {}
    for op in graph.ops:
        values = dict.fromkeys(name.partition(".")[0] for name in (*op.inputs, *op.outputs))
        for value in values:
            touched.setdefault(value, []).append(op.index)
        last_write.update((n.partition(".")[0], op.index) for n in op.outputs if "." in n)
    for value, last in last_write.items():
        yield tuple(index for index in touched[value] if index <= last)


def check_stages(graph: OpGraph, stage_of: Mapping[int, int], stages: int | None = None) -> None:
    """Holds a stage assignment to the rules: complete, monotone, no group of `together` cut.

    Args:
        graph: the program.
        stage_of: op index -> stage.
        stages: how many there are, of which some may have no ops; by default every stage up to the highest has one.

    Raises:
        PlanError: an op without a stage, a stage without ops, an op that reads what a later stage makes, or ops in two
            stages that must be in one (both ops named).
    """
    missing = [op for op in graph.ops if op.index not in stage_of]
    if missing:
        raise PlanError(f"{_named(missing[0])} has no stage; plan again")
    used = {stage_of[op.index] for op in graph.ops}
    if stages is None and used != set(range(len(used))):
        raise PlanError(
            f"ops are in stages {sorted(used)}; stages are numbered from 0 and each has an op"
        )
    if stages is not None and not used <= set(range(stages)):
        raise PlanError(f"ops are in stages {sorted(used)}, but there are {stages}, from 0")
    monotone(graph, stage_of)
    by_index = {op.index: op for op in graph.ops}
    for group in together(graph):
        first = min(group)
        for other in sorted(group):
            if stage_of[other] != stage_of[first]:
                raise PlanError(
                    f"{_named(by_index[first])} is in stage {stage_of[first]} and {_named(by_index[other])} in stage "
                    f"{stage_of[other]}, but they share memory that is written; cut elsewhere"
                )


def monotone(graph: OpGraph, stage_of: Mapping[int, int]) -> None:
    """Checks that what an op reads is made in its own or an earlier stage.

    Raises:
        PlanError: naming the op that reads and the op that makes.
    """
    maker: dict[str, Op] = {}
    by_index: dict[int, Op] = {}
    for op in graph.ops:
        read = [maker[name] for name in op.inputs if name in maker]
        read += [by_index[number] for number in op.numbers]
        for made in read:
            if stage_of[made.index] > stage_of[op.index]:
                raise PlanError(
                    f"{_named(op)} is in stage {stage_of[op.index]} and reads what {_named(made)} makes in the later "
                    f"stage {stage_of[made.index]}; an op's stage is at least that of all it reads from"
                )
        by_index[op.index] = op
        maker.update((name, op) for name in op.outputs)


def module_stages(graph: OpGraph, stage_of: Mapping[int, int]) -> dict[str, int]:
    """By path of a module, the first stage that has an op of it."""
    found: dict[str, int] = {}
    for op in graph.ops:
        found[op.module] = min(stage_of[op.index], found.get(op.module, stage_of[op.index]))
    return found


def following(
    graph: OpGraph, homes: Mapping[str, Collection[int]], modules: Mapping[str, int]
) -> dict[int, int]:
    """The earliest stages for a program that reads what the stages of another program hold.

    So an evaluation is cut as its training is: every op runs with the ops of its module, where its parameters are, after
    all that it reads from.

    Args:
        graph: the program.
        homes: by the model's own name of a parameter or buffer, the stages that hold it; what is not named can be had in
            any stage.
        modules: of the other program, from `module_stages`.

    Raises:
        PlanError: an op that reads, after a later stage's result, what only earlier stages hold.
    """
    stage_of = {op.index: modules.get(op.module, 0) for op in graph.ops}
    groups = together(graph)
    before: dict[int, int] = {}
    while before != stage_of:
        before = dict(stage_of)
        made: dict[str, int] = {}
        for op in graph.ops:
            least = max(
                [
                    stage_of[op.index],
                    *(made[name] for name in op.inputs if name in made),
                    *(stage_of[number] for number in op.numbers),
                ]
            )
            stage_of[op.index] = _home(graph, op, least, homes)
            made.update(dict.fromkeys(op.outputs, stage_of[op.index]))
        for group in groups:
            stage_of.update(dict.fromkeys(group, max(stage_of[op] for op in group)))
    return stage_of


def _home(graph: OpGraph, op: Op, least: int, homes: Mapping[str, Collection[int]]) -> int:
    """The first stage from ``least`` on that holds all that an op reads of the model. Raises PlanError."""
    held = [
        homes[source]
        for source in (graph.tensors[name].source for name in op.inputs)
        if source is not None and source in homes
    ]
    if not held:
        return least
    fitting = [stage for stage in set.intersection(*map(set, held)) if stage >= least]
    if not fitting:
        raise PlanError(
            f"{_named(op)} reads parameters of stages {sorted(set().union(*held))} after results of stage {least}, so it "
            "cannot be cut as training is; plan with another strategy"
        )
    return min(fitting)


def _named(op: Op) -> str:
    return f"op {op.index} {op.name} in {op.module or 'the model'} ({op.where})"


def reads(graph: OpGraph) -> dict[int, tuple[str, ...]]:
    """By op index, the tensors that an op needs where it runs, once each.

    Its inputs, those that its numbers are read from, and the masks of the ``select`` axes whose rows its kernel tells apart
    by their keys.
    """
    inputs_of = {op.index: op.inputs for op in graph.ops}
    found: dict[int, tuple[str, ...]] = {}
    for op in graph.ops:
        read = [name for number in op.numbers for name in inputs_of[number]]
        keyed = any(strategy.kernel in DRAWING | FINDING for strategy in op.strategies)
        axis = (
            sharded_axis(graph.tensors[op.inputs[0]], graph.axes) if keyed and op.inputs else None
        )
        masks = masks_of(graph, axis) if axis is not None else ()
        found[op.index] = tuple(dict.fromkeys((*op.inputs, *read, *masks)))
    return found


def masks_of(graph: OpGraph, axis: str) -> tuple[str, ...]:
    """The tensors that tell which rows an axis has: masks of the ``select`` axes that it is made of."""
    about = graph.axes[axis]
    if about.kind not in ("select", "concat", "blocks"):
        return ()
    own = (mask_of(axis),) if about.kind == "select" else ()
    return (*own, *(mask for part in about.parts for mask in masks_of(graph, part)))


def mask_of(axis: str) -> str:
    """``v12`` for ``select(v12)``."""
    return axis.removeprefix("select(").removesuffix(")")


def crossings(
    graph: OpGraph, choices: Mapping[int, str], stage_of: Mapping[int, int]
) -> tuple[Crossing, ...]:
    """What crosses between stages, in program order of the tensors, then by target.

    Args:
        graph: the program.
        choices: op index -> strategy name.
        stage_of: op index -> stage.
    """
    strategies = strategies_of(graph, choices)
    made: dict[str, tuple[int, State]] = {}
    found: dict[tuple[str, int], Crossing] = {}
    needed = reads(graph)
    for op in graph.ops:
        stage = stage_of[op.index]
        for name in needed[op.index]:
            _add(found, graph, made, name, stage, name in op.differentiates)
        strategy = strategies[op.index]
        for name, state in zip(op.outputs, strategy.outputs, strict=True):
            made[name] = (stage, state)
    for name in graph.outputs:
        # the rows of what is returned are told apart by their keys
        axis = sharded_axis(graph.tensors[name], graph.axes)
        if name in made and made[name][1] == "O" and axis is not None:
            for mask in masks_of(graph, axis):
                _add(found, graph, made, mask, made[name][0], False)
    order = {name: position for position, name in enumerate(made)}
    return tuple(sorted(found.values(), key=lambda c: (order[c.tensor], c.target)))


def _add(
    found: dict[tuple[str, int], Crossing],
    graph: OpGraph,
    made: Mapping[str, tuple[int, State]],
    name: str,
    stage: int,
    gradient: bool,
) -> None:
    """Notes that a stage needs a tensor, if an earlier one makes it."""
    if name not in made or made[name][0] == stage:
        return
    source, state = made[name]
    before = found.get((name, stage))
    wanted = graph.tensors[name].requires_grad and gradient
    wanted = wanted or (before is not None and before.gradient)
    found[name, stage] = Crossing(name, state, source, stage, wanted)


def unknown_axes(tensors: Iterable[TensorMeta], axes: Mapping[str, Axis]) -> tuple[str, ...]:
    """The axes of these tensors' dimensions whose rows only the sender of a message knows, once each, in order.

    Rows of ``select`` and ``other`` axes, and of what is made of these, depend on data: a message that holds such tensors
    comes with one int64 for each such axis. All other rows follow from the graph's.
    """

    def unknown(axis: str) -> bool:
        kind, parts = axes[axis].kind, axes[axis].parts
        return kind in ("select", "other") or (kind != "base" and any(map(unknown, parts)))

    dims = [dim for tensor in tensors for dim in tensor.dims if isinstance(dim, str)]
    return tuple(axis for axis in dict.fromkeys(dims) if unknown(axis))
