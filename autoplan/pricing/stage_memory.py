"""Where the memory of one rank of a pipeline goes: one micro-batch by liveness, and what the others in flight keep."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoplan.graphstats import GraphStats
from autoplan.opgraph import OpGraph, OpStrategy, State
from autoplan.plan import MemorySheet
from autoplan.pricing.group import Group
from autoplan.pricing.memory import BoolArray, MemoryModel, StaticMemory, memory_model
from autoplan.states import transitions, way

NO_STATIC = StaticMemory(0.0, 0.0, 0.0)
ROW_ID_BYTES = 8


def presence(
    graph: OpGraph, strategies: Mapping[int, OpStrategy], memory: MemoryModel
) -> tuple[BoolArray, BoolArray]:
    """[U] masks: which units some op makes, loads or brings into another state, and which are kept for backward.

    Args:
        graph: the program, or the part of it that a stage runs (tensors of other stages are loaded in their state).
        strategies: one per op.
        memory: its model.
    """
    here = np.zeros(len(memory.units), dtype=bool)
    kept = np.zeros(len(memory.units), dtype=bool)
    made: dict[str, State] = {}
    needed: dict[str, dict[State, None]] = {}

    def mark(mask: BoolArray, name: str, state: State) -> None:
        unit = memory.unit_of.get((name, state))
        if unit is not None:
            mask[unit] = True

    for op in graph.ops:
        strategy = strategies[op.index]
        state_of = dict(zip(op.inputs, strategy.inputs, strict=True))
        for name, state in state_of.items():
            needed.setdefault(name, {})[state] = None
        made.update(zip(op.outputs, strategy.outputs, strict=True))
        state_of.update(zip(op.outputs, strategy.outputs, strict=True))
        for name in op.saved:
            if name in state_of:
                mark(kept, name, state_of[name])
    for name, state in made.items():
        mark(here, name, state)
    for name, states in needed.items():
        if name not in graph.tensors:
            continue
        if name not in made:
            for state in states:
                if state != "O" or "H" not in states:
                    mark(here, name, state)
            continue
        # the halo of a closed part is empty: O and H are one
        for step in way(transitions(graph.tensors[name], graph.axes), made[name], states) or ():
            if {step.source, step.target} != {"O", "H"}:
                mark(here, name, step.target)
    return here, kept


def stage_graph(graph: OpGraph, ops: Collection[int], sent: Sequence[str]) -> OpGraph:
    """The part of a program that one stage runs; its outputs are what it sends and what the program returns."""
    own = tuple(op for op in graph.ops if op.index in ops)
    names = dict.fromkeys(name for op in own for name in (*op.inputs, *op.outputs))
    made = {name for op in own for name in op.outputs}
    outputs = dict.fromkeys((*sent, *(name for name in graph.outputs if name in made)))
    tensors = {name: graph.tensors[name] for name in names if name in graph.tensors}
    return replace(graph, ops=own, tensors=tensors, outputs=tuple(outputs))


def stage_sheet(
    graph: OpGraph,
    strategies: Mapping[int, OpStrategy],
    stats: GraphStats,
    group: Group,
    parts: Sequence[int],
    in_flight: int,
    static: StaticMemory,
    received: Mapping[str, bool],
    under_way: float,
    capacity: float | None,
    head_room: float,
    *,
    training: bool,
) -> MemorySheet:
    """The sheet of one rank, where its memory is at its highest.

    The micro-batch that needs most is at its peak while the largest others that can be in flight are kept; or the optimizer's
    update is, when all micro-batches are done.

    Args:
        graph: what the stage runs (`stage_graph`).
        strategies: of its ops.
        stats: sizes of the batch.
        group: as many ranks as the batch has parts, with the batch's closed partition (one rank and none for one part).
        parts: those of this rank, all of whose inputs it holds.
        in_flight: the most micro-batches whose activations are held at one time.
        static: parameters of the stage with gradients and optimizer state.
        received: tensors that other stages make -> whether a gradient goes back (kept until then).
        under_way: bytes of what has been sent and not yet arrived while the next micro-batch is computed.
        capacity: of the device.
        head_room: share that stays free.
        training: whether there is a backward.
    """
    passes = replace(static, update=0.0)
    model = memory_model(graph, stats, group, passes, training=training)
    if not model.units:
        room = head_room * (
            capacity if capacity is not None else static.total + static.update + under_way
        )
        return MemorySheet(
            static.weights,
            static.gradients,
            static.optimizer,
            0.0,
            0.0,
            0.0,
            static.update,
            under_way,
            room,
            capacity,
        )
    present, saved = presence(graph, strategies, model)
    first, savers = model.first.copy(), model.first_saver.copy()
    for (name, _), unit in model.unit_of.items():
        if name in received:
            # it is there before the first op, and its gradient is what remains at the end
            first[unit] = 0
            if received[name] and present[unit]:
                saved[unit] = True
                savers[unit] = 0
    model = replace(model, first=first, first_saver=savers)
    own = np.array(parts)
    kept = (saved | (model.output & present & model.gradient)) & ~model.resident
    flying = (model.bytes[:, own] * kept[:, None]).sum(axis=0)
    columns = list(model.usage(present, saved, (0.0,) * group.size).values())
    peaks = np.max([column.max(axis=0) for column in columns], axis=0)[own]
    worst = int(np.argmax(peaks - flying)) if in_flight >= len(own) else int(np.argmax(peaks))
    others = [p for p in np.argsort(-flying, kind="stable") if p != worst][: max(0, in_flight - 1)]
    sheet = model.sheets(present, saved, (0.0,) * group.size, (capacity,) * group.size, head_room)[
        parts[worst]
    ]
    share = (model.bytes[:, own[others]] * kept[:, None]).sum(axis=1)
    resident = model.resident & present
    elsewhere = [p for p in range(len(own)) if p != worst]
    split = np.array([state in ("O", "H") for _, state in model.units])
    inputs = float((model.bytes[:, own[elsewhere]] * (resident & split)[:, None]).sum())
    if group.partition is not None:
        # every part knows the ids of its rows
        inputs += sum(
            ROW_ID_BYTES * sum(group.partition.shards[part].owned_rows.values()) for part in parts
        )
    filled = replace(
        sheet,
        activations=sheet.activations + float(share[~model.edge].sum()),
        messages=sheet.messages + float(share[model.edge].sum()),
        inputs=sheet.inputs + inputs,
        buffers=under_way,
    )
    updating = replace(filled, activations=0.0, messages=0.0, transient=static.update, buffers=0.0)
    most = max(filled, updating, key=lambda each: each.peak)
    room = head_room * (capacity if capacity is not None else most.peak)
    return replace(most, head_room=room)
