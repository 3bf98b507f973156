"""Stage assignments for tests: any wish, raised until it breaks no rule."""

from __future__ import annotations

import random
from collections.abc import Mapping

from autoplan.opgraph import OpGraph
from autoplan.stages import together


def raised(graph: OpGraph, wish: Mapping[int, int]) -> dict[int, int]:
    """The least assignment above the wish that is monotone and cuts no group, stages numbered anew from 0."""
    stage = dict(wish)
    groups = together(graph)
    before = None
    while before != stage:
        before = dict(stage)
        made: dict[str, int] = {}
        for op in graph.ops:
            read = [made[name] for name in op.inputs if name in made]
            read += [stage[number] for number in op.numbers]
            stage[op.index] = max([stage[op.index], *read])
            made.update((name, stage[op.index]) for name in op.outputs)
        for group in groups:
            stage.update(dict.fromkeys(group, max(stage[op] for op in group)))
    number = {old: new for new, old in enumerate(sorted(set(stage.values())))}
    return {op: number[old] for op, old in stage.items()}


def even(graph: OpGraph, stages: int) -> dict[int, int]:
    """Runs of equally many ops."""
    count = len(graph.ops)
    return raised(graph, {op.index: k * stages // count for k, op in enumerate(graph.ops)})


def scattered(graph: OpGraph, stages: int, seed: int) -> dict[int, int]:
    """Ops anywhere, later ones more likely in later stages."""
    generator = random.Random(seed)
    count = len(graph.ops)
    wish = {
        op.index: min(stages - 1, int(stages * k / count + generator.uniform(-1, 0.5)))
        for k, op in enumerate(graph.ops)
    }
    return raised(graph, {op: max(0, stage) for op, stage in wish.items()})
