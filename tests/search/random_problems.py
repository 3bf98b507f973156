"""Random small problems with the real transitions, memory included: what the solvers are compared on."""

from __future__ import annotations

import numpy as np

from autoplan.opgraph import State
from autoplan.pricing.memory import MemoryModel, StaticMemory
from autoplan.search.problem import Choice, Move, Place, Problem, Read, Tensor
from autoplan.states import Transition

NODE = (("R", "O"), ("R", "H"), ("H", "O"), ("O", "H"), ("O", "R"))
EDGE = (("R", "O"), ("O", "R"))
PARTIAL = (("S", "R"),)
RANKS = 2


def random_problem(seed: int, ops: int = 5, tight: float | None = None) -> Problem:
    """A chain-like program with side branches.

    Args:
        seed: of everything.
        ops: number of blocks.
        tight: memory limit as a share of what the most greedy assignment needs; None: no limit.
    """
    rng = np.random.default_rng(seed)
    tensors: list[Tensor] = [Tensor("x", (), ("R", "O", "H")), Tensor("w", (), ("R",))]
    kinds: list[tuple[State, ...]] = [("R", "O", "H"), ("R",)]
    blocks = []
    for op in range(ops):
        sources = [
            int(t) for t in rng.choice(len(tensors), size=min(2, len(tensors)), replace=False)
        ]
        if op and len(tensors) - 1 not in sources:
            sources[0] = len(tensors) - 1
        pairs, states = [
            (NODE, ("R", "O", "H")),
            (NODE, ("R", "O", "H")),
            (EDGE, ("R", "O")),
            (PARTIAL, ("R", "S")),
        ][int(rng.integers(4))]
        moves = tuple(
            Move(
                Transition(source, target, "none"),  # type: ignore[arg-type]
                float(rng.integers(0, 6)),
                float(rng.integers(0, 4)),
                (float(rng.integers(0, 64)) * 4096,) * RANKS,
            )
            for source, target in pairs
        )
        out = len(tensors)
        tensors.append(Tensor(f"t{op}", moves))
        kinds.append(states)  # type: ignore[arg-type]
        choices = []
        for number in range(int(rng.integers(1, 5))):
            reads = {}
            for source in sources:
                state = "R" if number == 0 else str(rng.choice(kinds[source]))
                reads[Place(source, state)] = bool(rng.integers(2))  # type: ignore[arg-type]
            given = "R" if number == 0 else str(rng.choice(states))
            saved = [place for place in reads if rng.integers(2) and place.tensor > 1]
            choices.append(
                Choice(
                    ((op, f"k{number}"),),
                    float(rng.integers(1, 12)),
                    tuple(Read(*place, crosses) for place, crosses in reads.items()),
                    (Place(out, given),),  # type: ignore[arg-type]
                    tuple(saved),
                    sharded=given != "R",
                )
            )
        blocks.append(tuple(choices))
    problem = Problem(
        tuple(blocks),
        tuple(tensors),
        (Read(len(tensors) - 1, "R", True),),
        _memory(rng, tensors, kinds, blocks),
        (None,) * RANKS,
        float(rng.integers(0, 3)),
    )
    if tight is None:
        return problem
    memory = problem.memory
    assert memory is not None
    everything = np.ones(len(memory.units), dtype=bool)
    usage = memory.usage(everything, everything, (0.0,) * RANKS)
    most = max(float(array.max()) for array in usage.values())
    return Problem(
        problem.blocks,
        problem.tensors,
        problem.required,
        memory,
        (most * tight,) * RANKS,
        problem.fixed_seconds,
    )


def _memory(
    rng: np.random.Generator,
    tensors: list[Tensor],
    kinds: list[tuple[State, ...]],
    blocks: list[tuple[Choice, ...]],
) -> MemoryModel:
    units = [(t.name, s) for t, states in zip(tensors, kinds, strict=True) for s in states]
    count = len(units)
    names = [tensor.name for tensor in tensors]
    made = {"x": 0, "w": 0, **{f"t{op}": op for op in range(len(blocks))}}
    last = dict(made)
    saver = dict.fromkeys(names, len(blocks))
    for op, choices in enumerate(blocks):
        for choice in choices:
            for read in choice.reads:
                last[names[read.tensor]] = op
            for place in choice.saves:
                saver[names[place.tensor]] = min(saver[names[place.tensor]], op)
    sizes = rng.integers(1, 64, (count, RANKS)) * 16384.0
    for number, (name, state) in enumerate(units):
        if state == "H":
            # owned and halo rows are no fewer than owned rows
            sizes[number] += sizes[units.index((name, "O"))]
    return MemoryModel(
        units=tuple(units),
        unit_of={unit: number for number, unit in enumerate(units)},
        bytes=sizes,
        first=np.array([made[name] for name, _ in units]),
        last=np.array([last[name] for name, _ in units]),
        first_saver=np.array([saver[name] for name, _ in units]),
        gradient=rng.integers(0, 2, count).astype(bool),
        edge=np.zeros(count, dtype=bool),
        resident=np.array([name in ("x", "w") for name, _ in units]),
        output=np.array([name == names[-1] for name, _ in units]),
        points=len(blocks),
        static=StaticMemory(1e5, 1e5, 0.0),
        training=True,
    )


def followers(problem: Problem) -> dict[int, int]:
    """Every block follows the last tensor it reads, whatever that costs."""
    found = {}
    for block, choices in enumerate(problem.blocks):
        made = [r.tensor for r in choices[0].reads if not problem.tensors[r.tensor].loadable]
        if made:
            found[block] = max(made)
    return found
