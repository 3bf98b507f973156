"""One candidate's problem as frozen data: choices per block, tensors with their transitions, memory. Numbers only.

A *block* is a run of ops that is decided together (one op each, until `search.blocks` contracts them). It takes exactly one
of its *choices*. A choice needs tensors in states, gives tensors in states and keeps tensors for backward. A tensor is
present in a state when its producer gives it, when a *move* (a transition, at most once per step) brings it there from a
state it is present in, or when it is loaded: tensors that no op produces are loaded in any of their states for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoplan.graphstats import GraphStats
from autoplan.opgraph import Op, OpGraph, OpStrategy, State
from autoplan.pricing.group import Group
from autoplan.pricing.memory import MemoryModel
from autoplan.pricing.moves import PricedMove, price_moves
from autoplan.pricing.table import CostTable, Pricer
from autoplan.states import transitions

Need = tuple[int, State]
"""A tensor (its position in ``Problem.tensors``) in a state."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a block.

    Attributes:
        picks: (op index, strategy name) of its ops. seconds: of the slowest rank, inner moves included.
        needs, gives: tensors that come from and go to other blocks. saves: kept for backward, in the state it has them in.
        inner: moves (tensor, position in its ``moves``) inside the block.
        sharded: some op that does work runs on less than all rows.
    """

    picks: tuple[tuple[int, str], ...]
    seconds: float
    needs: tuple[Need, ...]
    gives: tuple[Need, ...]
    saves: tuple[Need, ...] = ()
    inner: tuple[tuple[int, int], ...] = ()
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A transition that a tensor may take. ``buffer_bytes``: per rank, while it sends; empty means none."""

    source: State
    target: State
    seconds: float
    buffer_bytes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: what it may do. ``loadable``: states it can be loaded in (no op produces it), else empty."""

    name: str
    moves: tuple[Move, ...] = ()
    loadable: tuple[State, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Everything the solvers see.

    Attributes:
        blocks: the choices of each block. tensors: by position.
        required: what the program's outputs must end in (the loss: R).
        memory: units and liveness, or None where memory does not matter.
        limits: bytes each rank may use (head-room taken off), None where unlimited.
        fixed_seconds: paid by every solution.
        priced: every tensor's moves with their payloads, parallel to ``Tensor.moves``; empty in hand-made problems.
    """

    blocks: tuple[tuple[Choice, ...], ...]
    tensors: tuple[Tensor, ...]
    required: tuple[Need, ...] = ()
    memory: MemoryModel | None = None
    limits: tuple[float | None, ...] = (None,)
    fixed_seconds: float = 0.0
    priced: tuple[tuple[PricedMove, ...], ...] = ()

    @property
    def limited(self) -> bool:
        """Whether some rank's memory is bounded."""
        return self.memory is not None and any(limit is not None for limit in self.limits)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A solution: a choice per block, and the moves between blocks (tensor, position in its ``moves``)."""

    choices: tuple[int, ...]
    moves: tuple[tuple[int, int], ...]


class NoChoice(Exception):  # noqa: N818  (an answer, not an error of the user)
    """An op that no strategy is left for; the message names it."""


def build_problem(
    graph: OpGraph,
    stats: GraphStats,
    group: Group,
    table: CostTable,
    pricer: Pricer,
    memory: MemoryModel,
    *,
    training: bool,
    denied: Mapping[int, frozenset[str]],
    limits: Sequence[float | None],
    fixed_seconds: float,
) -> Problem:
    """The problem of one group, one op a block.

    Raises:
        NoChoice: an op has no strategy whose inputs can be brought into the states it needs.
        DeviceError: a transition cannot be priced.
    """
    names = list(graph.tensors)
    position = {name: index for index, name in enumerate(names)}
    allowed = reachable_strategies(graph, group, denied)
    priced: list[tuple[PricedMove, ...]] = []
    tensors: list[Tensor] = []
    for name in names:
        tensor = graph.tensors[name]
        produced = tensor.origin == "op"
        moves: tuple[PricedMove, ...] = ()
        if produced and group.size > 1:
            moves = price_moves(tensor, graph, stats, group, pricer, training=training)
        priced.append(moves)
        tensors.append(
            Tensor(
                name,
                tuple(
                    Move(m.transition.source, m.transition.target, m.price.seconds, m.buffer_bytes)
                    for m in moves
                ),
                () if produced else tensor.states,
            )
        )
    blocks = tuple(
        tuple(_choice(op, strategy, position, table) for strategy in allowed[op.index])
        for op in graph.ops
    )
    return Problem(
        blocks,
        tuple(tensors),
        tuple((position[name], "R") for name in required_whole(graph)),
        memory,
        tuple(limits),
        fixed_seconds,
        tuple(priced),
    )


def required_whole(graph: OpGraph) -> tuple[str, ...]:
    """Outputs that must end in R: the loss, and whatever could otherwise end as a partial sum."""
    outputs = dict.fromkeys(name for name in graph.outputs if name in graph.tensors)
    loss = graph.outputs[0] if graph.has_loss else None
    return tuple(n for n in outputs if n == loss or "S" in graph.tensors[n].states)


def _choice(op: Op, strategy: OpStrategy, position: Mapping[str, int], table: CostTable) -> Choice:
    needs: dict[Need, None] = {}
    state_of: dict[str, State] = {}
    for name, state in zip(op.inputs, strategy.inputs, strict=True):
        if name in position:
            needs[position[name], state] = None
            state_of.setdefault(name, state)
    gives: dict[Need, None] = {}
    for name, state in zip(op.outputs, strategy.outputs, strict=True):
        gives[position[name], state] = None
        state_of[name] = state
    saves = tuple((position[name], state_of[name]) for name in op.saved if name in state_of)
    return Choice(
        picks=((op.index, strategy.name),),
        seconds=table.ops[op.index, strategy.name].seconds,
        needs=tuple(needs),
        gives=tuple(gives),
        saves=saves,
        sharded=strategy.rows != "R" and op.forward.kind != "view",
    )


def reachable_strategies(
    graph: OpGraph, group: Group, denied: Mapping[int, frozenset[str]]
) -> dict[int, tuple[OpStrategy, ...]]:
    """Per op, the strategies that are not denied and whose inputs somebody can bring into the needed states.

    Raises:
        NoChoice: none is left for some op.
    """
    present: dict[str, dict[State, None]] = {}
    moves = {}
    for name, tensor in graph.tensors.items():
        moves[name] = transitions(tensor, graph.axes) if group.size > 1 else ()
        if tensor.origin != "op":
            present[name] = dict.fromkeys(tensor.states)
    allowed: dict[int, tuple[OpStrategy, ...]] = {}
    # single assignment in program order: whoever produces an input has been seen
    for op in graph.ops:
        usable = []
        for strategy in op.strategies:
            if group.size == 1 and strategy.name != "R":
                continue
            if strategy.name in denied.get(op.index, frozenset()):
                continue
            wanted = zip(op.inputs, strategy.inputs, strict=True)
            if all(n not in graph.tensors or s in present.get(n, {}) for n, s in wanted):
                usable.append(strategy)
        if not usable:
            raise NoChoice(
                f"no strategy is left for op {op.index} ({op.name} in {op.module or 'the model'}, {op.where})"
            )
        allowed[op.index] = tuple(usable)
        for place, name in enumerate(op.outputs):
            states = dict.fromkeys(strategy.outputs[place] for strategy in usable)
            grown = True
            while grown:
                grown = False
                for move in moves[name]:
                    if move.source in states and move.target not in states:
                        states[move.target] = None
                        grown = True
            present[name] = states
    return allowed
