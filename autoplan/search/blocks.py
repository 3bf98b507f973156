"""Contraction: a cheap op follows its heaviest input, so that the solver decides fewer blocks.

What is merged: op b into the block a that produces b's heaviest input t, where b is of a cheap kind (view, elementwise,
random) and t has no other reader and is not an output. The merged block's choices are all pairs, with the cheapest moves
of t in between (t belongs to the block alone, so that elimination is exact). Then choices are dropped that another one
dominates: at most as many seconds after paying the moves that turn what it needs and gives into what the dropped one
needs and gives. A solution that uses the dropped choice becomes, by the exchange, one at most as expensive.

Condition: the optimum in *seconds* is kept, always. Memory is not looked at: a dominating choice may hold more. So the
search uses a contracted problem only without limits, and accepts its solution under limits only when the expanded solution
fits; otherwise the uncontracted problem is solved (see `search.ilp.optimise`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoplan.opgraph import OpGraph, State
from autoplan.search.problem import Assignment, Choice, Need, Problem
from autoplan.search.routes import distance, route_seconds, routes

CHEAP = frozenset({"view", "elementwise", "random"})
MOST_CHOICES = 12
"""A merge that would leave more choices than this is not made."""


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """A smaller problem, and the way back."""

    problem: Problem
    original: Problem

    def expand(self, assignment: Assignment) -> Assignment:
        """The same solution of the original problem."""
        number_of: dict[tuple[int, str], tuple[int, int]] = {}
        for block, choices in enumerate(self.original.blocks):
            for number, choice in enumerate(choices):
                number_of[choice.picks[0]] = (block, number)
        numbers = [0] * len(self.original.blocks)
        moves = list(assignment.moves)
        for merged, chosen in enumerate(assignment.choices):
            choice = self.problem.blocks[merged][chosen]
            moves += choice.inner
            for pick in choice.picks:
                block, number = number_of[pick]
                numbers[block] = number
        return Assignment(tuple(numbers), tuple(sorted(moves)))


def contract(problem: Problem, followers: Mapping[int, int]) -> Contraction:
    """Merge blocks.

    Args:
        problem: one op a block.
        followers: block -> the tensor it follows (see `heaviest_inputs`).
    """
    blocks: dict[int, tuple[Choice, ...]] = dict(enumerate(problem.blocks))
    home = list(range(len(problem.blocks)))
    producer: dict[int, int] = {}
    readers: dict[int, dict[int, None]] = {}
    for block, choices in enumerate(problem.blocks):
        for choice in choices:
            for tensor, _ in choice.gives:
                producer[tensor] = block
            for tensor, _ in choice.needs:
                readers.setdefault(tensor, {})[block] = None
    outputs = {tensor for tensor, _ in problem.required}
    for block, tensor in followers.items():
        if tensor not in producer or tensor in outputs or list(readers[tensor]) != [block]:
            continue
        leader = home[producer[tensor]]
        merged = _merge(problem, blocks[leader], blocks[block], tensor)
        if len(merged) > MOST_CHOICES or not merged:
            continue
        blocks[leader] = merged
        del blocks[block]
        home = [leader if place == block else place for place in home]
    pruned = tuple(undominated(problem, choices) for choices in blocks.values())
    smaller = replace(problem, blocks=pruned, memory=None, limits=(None,) * len(problem.limits))
    return Contraction(smaller, problem)


def heaviest_inputs(graph: OpGraph, problem: Problem, sizes: Mapping[str, float]) -> dict[int, int]:
    """Block -> the heaviest produced input (by ``sizes`` in bytes) of each cheap op."""
    position = {tensor.name: index for index, tensor in enumerate(problem.tensors)}
    followers: dict[int, int] = {}
    for block, op in enumerate(graph.ops):
        if op.forward.kind not in CHEAP:
            continue
        produced = [
            n for n in op.inputs if n in position and not problem.tensors[position[n]].loadable
        ]
        if produced:
            followers[block] = position[max(produced, key=lambda name: sizes[name])]
    return followers


def _merge(
    problem: Problem, leaders: tuple[Choice, ...], follows: tuple[Choice, ...], tensor: int
) -> tuple[Choice, ...]:
    """All pairs with the cheapest moves of the tensor between them, undominated ones only."""
    moves = problem.tensors[tensor].moves
    between: dict[tuple[tuple[State, ...], tuple[State, ...]], tuple[int, ...] | None] = {}
    pairs = []
    for first in leaders:
        given = tuple(state for t, state in first.gives if t == tensor)
        for second in follows:
            wanted = tuple(state for t, state in second.needs if t == tensor)
            if (given, wanted) not in between:
                found = routes(moves, given, wanted)
                between[given, wanted] = found[0] if found else None
            route = between[given, wanted]
            if route is None:
                continue
            needs = dict.fromkeys(
                (*first.needs, *(need for need in second.needs if need[0] != tensor))
            )
            pairs.append(
                Choice(
                    picks=(*first.picks, *second.picks),
                    seconds=first.seconds + second.seconds + route_seconds(moves, route),
                    needs=tuple(need for need in needs if need not in first.gives),
                    gives=(*(g for g in first.gives if g[0] != tensor), *second.gives),
                    inner=(*first.inner, *second.inner, *((tensor, m) for m in route)),
                    sharded=first.sharded or second.sharded,
                )
            )
    return undominated(problem, tuple(pairs))


def undominated(problem: Problem, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Choices that no other one replaces at no more seconds; of equals the first stays."""
    kept: list[Choice] = []
    for number, choice in enumerate(choices):
        rivals = [*kept, *choices[number + 1 :]]
        if not any(
            _replaces(problem, rival, choice, strictly=place >= len(kept))
            for place, rival in enumerate(rivals)
        ):
            kept.append(choice)
    return tuple(kept)


def _replaces(problem: Problem, rival: Choice, choice: Choice, *, strictly: bool) -> bool:
    if rival.sharded != choice.sharded:
        return False
    seconds = rival.seconds
    if seconds > choice.seconds:
        return False
    # what is there for the dropped choice must become what the rival needs; what the rival gives, what the other gave
    for have, want in ((choice.needs, rival.needs), (rival.gives, choice.gives)):
        start, goal = _by_tensor(have), _by_tensor(want)
        if start.keys() != goal.keys():
            return False
        for tensor, states in start.items():
            seconds += _conversion(problem, tensor, states, goal[tensor])
            if seconds > choice.seconds:
                return False
    return seconds < choice.seconds if strictly else seconds <= choice.seconds


def _by_tensor(needs: tuple[Need, ...]) -> dict[int, tuple[State, ...]]:
    found: dict[int, tuple[State, ...]] = {}
    for tensor, state in needs:
        found[tensor] = (*found.get(tensor, ()), state)
    return found


def _conversion(
    problem: Problem, tensor: int, have: tuple[State, ...], want: tuple[State, ...]
) -> float:
    """At most these seconds bring a tensor from the states it is in to all wanted ones."""
    return sum(min(distance(problem, tensor, s, w) for s in have) for w in want)
