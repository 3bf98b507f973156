"""Where every tensor of a program lies once each op has a strategy: which states are made, needed, and by what way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoplan.errors import PlanError
from autoplan.opgraph import Op, OpGraph, OpStrategy, State, TensorMeta
from autoplan.program.ir import OpStep, Program
from autoplan.states import Transition, route, sharded_axis


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of `place`.

    Attributes:
        strategies: by op index, the chosen one.
        produced: by tensor that an op makes, the state it is made in; parameters, buffers and constants are in R.
        loaded: by input, the states it is loaded in, the widest first.
        routes: by tensor, the transitions that it takes in every step, in order of need.
        differentiable: transitions (tensor, target) whose result is read, perhaps through another transition, by an op that
            passes a gradient of the loss through it.
        grad: transitions that are to be recorded by autograd: one of the ops that read the result runs with gradients on.
        returned: by returned tensor, the state it is returned in.
    """

    strategies: Mapping[int, OpStrategy]
    produced: Mapping[str, State]
    loaded: Mapping[str, tuple[State, ...]]
    routes: Mapping[str, tuple[Transition, ...]]
    differentiable: frozenset[tuple[str, State]]
    grad: frozenset[tuple[str, State]]
    returned: Mapping[str, State]


def place(
    program: Program,
    opgraph: OpGraph,
    choices: Mapping[int, str],
    *,
    partial_loss: bool = False,
) -> Placement:
    """Chooses the way of every tensor.

    Args:
        program: the traced program.
        opgraph: the same program as ops and tensors.
        choices: by op index, the name of its strategy; R where there is none.
        partial_loss: a loss that is a partial sum is returned as one.

    Raises:
        PlanError: an op or a strategy that does not exist, or a state that cannot be reached.
    """
    strategies = _strategies(opgraph, choices)
    produced: dict[str, State] = {}
    reads: dict[tuple[str, State], list[Op]] = {}
    needed: dict[str, set[State]] = {}
    for op in opgraph.ops:
        strategy = strategies[op.index]
        for name, state in zip(op.inputs, strategy.inputs, strict=True):
            needed.setdefault(name, set()).add(state)
            reads.setdefault((name, state), []).append(op)
        produced.update(zip(op.outputs, strategy.outputs, strict=True))
    for name, tensor in opgraph.tensors.items():
        if tensor.origin in ("parameter", "buffer", "constant"):
            produced.setdefault(name, "R")

    returned: dict[str, State] = {}
    for position, name in enumerate(opgraph.outputs):
        whole = opgraph.has_loss and position == 0
        returned[name] = _returned_state(produced.get(name), whole)
        if whole and partial_loss and produced.get(name) == "S":
            returned[name] = "S"
        needed.setdefault(name, set()).add(returned[name])

    loaded: dict[str, tuple[State, ...]] = {}
    routes: dict[str, tuple[Transition, ...]] = {}
    for name, states in needed.items():
        tensor = opgraph.tensors[name]
        if tensor.origin == "input":
            loaded[name] = _loads(opgraph, tensor, states)
            routes[name] = tuple(
                Transition("H", "O", "none")
                for state in ("O",)
                if state in states and state not in loaded[name]
            )
        else:
            routes[name] = route(tensor, opgraph.axes, produced[name], states)
    differentiable, grad = _gradients(program, opgraph, routes, reads, returned)
    return Placement(strategies, produced, loaded, routes, differentiable, grad, returned)


def _strategies(opgraph: OpGraph, choices: Mapping[int, str]) -> dict[int, OpStrategy]:
    known = {op.index for op in opgraph.ops}
    if strangers := sorted(set(choices) - known):
        raise PlanError(
            f"the plan chooses a strategy for op {strangers[0]}, which this program does not have; "
            "it was made for another model: plan again"
        )
    strategies: dict[int, OpStrategy] = {}
    for op in opgraph.ops:
        name = choices.get(op.index, "R")
        found = [strategy for strategy in op.strategies if strategy.name == name]
        if not found:
            offered = ", ".join(strategy.name for strategy in op.strategies)
            raise PlanError(
                f"op {op.index} {op.name} ({op.where}) has no strategy {name!r} but {offered}; plan again"
            )
        if opgraph.single_only is not None and name != "R":
            raise PlanError(
                f"op {op.index} {op.name} cannot run as {name!r}: {opgraph.single_only}"
            )
        strategies[op.index] = found[0]
    _check_partition(opgraph, strategies)
    return strategies


def _check_partition(opgraph: OpGraph, strategies: Mapping[int, OpStrategy]) -> None:
    """One partition must do for all of them."""
    needs = {wanted: number for number, s in strategies.items() if (wanted := s.closed) is not None}
    if len(needs) > 1:
        name = {op.index: f"op {op.index} {op.name}" for op in opgraph.ops}
        raise PlanError(
            f"{name[needs[True]]} needs a partition along whole graphs and {name[needs[False]]} one that is not; plan again"
        )


def _returned_state(produced: State | None, whole: bool) -> State:
    """R or O: partial sums are added up, halo rows dropped."""
    if whole or produced is None or produced in ("R", "S"):
        return "R"
    return "O"


def _loads(opgraph: OpGraph, tensor: TensorMeta, needed: set[State]) -> tuple[State, ...]:
    """An input is loaded in every state that is needed, but owned rows are a view of owned and halo rows."""
    states: list[State] = [state for state in ("R", "H", "O") if state in needed]
    if "H" in states and "O" in states and sharded_axis(tensor, opgraph.axes) is not None:
        states.remove("O")
    return tuple(states)


def _gradients(
    program: Program,
    opgraph: OpGraph,
    routes: Mapping[str, tuple[Transition, ...]],
    reads: Mapping[tuple[str, State], list[Op]],
    returned: Mapping[str, State],
) -> tuple[frozenset[tuple[str, State]], frozenset[tuple[str, State]]]:
    """`Placement.differentiable` and `Placement.grad`. The loss is differentiated by the caller."""
    loss = opgraph.outputs[0] if opgraph.has_loss else None
    differentiable: set[tuple[str, State]] = set()
    grad: set[tuple[str, State]] = set()
    for name, state in returned.items():
        if program.modes.grad:
            grad.add((name, state))
        if name == loss:
            differentiable.add((name, state))
    for name, steps in routes.items():
        # last first: what a later transition needs, the one that it starts from needs too
        for step in reversed(steps):
            result = (name, step.target)
            onward = {(name, later.target) for later in steps if later.source == step.target}
            readers = reads.get(result, [])
            if any(name in op.differentiates for op in readers) or differentiable & onward:
                differentiable.add(result)
            if any(_records(program, op) for op in readers) or grad & onward:
                grad.add(result)
    return frozenset(differentiable), frozenset(grad)


def _records(program: Program, op: Op) -> bool:
    """Whether autograd watches the op. Guards and sizes have no gradient."""
    step = program.steps[op.index]
    return isinstance(step, OpStep) and step.grad
