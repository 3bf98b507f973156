"""The problem of cutting a program into stages as frozen data, and what an assignment of blocks to stages comes to.

A *block* is a set of ops that share a stage. Stage s is a kind of worker with a limit of memory; tensors that another
stage makes arrive over its link, and their gradients go back. Numbers only: of one micro-batch where it is time, of all
that a stage holds where it is memory.

    tau[s]   = forward and backward of its blocks + what it receives + gradients it sends back
    seconds  = sum of tau + weight * max of tau,  weight = m - 1, or `BALANCE` where m is 1
    bytes[s] = what its blocks hold (parameters with gradients and optimizer state, graph attributes)
               + what micro-batches in flight keep until backward + what arrives + the largest transient of a block,
               or, if that is more, what its blocks hold + temporaries of the update
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BALANCE = 1.0
"""With one micro-batch stages wait for each other whatever their sizes, and stages of next to nothing would send least. They
are there to share out memory: the slowest counts as often as with two micro-batches."""


@dataclass(frozen=True, slots=True)
class Message:
    """A tensor that crosses wherever its maker and a reader have different stages; once per stage that reads it.

    Attributes:
        name: of the tensor; maker: block; readers: other blocks that read it, in order; bytes: of one micro-batch.
        gradient: those readers that pass a gradient back. unit: position of its storage in ``StageProblem.units``.
    """

    name: str
    maker: int
    readers: tuple[int, ...]
    bytes: float
    gradient: tuple[int, ...] = ()
    unit: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """A storage that may be kept for backward. ``savers``: blocks that keep it, in order."""

    name: str
    savers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Something a stage holds throughout because blocks of it read it.

    Attributes:
        name: of the parameter, buffer or graph attribute; readers: blocks.
        bytes: with gradient and optimizer state.
        update: temporaries while it is updated, of which the most of one counts.
        together: temporaries while everything is updated in one call: of all at once.
    """

    name: str
    bytes: float
    readers: tuple[int, ...]
    update: float = 0.0
    together: float = 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """The devices of one stage.

    Attributes:
        kind: row of ``StageProblem.seconds``. bytes_per_s: of the link that messages arrive over.
        overhead: seconds of each micro-batch whatever it receives: the latency of one message, and of what goes back.
        limit: bytes it may use, None: any.
    """

    kind: int
    overhead: float
    bytes_per_s: float
    limit: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StageProblem:
    """Everything the solvers see.

    Attributes:
        blocks: [B] op indices of each block, blocks in an order in which makers come before readers.
        seconds: [K, B] forward and backward of one micro-batch on each kind of worker.
        messages, units, held: what blocks exchange, keep and hold. after: (a, b) for b that may not come in an earlier stage
            than a, besides makers and readers of messages.
        kept: [S, U] bytes of each unit for all micro-batches in flight of stage s.
        transient: [B] bytes that live only while a block runs.
        slots: one per stage. micro_batches: m.
    """

    blocks: tuple[tuple[int, ...], ...]
    seconds: FloatArray
    messages: tuple[Message, ...]
    units: tuple[Unit, ...]
    held: tuple[Held, ...]
    after: tuple[tuple[int, int], ...]
    kept: FloatArray
    transient: FloatArray
    slots: tuple[Slot, ...]
    micro_batches: int

    @property
    def weight(self) -> float:
        """How often the slowest stage counts besides."""
        return self.micro_batches - 1 if self.micro_batches > 1 else BALANCE

    @property
    def limited(self) -> bool:
        """Whether some stage's memory is bounded."""
        return any(slot.limit is not None for slot in self.slots)


@dataclass(frozen=True, slots=True)
class StageEvaluation:
    """What an assignment comes to.

    Attributes:
        tau: [S] seconds of one micro-batch, forward and backward. bytes: [S].
        seconds: of the step, without gradient sums and update, by the closed form above.
        faults: why it is no solution (memory aside); excess: [S] bytes above the limit, never negative.
    """

    tau: tuple[float, ...]
    bytes: tuple[float, ...]
    seconds: float
    faults: tuple[str, ...]
    excess: tuple[float, ...]

    @property
    def fits(self) -> bool:
        """Whether every stage stays within its limit, up to rounding."""
        return not any(self.excess)


def evaluate_stages(problem: StageProblem, stage_of: Sequence[int]) -> StageEvaluation:
    """Check one assignment (the stage of each block) and price it."""
    count = len(problem.slots)
    tau = [slot.overhead for slot in problem.slots]
    held, arrived, transient = [0.0] * count, [0.0] * count, [0.0] * count
    update, together = [0.0] * count, [0.0] * count
    faults = []
    for block, stage in enumerate(stage_of):
        tau[stage] += float(problem.seconds[problem.slots[stage].kind, block])
        transient[stage] = max(transient[stage], float(problem.transient[block]))
    for stage in range(count):
        if stage not in stage_of:
            faults.append(f"stage {stage} is empty")
    kept: list[dict[int, None]] = [{} for _ in range(count)]
    for number, unit in enumerate(problem.units):
        for block in unit.savers:
            kept[stage_of[block]][number] = None
    for message in problem.messages:
        source = stage_of[message.maker]
        for stage in dict.fromkeys(stage_of[reader] for reader in message.readers):
            if stage < source:
                faults.append(f"{message.name} is made in stage {source} and read in {stage}")
            if stage == source:
                continue
            gradient = any(stage_of[reader] == stage for reader in message.gradient)
            once = message.bytes / problem.slots[stage].bytes_per_s
            tau[stage] += once * (2 if gradient else 1)
            arrived[stage] += message.bytes
            if gradient and message.unit is not None:
                kept[source][message.unit] = None
                kept[stage][message.unit] = None
    for first, second in problem.after:
        if stage_of[second] < stage_of[first]:
            faults.append(f"block {second} comes before block {first}")
    for each in problem.held:
        for stage in dict.fromkeys(stage_of[reader] for reader in each.readers):
            held[stage] += each.bytes
            update[stage] = max(update[stage], each.update)
            together[stage] += each.together
    used = tuple(
        held[stage]
        + max(
            arrived[stage]
            + transient[stage]
            + sum(float(problem.kept[stage, unit]) for unit in sorted(kept[stage])),
            update[stage] + together[stage],
        )
        for stage in range(count)
    )
    return StageEvaluation(
        tuple(tau),
        used,
        sum(tau) + problem.weight * max(tau),
        tuple(faults),
        tuple(
            0.0 if slot.limit is None or size <= slot.limit * (1 + 1e-9) + 16 else size - slot.limit
            for slot, size in zip(problem.slots, used, strict=True)
        ),
    )


def op_stages(problem: StageProblem, stage_of: Iterable[int]) -> dict[int, int]:
    """Op index -> stage."""
    return {op: stage for ops, stage in zip(problem.blocks, stage_of, strict=True) for op in ops}
