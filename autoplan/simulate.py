"""The simulator: what a plan's chosen strategies and transitions come to in one step. Every candidate is priced here.

The model is serial: ops in program order, each as long as on its slowest rank (ranks wait for each other at every exchange, so
this is from above), exchanges in between, then backward in reverse, gradient synchronisation and the update, none of
them overlapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autoplan.opgraph import OpGraph
from autoplan.plan import MemorySheet, Prediction, Range
from autoplan.pricing.fixed import FixedCosts
from autoplan.pricing.moves import PricedMove
from autoplan.pricing.table import CostTable, Price

MEMORY_RANGE = (0.6, 1.6)
"""How far measured peaks may lie from the sheet's, as factors (assumed; temporaries inside kernels are not seen)."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happens in a step. ``start`` and ``seconds`` are of the whole group; backward is inside ``seconds``.

    Attributes:
        kind: ``op``, ``move``, ``synchronisation`` or ``optimizer``. name: of the op, or tensor and states. op: its index.
        compute, communication: what ``seconds`` is made of. per_rank: local work of each rank.
    """

    kind: Literal["op", "move", "synchronisation", "optimizer"]
    name: str
    op: int | None
    start: float
    seconds: float
    compute: float
    communication: float
    per_rank: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A prediction and the timeline it was added up from."""

    prediction: Prediction
    timeline: tuple[TimelineEntry, ...]


def simulate(
    graph: OpGraph,
    table: CostTable,
    choices: Mapping[int, str],
    moves: Sequence[tuple[PricedMove, bool]],
    fixed: FixedCosts,
    memory: Sequence[MemorySheet],
) -> Simulation:
    """Add up one step.

    Args:
        graph: the program.
        table: its prices on this group.
        choices: op index -> strategy name.
        moves: the transitions taken, each once, and whether a gradient crosses it.
        fixed: the end of the step.
        memory: one sheet per rank.
    """
    ranks = len(memory)
    entries: list[TimelineEntry] = []
    payload = [0] * ranks
    low = high = now = 0.0
    waiting: dict[str, list[tuple[PricedMove, bool]]] = {name: [] for name in graph.tensors}
    for move, crossed in moves:
        waiting[move.tensor].append((move, crossed))

    def add(
        kind: Literal["op", "move", "synchronisation", "optimizer"],
        name: str,
        op: int | None,
        price: Price,
    ) -> None:
        nonlocal low, high, now
        compute = price.seconds - price.communication
        entries.append(
            TimelineEntry(
                kind, name, op, now, price.seconds, compute, price.communication, price.per_rank
            )
        )
        now += price.seconds
        low += price.low
        high += price.high
        send((price.payload,) * ranks)
        send(price.exchanged)

    def send(sizes: Sequence[int]) -> None:
        for rank, size in enumerate(sizes):
            payload[rank] += size

    for op in graph.ops:
        add("op", op.name, op.index, table.ops[op.index, choices[op.index]])
        for output in op.outputs:
            for move, crossed in waiting[output]:
                step = f"{output} {move.transition.source}->{move.transition.target}"
                add("move", step, op.index, move.forward)
                send(move.forward_bytes)
                if crossed:
                    add("move", f"adjoint of {step}", op.index, move.backward)
                    send(move.backward_bytes)
    add("synchronisation", "gradients", None, fixed.synchronisation)
    add("optimizer", "update", None, fixed.optimizer)
    communication = sum(entry.communication for entry in entries)
    small, large = MEMORY_RANGE
    prediction = Prediction(
        step_seconds=Range(now, min(low, now), max(high, now)),
        peak_bytes=tuple(Range(s.peak, s.peak * small, s.peak * large) for s in memory),
        communication_bytes=tuple(payload),
        compute_seconds=now - communication,
        communication_seconds=communication,
    )
    return Simulation(prediction, tuple(entries))
