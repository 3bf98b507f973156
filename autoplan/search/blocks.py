"""Contraction: a cheap op follows its heaviest input, so that the solver decides fewer blocks.

What is merged: op b into the block a that makes b's heaviest input t, where b is of a cheap kind (view, elementwise,
random) and t has no other reader and is not an output. The merged block's choices are all pairs, with the moves of t in
between paid for (t belongs to the block alone, so that elimination is exact). Then choices are dropped that another one
dominates: at most as many seconds, even after paying at most what the rest of the problem may lose when the block reads and
gives in the other's states (`routes.Routes`). A solution that uses the dropped choice
becomes, by the exchange, one at most as expensive.

Condition: the optimum in *seconds* is kept, always. Memory is not looked at: a dominating choice may hold more. So the
search uses a contracted problem only without limits, and accepts its solution under limits only when the expanded solution
fits; otherwise the uncontracted problem is solved (see `search.optimise`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoplan.opgraph import OpGraph, State
from autoplan.search.problem import Choice, Place, Problem, Read
from autoplan.search.routes import Reads, Routes

CHEAP = frozenset({"view", "elementwise", "random"})
MOST_CHOICES = 12
"""A merge that would leave more choices than this is not made."""


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """A smaller problem, and the way back."""

    problem: Problem
    original: Problem

    def expand(self, choices: Sequence[int]) -> tuple[int, ...]:
        """The same assignment of the original problem."""
        number_of = {
            choice.picks[0]: (block, number)
            for block, options in enumerate(self.original.blocks)
            for number, choice in enumerate(options)
        }
        numbers = [0] * len(self.original.blocks)
        for merged, chosen in enumerate(choices):
            for pick in self.problem.blocks[merged][chosen].picks:
                block, number = number_of[pick]
                numbers[block] = number
        return tuple(numbers)


def heaviest_inputs(graph: OpGraph, problem: Problem, sizes: Mapping[str, float]) -> dict[int, int]:
    """Block -> the heaviest input (by ``sizes`` in bytes) that an op makes, for each cheap op."""
    position = {tensor.name: index for index, tensor in enumerate(problem.tensors)}
    followers: dict[int, int] = {}
    for block, op in enumerate(graph.ops):
        if op.forward.kind not in CHEAP:
            continue
        made = [n for n in op.inputs if n in position and not problem.tensors[position[n]].loadable]
        if made:
            followers[block] = position[max(made, key=lambda name: sizes[name])]
    return followers


def contract(problem: Problem, followers: Mapping[int, int]) -> Contraction:
    """Merge blocks.

    Args:
        problem: one op a block.
        followers: block -> the tensor it follows (see `heaviest_inputs`).
    """
    blocks: dict[int, tuple[Choice, ...]] = dict(enumerate(problem.blocks))
    home = list(range(len(problem.blocks)))
    maker: dict[int, int] = {}
    readers: dict[int, dict[int, None]] = {}
    for block, choices in enumerate(problem.blocks):
        for choice in choices:
            maker.update({place.tensor: block for place in choice.gives})
            for read in choice.reads:
                readers.setdefault(read.tensor, {})[block] = None
    outputs = {read.tensor for read in problem.required}
    routes = [Routes(tensor) for tensor in problem.tensors]
    for block, tensor in followers.items():
        if tensor not in maker or tensor in outputs or list(readers.get(tensor, {})) != [block]:
            continue
        leader = home[maker[tensor]]
        merged = _merge(routes, blocks[leader], blocks[block], tensor)
        if not merged or len(merged) > MOST_CHOICES:
            continue
        blocks[leader] = merged
        del blocks[block]
        home = [leader if place == block else place for place in home]
    pruned = tuple(undominated(routes, choices) for choices in blocks.values())
    smaller = replace(problem, blocks=pruned, memory=None, limits=(None,) * len(problem.limits))
    return Contraction(smaller, problem)


def _merge(
    routes: Sequence[Routes], leaders: tuple[Choice, ...], follows: tuple[Choice, ...], tensor: int
) -> tuple[Choice, ...]:
    """All pairs with the moves of the tensor between them paid for, undominated ones only."""
    pairs = []
    for first in leaders:
        made = next(place.state for place in first.gives if place.tensor == tensor)
        for second in follows:
            inner = tuple((r.state, r.crosses) for r in second.reads if r.tensor == tensor)
            between = routes[tensor].seconds(made, _sorted(inner))
            seconds = first.seconds + second.seconds + between
            if math.isinf(seconds):
                continue
            pairs.append(
                Choice(
                    picks=(*first.picks, *second.picks),
                    seconds=seconds,
                    reads=_joined(first.reads, [r for r in second.reads if r.tensor != tensor]),
                    gives=(*(g for g in first.gives if g.tensor != tensor), *second.gives),
                    sharded=first.sharded or second.sharded,
                )
            )
    return undominated(routes, tuple(pairs))


def _joined(first: Sequence[Read], second: Sequence[Read]) -> tuple[Read, ...]:
    merged: dict[Place, bool] = {}
    for read in (*first, *second):
        merged[read.place] = merged.get(read.place, False) or read.crosses
    return tuple(Read(*place, crosses) for place, crosses in merged.items())


def undominated(routes: Sequence[Routes], choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Choices that no other one replaces at no more seconds; of equals the first stays."""
    kept: list[Choice] = []
    for number, choice in enumerate(choices):
        if any(_excess(routes, rival, choice) <= 0 for rival in kept):
            continue
        if any(_excess(routes, rival, choice) < 0 for rival in choices[number + 1 :]):
            continue
        kept.append(choice)
    return tuple(kept)


def _excess(routes: Sequence[Routes], rival: Choice, choice: Choice) -> float:
    """At most so many seconds more when the rival takes the place of the choice."""
    if rival.sharded != choice.sharded or rival.seconds > choice.seconds:
        return math.inf
    excess = rival.seconds - choice.seconds
    before, after = _reads(choice), _reads(rival)
    made, given = dict(choice.gives), dict(rival.gives)
    if before.keys() != after.keys() or made.keys() != given.keys():
        return math.inf
    for tensor, reads in before.items():
        excess += routes[tensor].read_elsewhere(reads, after[tensor])
    for tensor, state in made.items():
        excess += routes[tensor].made_elsewhere(state, given[tensor])
    return excess


def _reads(choice: Choice) -> dict[int, Reads]:
    found: dict[int, tuple[tuple[State, bool], ...]] = {}
    for read in choice.reads:
        found[read.tensor] = (*found.get(read.tensor, ()), (read.state, read.crosses))
    return {tensor: _sorted(reads) for tensor, reads in found.items()}


def _sorted(reads: tuple[tuple[State, bool], ...]) -> Reads:
    return tuple(sorted(reads))
