"""One candidate's problem as frozen data: choices per block, tensors with their transitions, memory. Numbers only.

A *block* is a run of ops that is decided together (one op each, until `search.blocks` contracts them). It takes exactly one
of its *choices*. A choice reads tensors in states, gives tensors in states and keeps tensors for backward. A tensor is
present in the state its producer gives it, and in those that its *moves* (transitions, each at most once per step) bring it
to; which moves it takes follows from where it is given and read (`states.way`), as in the program that will run. Tensors
that no op produces are loaded in any of their states for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autoplan.graphstats import GraphStats
from autoplan.opgraph import Op, OpGraph, OpStrategy, State
from autoplan.pricing.group import Group
from autoplan.pricing.memory import MemoryModel
from autoplan.pricing.moves import PricedMove, price_moves
from autoplan.pricing.table import CostTable, Pricer
from autoplan.states import Transition


class Place(NamedTuple):
    """A tensor (its position in ``Problem.tensors``) in a state."""

    tensor: int
    state: State


class Read(NamedTuple):
    """A tensor that is read in a state; ``crosses``: a gradient of the loss goes back through this reader."""

    tensor: int
    state: State
    crosses: bool

    @property
    def place(self) -> Place:
        """Where it must be."""
        return Place(self.tensor, self.state)


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a block.

    Attributes:
        picks: (op index, strategy name) of its ops. seconds: of the slowest rank, moves inside the block included.
        reads, gives: tensors that come from and go to other blocks, a tensor once per state.
        saves: kept for backward, in the state the block has them in.
        sharded: some op that does work runs on less than all rows.
    """

    picks: tuple[tuple[int, str], ...]
    seconds: float
    reads: tuple[Read, ...]
    gives: tuple[Place, ...]
    saves: tuple[Place, ...] = ()
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A transition that a tensor may take.

    Attributes:
        transition: from where to where. seconds: of doing it; adjoint_seconds: of its backward, where a gradient crosses.
        buffer_bytes: per rank, while it sends; empty means none.
    """

    transition: Transition
    seconds: float
    adjoint_seconds: float = 0.0
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
        memory: units and liveness, or None where memory does not matter (it needs blocks of one op).
        limits: bytes each rank may use (head-room taken off), None where unlimited.
        fixed_seconds: paid by every solution.
        priced: every tensor's moves with their payloads, parallel to ``Tensor.moves``; empty in hand-made problems.
    """

    blocks: tuple[tuple[Choice, ...], ...]
    tensors: tuple[Tensor, ...]
    required: tuple[Read, ...] = ()
    memory: MemoryModel | None = None
    limits: tuple[float | None, ...] = (None,)
    fixed_seconds: float = 0.0
    priced: tuple[tuple[PricedMove, ...], ...] = ()

    @property
    def limited(self) -> bool:
        """Whether some rank's memory is bounded."""
        return self.memory is not None and any(limit is not None for limit in self.limits)


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
    rows = group.row_table(graph, stats)
    position = {name: index for index, name in enumerate(names)}
    allowed = reachable_strategies(graph, group, denied)
    priced: list[tuple[PricedMove, ...]] = []
    tensors: list[Tensor] = []
    for name in names:
        tensor = graph.tensors[name]
        produced = tensor.origin == "op"
        moves: tuple[PricedMove, ...] = ()
        if produced and group.size > 1:
            moves = price_moves(tensor, graph, rows, group, pricer)
        priced.append(moves)
        tensors.append(
            Tensor(
                name,
                tuple(
                    Move(m.transition, m.forward.seconds, m.backward.seconds, m.buffer_bytes)
                    for m in moves
                ),
                () if produced else tensor.states,
            )
        )
    blocks = tuple(
        tuple(_choice(op, strategy, position, table, training) for strategy in allowed[op.index])
        for op in graph.ops
    )
    return Problem(
        blocks,
        tuple(tensors),
        tuple(
            Read(position[name], "R", training and graph.tensors[name].reaches_loss)
            for name in required_whole(graph)
        ),
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


def _choice(
    op: Op, strategy: OpStrategy, position: Mapping[str, int], table: CostTable, training: bool
) -> Choice:
    reads: dict[Place, bool] = {}
    state_of: dict[str, State] = {}
    for name, state in zip(op.inputs, strategy.inputs, strict=True):
        if name in position:
            place = Place(position[name], state)
            crosses = training and name in op.differentiates
            reads[place] = reads.get(place, False) or crosses
            state_of.setdefault(name, state)
    gives: dict[Place, None] = {}
    for name, state in zip(op.outputs, strategy.outputs, strict=True):
        gives[Place(position[name], state)] = None
        state_of[name] = state
    return Choice(
        picks=((op.index, strategy.name),),
        seconds=table.ops[op.index, strategy.name].seconds,
        reads=tuple(Read(*place, crosses) for place, crosses in reads.items()),
        gives=tuple(gives),
        saves=tuple(Place(position[n], state_of[n]) for n in op.saved if n in state_of),
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
        moves[name] = group.transitions(tensor, graph.axes) if group.size > 1 else ()
        if tensor.origin != "op":
            present[name] = dict.fromkeys(tensor.states)
    allowed: dict[int, tuple[OpStrategy, ...]] = {}
    # single assignment in program order: whoever produces an input has been seen
    for op in graph.ops:
        usable = []
        for strategy in op.strategies:
            if group.size == 1 and strategy.name != "R":
                continue
            # ranks that can talk have no need of other numbers than one device's
            if strategy.lossy is not None or not strategy.runs_on(group.closed):
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
