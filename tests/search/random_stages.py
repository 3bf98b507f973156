"""Random small problems of stages: what the dynamic and the integer programme are compared on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoplan.search.stage_problem import (
    Held,
    Message,
    Slot,
    StageProblem,
    Unit,
    evaluate_stages,
)

MIB = float(1 << 20)


def random_stages(
    seed: int,
    blocks: int = 6,
    stages: int = 3,
    micro_batches: int | None = None,
    *,
    chain: bool = False,
    tight: float | None = None,
) -> StageProblem:
    """Blocks that read earlier ones, tied parameters, skips, tensors that are kept.

    Args:
        seed: of everything.
        blocks: their number; stages, micro_batches: likewise (drawn where None).
        stages: see blocks.
        micro_batches: see blocks.
        chain: every block reads the one before, and nothing else.
        tight: limit of each stage, as a share of what all blocks on one stage need; None: none.
    """
    rng = np.random.default_rng(seed)
    messages, units = [], []
    for block in range(blocks):
        later = [b for b in range(block + 1, blocks) if b == block + 1 or rng.random() < 0.25]
        readers = tuple(later[:1] if chain else [b for b in later if rng.random() < 0.8])
        gradient = tuple(b for b in readers if rng.random() < 0.7)
        savers = tuple(sorted({b for b in (block, *readers) if rng.random() < 0.5}))
        units.append(Unit(f"t{block}", savers))
        if readers:
            size = float(rng.integers(1, 40)) * 1e5
            messages.append(Message(f"t{block}", block, readers, size, gradient, block))
    held = [
        Held(
            f"w{number}",
            float(rng.integers(1, 20)) * 1e5,
            tuple(sorted(map(int, rng.choice(blocks, size=rng.integers(1, 3), replace=False)))),
            update=float(rng.integers(0, 60)) * 1e5,
            together=float(rng.integers(0, 15)) * 1e5,
        )
        for number in range(blocks)
    ]
    kinds = int(rng.integers(1, 3))
    problem = StageProblem(
        blocks=tuple((block,) for block in range(blocks)),
        seconds=rng.integers(1, 30, (kinds, blocks)) * 1e-4,
        messages=tuple(messages),
        units=tuple(units),
        held=tuple(held),
        after=((0, blocks - 1),) if rng.random() < 0.3 and not chain else (),
        kept=rng.integers(0, 40, (stages, blocks)) * 1e5,
        transient=rng.integers(0, 20, blocks) * 1e5,
        slots=tuple(
            Slot(int(rng.integers(kinds)), float(rng.integers(0, 4)) * 1e-4 * (s > 0), 1e9)
            for s in range(stages)
        ),
        micro_batches=int(rng.integers(1, 7)) if micro_batches is None else micro_batches,
    )
    if tight is None:
        return problem
    everything = max(evaluate_stages(problem, (s,) * blocks).bytes[s] for s in range(stages))
    slots = tuple(replace(slot, limit=everything * tight) for slot in problem.slots)
    return replace(problem, slots=slots)
