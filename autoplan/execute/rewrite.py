"""A traced program and a strategy for each of its ops, written as the program of one rank.

Every op runs in its strategy on local tensors, variables named by tensor and state. A transition stands right before the
first op that needs its result and is made once; an in-place op makes a new tensor of the OpGraph (single assignment), so a
copy in another state is never read after the original was written. All ranks run the same text, so they meet in the same
exchanges in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autoplan.errors import PlanError
from autoplan.execute.numbers import Numbers, is_shape
from autoplan.execute.placement import Placement, place
from autoplan.execute.source import Body, variable
from autoplan.opgraph import Op, OpGraph, OpStrategy, State
from autoplan.program.codegen import ConstantTable, format_arguments, format_test, guard_message
from autoplan.program.ir import (
    ConstantStep,
    Expression,
    GuardStep,
    OpStep,
    Program,
    SizeStep,
)
from autoplan.program.kernels import COUNTING, DRAWING, KernelInfo
from autoplan.program.rank_program import (
    RankInput,
    RankOutput,
    RankProgram,
    RankTransition,
)
from autoplan.program.torch_internals import operator_name
from autoplan.states import Transition, sharded_axis

_HEADER = "def step(context, parameters, buffers, inputs, capture):"


def rank_program(
    program: Program, opgraph: OpGraph, choices: Mapping[int, str], *, capture: bool = False
) -> RankProgram:
    """Writes the program of one rank.

    Args:
        program: the traced program.
        opgraph: the same program as ops, tensors and strategies.
        choices: by op index, the name of its strategy; R where there is none. All R is the program of one device.
        capture: also report every op's results (see `RankProgram.run`).

    Raises:
        PlanError: a choice that the program does not offer, a state that cannot be reached, or an op that is a Python
            function of the user, which cannot be sent to a worker.
    """
    return _Writer(program, opgraph, place(program, opgraph, choices), capture).write()


@dataclass(slots=True)
class _Writer:
    """Writes one program, front to back.

    Attributes:
        defined: (tensor, state) -> its variable, in order of definition.
        current: value of the program -> its tensor's latest version.
    """

    program: Program
    opgraph: OpGraph
    placement: Placement
    capture: bool
    table: ConstantTable = field(default_factory=ConstantTable)
    body: Body = field(default_factory=Body)
    defined: dict[tuple[str, State], str] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    inputs: list[RankInput] = field(default_factory=list)
    transitions: list[RankTransition] = field(default_factory=list)
    numbers: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = Numbers(self.opgraph, self.body, self.defined, self._load)

    def write(self) -> RankProgram:
        """The whole program."""
        slots = {slot.name: slot for slot in self.program.state}
        self.body.add_first("device = context.device")
        for name in self.program.inputs:
            if name.startswith("a"):
                raise PlanError(
                    f"input {name} of the program is a plain number; only tensors of the graph can be planned for"
                )
        ops = {op.index: op for op in self.opgraph.ops}
        for index, step in enumerate(self.program.steps):
            op = ops.get(index)
            if isinstance(step, OpStep):
                if op is None:
                    raise PlanError(f"the program's step {index} {step.func} is no op of its graph")
                self._op(step, op, self.placement.strategies[index])
            elif isinstance(step, ConstantStep):
                self._constant(step)
            elif isinstance(step, GuardStep):
                self._guard(step, op)
            elif isinstance(step, SizeStep) and op is not None:
                for name, state in zip(
                    op.inputs, self.placement.strategies[index].inputs, strict=True
                ):
                    self.value(name, state)
        outputs, result = self._outputs()
        source = self.body.render(_HEADER, result, self.program.modes.grad)
        read = [
            (slots[name], tensor.source or slots[name].path)
            for name, tensor in self.opgraph.tensors.items()
            if name in slots and (name, "R") in self.defined
        ]
        trained = [
            tensor.source or name
            for name, tensor in self.opgraph.tensors.items()
            if tensor.origin == "parameter" and tensor.requires_grad and tensor.reaches_loss
        ]
        written = {name.partition(".")[0] for name in self.opgraph.tensors if "." in name}
        return RankProgram(
            source=source,
            operators=dict(self.table.operators),
            objects=dict(self.table.objects),
            inputs=tuple(self.inputs),
            parameters=tuple(path for slot, path in read if slot.kind == "parameter"),
            buffers=tuple(path for slot, path in read if slot.kind != "parameter"),
            written=tuple(path for slot, path in read if slot.name in written),
            trained=tuple(dict.fromkeys(trained)),
            outputs=outputs,
            transitions=tuple(self.transitions),
            gathered=tuple(
                sorted(
                    {
                        str(sharded_axis(self.opgraph.tensors[t.tensor], self.opgraph.axes))
                        for t in self.transitions
                        if t.exchange == "all_gather"
                    }
                )
            ),
            has_loss=self.opgraph.has_loss,
        )

    def value(self, tensor: str, state: State) -> str:
        """The variable of a tensor in a state, brought there if it is not."""
        name = self.defined.get((tensor, state))
        if name is not None:
            return name
        meta = self.opgraph.tensors[tensor]
        if meta.origin == "input" and state in self.placement.loaded.get(tensor, ()):
            return self._load(tensor, state)
        if meta.origin in ("parameter", "buffer") and state == "R":
            return self._model_tensor(tensor)
        for step in self.placement.routes.get(tensor, ()):
            if step.target == state:
                return self._transition(tensor, step)
        raise PlanError(f"tensor {tensor} is needed in state {state}, where nothing brings it")

    def _load(self, tensor: str, state: State) -> str:
        """A graph attribute as it is given."""
        meta = self.opgraph.tensors[tensor]
        attribute = meta.source or tensor
        axis = sharded_axis(meta, self.opgraph.axes)
        dim = None if axis is None else meta.dims.index(axis)
        self.inputs.append(RankInput(attribute, state, dim, axis, meta.index))
        name = self._define(tensor, state)
        self.body.add_first(f"{name} = inputs[{(attribute, state)!r}]", name)
        return name

    def _model_tensor(self, tensor: str) -> str:
        """A parameter or buffer, by the model's own name."""
        meta = self.opgraph.tensors[tensor]
        slot = next(slot for slot in self.program.state if slot.name == tensor)
        where = "parameters" if slot.kind == "parameter" else "buffers"
        name = self._define(tensor, "R")
        self.body.add_first(f"{name} = {where}[{meta.source or slot.path!r}]", name)
        return name

    def _transition(self, tensor: str, step: Transition) -> str:
        source = self.value(tensor, step.source)
        meta = self.opgraph.tensors[tensor]
        axis = sharded_axis(meta, self.opgraph.axes)
        dim = None if axis is None else meta.dims.index(axis)
        call = {
            "halo_exchange": f"halo_exchange(context, {source}, {dim})",
            "all_gather": f"all_gather(context, {source}, {axis!r}, {dim})",
            "all_reduce": f"all_reduce(context, {source})",
            "none": {
                ("R", "O"): f"own_rows(context, {source}, {axis!r}, {dim})",
                ("R", "H"): f"local_rows(context, {source}, {axis!r}, {dim})",
                ("H", "O"): f"drop_halo(context, {source}, {axis!r}, {dim})",
            }.get((step.source, step.target)),
        }[step.exchange]
        result = (tensor, step.target)
        name = self._define(*result)
        grad = result in self.placement.grad if meta.requires_grad else None
        self.body.add(f"{name} = exchange.{call}", name, grad=grad)
        self.transitions.append(
            RankTransition(
                tensor,
                step.source,
                step.target,
                step.exchange,
                result in self.placement.differentiable,
            )
        )
        return name

    def _define(self, tensor: str, state: State) -> str:
        name = variable(tensor, state)
        self.defined[(tensor, state)] = name
        return name

    def _op(self, step: OpStep, op: Op, strategy: OpStrategy) -> None:
        states = dict(zip(op.inputs, strategy.inputs, strict=True))
        for name, state in states.items():
            self.value(name, state)
        operator = operator_name(step.func)
        if operator is None:
            _check_sendable(step, op)
        shape = is_shape(step, operator or "")
        args = [
            self._argument(argument, states, strategy.rows if local else "R")
            for argument, local in zip(step.args, shape, strict=True)
        ]
        arguments = format_arguments(step, self.table, args)
        if strategy.kernel == "local":
            call = f"{self.table.name(step.func)}({arguments})"
        else:
            call = self._kernel(step, op, strategy, arguments)
        results = self._results(step, op, strategy)
        variables = [name for name in results if name != "_"]
        if step.sequence is list:
            call = f"exactly({len(results)}, {call}, {step.where!r})"
        if not variables:
            text = call
        elif step.sequence is not None:
            text = f"[{', '.join(results)}] = {call}"
        else:
            text = f"{results[0]} = {call}"
        self.body.add(text, *variables, grad=step.grad)
        self._hidden_writes(step, op, states)
        if self.capture:
            self._capture(op, strategy)

    def _argument(self, argument: Any, states: Mapping[str, State], rows: State) -> Any:
        """An argument of an op: a variable, a resolved number, or the constant as it is."""
        if not isinstance(argument, Expression):
            return argument
        text = argument.text
        if text in self.current or text in self.opgraph.tensors:
            tensor = self.current.get(text, text)
            return Expression(self.defined[(tensor, states[tensor])])
        return Expression(self.numbers.resolve(text, rows))

    def _kernel(self, step: OpStep, op: Op, strategy: OpStrategy, arguments: str) -> str:
        """The call of a kernel instead of the op, with what the kernel has to know."""
        first = self.opgraph.tensors[op.inputs[0]] if op.inputs else None
        axis = None if first is None else sharded_axis(first, self.opgraph.axes)
        dim = None if first is None or axis is None else first.dims.index(axis)
        info = self.table.name(KernelInfo(op.index, operator_name(step.func) or "", dim))
        given: list[str] = []
        if axis is not None and strategy.kernel in COUNTING:
            known = strategy.rows == "R" or self.opgraph.axes[axis].kind in ("base", "index")
            if known:
                given.append(f"rows={self.numbers.rows(axis, 'R')}")
        if axis is not None and strategy.kernel in DRAWING:
            given.append(f"keys={self.numbers.keys(axis, strategy.inputs[0])}")
        at = f"{info}.at({', '.join(given)})" if given else info
        return f"kernels[{strategy.kernel!r}](context, {at}, {arguments})"

    def _results(self, step: OpStep, op: Op, strategy: OpStrategy) -> list[str]:
        """The variables that the call's results are assigned to."""
        made = dict(zip(op.outputs, strategy.outputs, strict=True))
        by_value = {name.partition(".")[0]: name for name in op.outputs}
        results: list[str] = []
        for value in step.outs:
            if value in by_value:
                tensor = by_value[value]
                self.current[value] = tensor
                results.append(self._define(tensor, made[tensor]))
            else:
                results.append(value)
        return results

    def _hidden_writes(self, step: OpStep, op: Op, states: Mapping[str, State]) -> None:
        """Arguments that the op writes without returning them (running statistics): the same variable, a new version."""
        before = {name.partition(".")[0]: name for name in states}
        for name in op.outputs:
            value = name.partition(".")[0]
            if value in step.outs or value not in before:
                continue
            old = before[value]
            self.current[value] = name
            self.defined[(name, states[old])] = self.defined[(old, states[old])]

    def _constant(self, step: ConstantStep) -> None:
        """A tensor made from Python data, fresh each time, for it may be written."""
        name = self._define(step.name, "R")
        if step.expression is not None:
            made = Expression(self.numbers.resolve(step.expression.text, "R"))
        else:
            made = self.table.literal(step.value)
        self.body.add(f"{name} = {made}", name)

    def _guard(self, step: GuardStep, op: Op | None) -> None:
        """Guards on what was read from tensors. Those on the inputs' description were checked on the whole graph."""
        if op is None:
            if not any(name.startswith("i") for name in step.test.names):
                return
            states: dict[str, State] = {}
        else:
            chosen = self.placement.strategies[op.index]
            states = dict(zip(op.inputs, chosen.inputs, strict=True))
        text = self.numbers.resolve(step.test.text, "R")
        for value in Expression(text).names:
            if value.startswith("v"):
                tensor = self.current.get(value, value)
                held = self.value(tensor, states.get(tensor, "R"))
                text = Expression(text).replaced(value, held)
        test = format_test(replace(step, test=Expression(text)), self.table)
        self.body.add(f"if {test}: raise GuardError({guard_message(step)!r})")

    def _capture(self, op: Op, strategy: OpStrategy) -> None:
        """Reports the op's results, with the keys of their rows where a shard's rows lie in another order."""
        for tensor, state in zip(op.outputs, strategy.outputs, strict=True):
            name = self.defined.get((tensor, state))
            if name is None:
                continue
            keys = self._row_keys(tensor, state)
            self.body.add(f"capture({op.index}, {tensor!r}, {state!r}, {name}, {keys})")

    def _row_keys(self, tensor: str, state: State) -> str | None:
        meta = self.opgraph.tensors[tensor]
        axis = sharded_axis(meta, self.opgraph.axes)
        if axis is None or state not in ("O", "H"):
            return None
        return self.numbers.keys(axis, state)

    def _outputs(self) -> tuple[tuple[RankOutput, ...], str]:
        """What is returned: the outputs, then the keys of those that lie along derived axes."""
        described: list[RankOutput] = []
        texts: list[str] = []
        keys: list[str] = []
        count = len(self.program.outputs)
        for output in self.program.outputs:
            if not isinstance(output, Expression):
                described.append(RankOutput(None, "R", None, None, None))
                texts.append(str(self.table.literal(output)))
                continue
            tensor = self.current.get(output.text, output.text)
            if tensor not in self.opgraph.tensors:
                described.append(RankOutput(None, "R", None, None, None))
                texts.append(self.numbers.resolve(output.text, "R"))
                continue
            state = self.placement.returned[tensor]
            texts.append(self.value(tensor, state))
            meta = self.opgraph.tensors[tensor]
            axis = sharded_axis(meta, self.opgraph.axes)
            dim = None if axis is None else meta.dims.index(axis)
            place_of_keys = None
            if state == "O" and axis is not None and self.opgraph.axes[axis].kind != "base":
                place_of_keys = count + len(keys)
                keys.append(self.numbers.keys(axis, "O"))
            described.append(RankOutput(tensor, state, dim, axis, place_of_keys))
        return tuple(described), f"[{', '.join([*texts, *keys])}]"


def _check_sendable(step: OpStep, op: Op) -> None:
    """Torch's own functions have a name on every worker; the user's do not.

    Raises:
        PlanError: naming the op.
    """
    owner = getattr(step.func, "__objclass__", step.func)
    module = str(getattr(owner, "__module__", ""))
    if module.split(".")[0] != "torch":
        raise PlanError(
            f"op {op.index} {op.name} ({op.where}) is a Python function, whose text workers do not have; "
            "write it with torch's own operators"
        )
