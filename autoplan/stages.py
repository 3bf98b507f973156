"""Cutting a program into stages: which ops must stay together, and what crosses from one stage to another. No torch.

A stage assignment gives every op a stage such that what an op reads was made in its own or an earlier stage. Graph
attributes, parameters and buffers are loaded by each stage that reads them; constants are made anew; everything else that
a later stage reads crosses: activations, skips, integers, masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoplan.opgraph import OpGraph, OpStrategy, State


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
    inputs_of = {op.index: op.inputs for op in graph.ops}
    for op in graph.ops:
        stage = stage_of[op.index]
        # a number read from a tensor is read again where it is needed
        read = [name for number in op.numbers for name in inputs_of[number]]
        for name in dict.fromkeys((*op.inputs, *read)):
            if name not in made or made[name][0] == stage:
                continue
            source, state = made[name]
            before = found.get((name, stage))
            gradient = name in op.differentiates or (before is not None and before.gradient)
            found[name, stage] = Crossing(name, state, source, stage, gradient)
        strategy = strategies[op.index]
        for name, state in zip(op.outputs, strategy.outputs, strict=True):
            made[name] = (stage, state)
    order = {name: position for position, name in enumerate(made)}
    return tuple(sorted(found.values(), key=lambda c: (order[c.tensor], c.target)))
