"""The variables of a rank's program: every tensor in every state it is needed in, brought there once, where first needed."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoplan.errors import PlanError
from autoplan.execute.placement import Placement
from autoplan.execute.source import Body, variable
from autoplan.opgraph import OpGraph, State
from autoplan.program.ir import Program, StateSlot
from autoplan.program.rank_program import RankInput, RankTransition, TensorKey
from autoplan.states import Transition, parts_of, sharded_axis

_SLICES = {("R", "O"): "own_rows", ("R", "H"): "local_rows", ("H", "O"): "drop_halo"}


@dataclass(slots=True)
class Variables:
    """What a program has defined so far.

    Attributes:
        program, opgraph, placement: what is written.
        body: where statements go.
        defined: (tensor, state) -> its variable, in order of definition.
        latest: value of the program -> the latest version of its tensor, where that is another name.
        inputs: graph attributes that were loaded.
        transitions: in order.
        elsewhere: tensors that ops of other stages make; received: those of them that were needed, in the state they are
            made in.
    """

    program: Program
    opgraph: OpGraph
    placement: Placement
    body: Body
    defined: dict[tuple[str, State], str] = field(default_factory=dict)
    latest: dict[str, str] = field(default_factory=dict)
    inputs: list[RankInput] = field(default_factory=list)
    transitions: list[RankTransition] = field(default_factory=list)
    elsewhere: frozenset[str] = frozenset()
    received: list[TensorKey] = field(default_factory=list)

    def define(self, tensor: str, state: State) -> str:
        """A new variable."""
        name = variable(tensor, state)
        self.defined[(tensor, state)] = name
        return name

    def tensor(self, value: str) -> str:
        """The latest version of a value."""
        return self.latest.get(value, value)

    def bring(self, tensor: str, state: State) -> str:
        """The variable of a tensor in a state; made now if it is not there.

        Raises:
            PlanError: nothing brings it there.
        """
        name = self.defined.get((tensor, state))
        if name is not None:
            return name
        meta = self.opgraph.tensors[tensor]
        if meta.origin == "input" and state in self.placement.loaded.get(tensor, ()):
            return self.load(tensor, state)
        if meta.origin in ("parameter", "buffer") and state == "R":
            return self._model_tensor(tensor)
        if tensor in self.elsewhere and state == self.placement.produced[tensor]:
            return self._receive(tensor, state)
        for step in self.placement.routes.get(tensor, ()):
            if step.target == state:
                return self._transition(tensor, step)
        raise PlanError(f"tensor {tensor} is needed in state {state}, where nothing brings it")

    def fetch(self, tensor: str) -> None:
        """Brings a tensor that is not here yet in the state that it is loaded or made in, if that is possible."""
        origin = self.opgraph.tensors[tensor].origin
        if origin == "input" and self.placement.loaded.get(tensor):
            self.bring(tensor, self.placement.loaded[tensor][0])
        elif tensor in self.elsewhere:
            self.bring(tensor, self.placement.produced[tensor])

    def load(self, tensor: str, state: State) -> str:
        """A graph attribute as it is given."""
        meta = self.opgraph.tensors[tensor]
        attribute = meta.source or tensor
        axis, dim = self.sharded(tensor)
        written = f"{tensor}.1" in self.opgraph.tensors
        self.inputs.append(RankInput(attribute, state, dim, axis, meta.index, written))
        name = self.define(tensor, state)
        self.body.add_first(f"{name} = inputs[{(attribute, state)!r}]", name)
        return name

    def sharded(self, tensor: str) -> tuple[str | None, int | None]:
        """The axis of a tensor that a partition cuts, and its dimension."""
        meta = self.opgraph.tensors[tensor]
        axis = sharded_axis(meta, self.opgraph.axes)
        return axis, None if axis is None else meta.dims.index(axis)

    def model_tensors(self, *kinds: str) -> tuple[str, ...]:
        """The model's own names of its tensors of these kinds that were read."""
        return tuple(
            self._source(slot)
            for slot in self.program.state
            if slot.kind in kinds and (slot.name, "R") in self.defined
        )

    def written(self) -> tuple[str, ...]:
        """The model's own names of the buffers that an op writes: those that have a later version."""
        received = {tensor for tensor, _ in self.received}
        made = {tensor for tensor, _ in self.defined} - received
        return tuple(
            self._source(slot) for slot in self.program.state if self.latest.get(slot.name) in made
        )

    def gathered(self) -> tuple[str, ...]:
        """The axes along which rows are all-gathered."""
        axes = {
            self.sharded(step.tensor)[0]
            for step in self.transitions
            if step.exchange == "all_gather"
        }
        parts = (parts_of(self.opgraph.axes, axis) for axis in axes if axis is not None)
        return tuple(sorted({part for found in parts for part in found}))

    def _source(self, slot: StateSlot) -> str:
        return self.opgraph.tensors[slot.name].source or slot.path

    def _model_tensor(self, tensor: str) -> str:
        """A parameter or buffer, by the model's own name."""
        slot = next(slot for slot in self.program.state if slot.name == tensor)
        where = "parameters" if slot.kind == "parameter" else "buffers"
        name = self.define(tensor, "R")
        self.body.add_first(f"{name} = {where}[{self._source(slot)!r}]", name)
        return name

    def _receive(self, tensor: str, state: State) -> str:
        """A tensor of an earlier stage."""
        self.received.append((tensor, state))
        name = self.define(tensor, state)
        self.body.add_first(f"{name} = received[{(tensor, state)!r}]", name)
        return name

    def _transition(self, tensor: str, step: Transition) -> str:
        held = self.bring(tensor, step.source)
        axis, dim = self.sharded(tensor)
        if step.exchange == "all_reduce":
            call = f"all_reduce(context, {held})"
        else:
            assert axis is not None
            parts = parts_of(self.opgraph.axes, axis)
            along = parts[0] if len(parts) == 1 else parts
            sliced = step.exchange == "none"
            function = _SLICES[step.source, step.target] if sliced else step.exchange
            call = f"{function}(context, {held}, {along!r}, {dim})"
        result = (tensor, step.target)
        name = self.define(*result)
        # without a gradient the mode does not matter, and switching it costs
        meta = self.opgraph.tensors[tensor]
        grad = result in self.placement.grad if meta.requires_grad else None
        self.body.add(f"{name} = exchange.{call}", name, grad=grad)
        backward = result in self.placement.differentiable
        self.transitions.append(
            RankTransition(tensor, step.source, step.target, step.exchange, backward)
        )
        return name
