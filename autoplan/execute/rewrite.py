"""A traced program and a strategy for each of its ops, written as the program of one rank.

Every op runs in its strategy on local tensors, variables named by tensor and state. A transition stands right before the
first op that needs its result and is made once; an in-place op makes a new tensor of the OpGraph (single assignment), so a
copy in another state is never read after the original was written. All ranks run the same text, so they meet in the same
exchanges in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoplan.errors import PlanError
from autoplan.execute.numbers import Numbers, is_shape
from autoplan.execute.placement import Placement, place
from autoplan.execute.source import Body
from autoplan.execute.variables import Variables
from autoplan.opgraph import DRAWING, FINDING, LOCAL_ROWS, Op, OpGraph, OpStrategy, State
from autoplan.program.codegen import ConstantTable, format_arguments, format_test, guard_message
from autoplan.program.ir import (
    ConstantStep,
    Expression,
    GuardStep,
    OpStep,
    Program,
    Step,
)
from autoplan.program.kernel_info import KernelInfo
from autoplan.program.kernels import COUNTING
from autoplan.program.rank_program import RankOutput, RankProgram, TensorKey
from autoplan.program.torch_internals import callable_name, operator_name

_UNWRITTEN = ("aten.empty", "aten.new_empty")
"""Ops whose results hold whatever was in memory."""

_HEADER = "def step(context, parameters, buffers, inputs, capture, received):"


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
    return Writer(program, opgraph, place(program, opgraph, choices), capture).write()


class Writer:
    """Writes one program, front to back.

    Attributes:
        positions: of the outputs that it returns, among those of the traced program; sends: what it returns for later stages.
    """

    def __init__(
        self, program: Program, opgraph: OpGraph, placement: Placement, capture: bool
    ) -> None:
        self.program = program
        self.opgraph = opgraph
        self.placement = placement
        self.capture = capture
        self.table = ConstantTable()
        self.body = Body()
        self.variables = Variables(program, opgraph, placement, self.body)
        self.numbers = Numbers(
            opgraph,
            self.body,
            self.variables.defined,
            self.variables.load,
            self.variables.fetch,
        )
        self.positions: Sequence[int] = range(len(program.outputs))
        self.sends: tuple[TensorKey, ...] = ()

    def write(self) -> RankProgram:
        """The whole program."""
        self.body.add_first("device = context.device")
        if numbers := [name for name in self.program.inputs if name.startswith("a")]:
            raise PlanError(
                f"input {numbers[0]} of the program is a plain number; only tensors of the graph can be planned for"
            )
        ops = {op.index: op for op in self.opgraph.ops}
        for index, step in enumerate(self.program.steps):
            self.step(step, ops.get(index))
        outputs, result = self._outputs()
        variables = self.variables
        parameters = variables.model_tensors("parameter")
        return RankProgram(
            source=self.body.render(_HEADER, result, self.program.modes.grad),
            operators=dict(self.table.operators),
            objects=dict(self.table.objects),
            inputs=tuple(variables.inputs),
            parameters=parameters,
            buffers=variables.model_tensors("buffer", "attribute"),
            written=variables.written(),
            trained=tuple(name for name in _trained(self.opgraph) if name in parameters),
            outputs=outputs,
            transitions=tuple(variables.transitions),
            gathered=variables.gathered(),
            has_loss=self.opgraph.has_loss and 0 in self.positions,
            receives=tuple(variables.received),
            sends=self.sends,
            closed=_partition(self.placement.strategies.values()),
        )

    def step(self, step: Step, op: Op | None) -> None:
        """One step of the traced program."""
        if isinstance(step, OpStep):
            if op is None:
                raise PlanError(f"{step.func} ({step.where}) is no op of the program's graph")
            self.run(step, op)
        elif isinstance(step, ConstantStep):
            self._constant(step)
        elif isinstance(step, GuardStep):
            self._guard(step, op)

    def run(self, step: OpStep, op: Op) -> None:
        """One op in its strategy, on the tensors that it needs."""
        strategy = self.placement.strategies[op.index]
        states = dict(zip(op.inputs, strategy.inputs, strict=True))
        for name, state in states.items():
            self.variables.bring(name, state)
        operator = operator_name(step.func)
        if operator is None:
            _check_sendable(step, op)
        shape = is_shape(step, operator or "")
        if strategy.kernel == LOCAL_ROWS:
            shape = [True] * len(shape)
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
            if op.name.startswith(_UNWRITTEN):
                # what is never written must not differ between two runs
                self.body.add(f"{results[0]}.zero_()")
            self._capture(op, strategy)

    def _argument(self, argument: Any, states: Mapping[str, State], rows: State) -> Any:
        """An argument of an op: a variable, a resolved number, or the constant as it is."""
        if not isinstance(argument, Expression):
            return argument
        text = argument.text
        if text in self.opgraph.tensors:
            tensor = self.variables.tensor(text)
            return Expression(self.variables.defined[(tensor, states[tensor])])
        return Expression(self.numbers.resolve(text, rows))

    def _kernel(self, step: OpStep, op: Op, strategy: OpStrategy, arguments: str) -> str:
        """The call of a kernel instead of the op, with what the kernel has to know."""
        axis, dim = self.variables.sharded(op.inputs[0]) if op.inputs else (None, None)
        info = self.table.name(KernelInfo(op.index, operator_name(step.func) or "", dim, axis=axis))
        given: list[str] = []
        if axis is not None and strategy.kernel in COUNTING:
            known = strategy.rows == "R" or self.opgraph.axes[axis].kind in ("base", "index")
            if known:
                given.append(f"rows={self.numbers.rows(axis, 'R')}")
        if axis is not None and strategy.kernel in DRAWING:
            given.append(f"keys={self.numbers.keys(axis, strategy.inputs[0])}")
        if axis is not None and strategy.kernel in FINDING:
            given.append(f"keys={self.numbers.keys(axis, 'O')}")
            given.append(f"whole_keys={self.numbers.keys(axis, 'R')}")
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
                self.variables.latest[value] = tensor
                results.append(self.variables.define(tensor, made[tensor]))
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
            self.variables.latest[value] = name
            self.variables.defined[(name, states[old])] = self.variables.defined[(old, states[old])]

    def _constant(self, step: ConstantStep) -> None:
        """A tensor made from Python data, fresh each time, for it may be written."""
        name = self.variables.define(step.name, "R")
        if step.expression is not None:
            made = Expression(self.numbers.resolve(step.expression.text, "R"))
        else:
            made = self.table.literal(step.value)
        self.body.add(f"{name} = {made}", name)

    def _guard(self, step: GuardStep, op: Op | None) -> None:
        """Guards that only a run can decide: on what was read from tensors, and on sizes that only tensors tell.

        All others depend on dtypes, layouts and the rows of the whole graph's axes: whoever binds a plan to a graph, or gives
        a step another graph, holds them to it (`planner.decisions`).
        """
        if op is None and not any(name.startswith("i") for name in step.test.names):
            return
        if op is None and self.numbers.follows_data(step.test.text):
            return  # it holds for every graph, or it would be an op
        states: dict[str, State] = {}
        if op is not None:
            chosen = self.placement.strategies[op.index]
            states = dict(zip(op.inputs, chosen.inputs, strict=True))
        for name, state in states.items():
            self.variables.bring(name, state)
        text = step.test.text
        numbers = {name: name for name in step.test.names if name.startswith("i")}
        if step.held is None:
            numbers |= self.numbers.sizes(text)
            text = self.numbers.resolve(text, "R")
        for value in Expression(text).names:
            if value.startswith("v"):
                tensor = self.variables.tensor(value)
                held = self.variables.bring(tensor, states.get(tensor, "R"))
                text = Expression(text).replaced(value, held)
        if step.held is not None:
            numbers[step.test.text] = text
        test = format_test(replace(step, test=Expression(text)), self.table)
        found = ", ".join(f"{name!r}: {number}" for name, number in numbers.items())
        message = f"{guard_message(step)!r} + numbers_found({{{found}}})"
        self.body.add(f"if {test}: raise GuardError({message})")

    def _capture(self, op: Op, strategy: OpStrategy) -> None:
        """Reports the op's results, with the keys of their rows where a shard's rows lie in another order."""
        for tensor, state in zip(op.outputs, strategy.outputs, strict=True):
            name = self.variables.defined.get((tensor, state))
            if name is None:
                continue
            axis, _ = self.variables.sharded(tensor)
            sharded = axis is not None and state in ("O", "H")
            keys = self.numbers.keys(axis, state) if axis is not None and sharded else None
            self.body.add(f"capture({op.index}, {tensor!r}, {state!r}, {name}, {keys})")

    def _outputs(self) -> tuple[tuple[RankOutput, ...], str]:
        """What is returned: the outputs, then the keys of those that lie along derived axes, then what is sent."""
        described: list[RankOutput] = []
        texts: list[str] = []
        keys: list[str] = []
        count = len(self.positions)
        for output in (self.program.outputs[position] for position in self.positions):
            tensor = self.variables.tensor(output.text) if isinstance(output, Expression) else ""
            if tensor not in self.opgraph.tensors:
                described.append(RankOutput(None, "R", None, None))
                plain = self.table.literal(output).text
                texts.append(self.numbers.resolve(plain, "R"))
                continue
            state = self.placement.returned[tensor]
            texts.append(self._returned(tensor, state))
            axis, dim = self.variables.sharded(tensor)
            key_position = None
            if state == "O" and axis is not None and self.opgraph.axes[axis].kind != "base":
                key_position = count + len(keys)
                keys.append(self.numbers.keys(axis, "O"))
            described.append(RankOutput(tensor, state, dim, axis, key_position))
        sent = [self.variables.bring(*tensor) for tensor in self.sends]
        return tuple(described), f"[{', '.join([*texts, *keys, *sent])}]"

    def _returned(self, tensor: str, state: State) -> str:
        """A tensor as it is returned: local positions become those of the whole."""
        name = self.variables.bring(tensor, state)
        index = self.opgraph.tensors[tensor].index
        if index is None or state == "R":
            return name
        for axis in index.axes:
            if self.opgraph.axes[axis].kind not in ("base", "index"):
                raise PlanError(
                    f"the program returns {tensor}, positions along {axis}, which only one device has in order; "
                    "return something else or plan with one device"
                )
        if index.axis is not None:
            return f"context.axes[{index.axis!r}].ids[{name}]"
        ends = [f"context.axes[{a!r}].ids[{name}[{k}]]" for k, a in enumerate(index.axes)]
        return f"torch.stack([{', '.join(ends)}])"


def _partition(strategies: Iterable[OpStrategy]) -> bool | None:
    """The kind of partition that some strategy needs; None: any will do."""
    return next((s.closed for s in strategies if s.closed is not None), None)


def _trained(opgraph: OpGraph) -> tuple[str, ...]:
    """The model's own names of the parameters that get a gradient."""
    found = [
        tensor.source or tensor.name
        for tensor in opgraph.tensors.values()
        if tensor.origin == "parameter" and tensor.requires_grad and tensor.reaches_loss
    ]
    return tuple(dict.fromkeys(found))


def _check_sendable(step: OpStep, op: Op) -> None:
    """Torch's own functions have a name on every worker; the user's do not.

    Raises:
        PlanError: naming the op.
    """
    owner = getattr(step.func, "__objclass__", step.func)
    module = str(getattr(owner, "__module__", ""))
    if module.split(".")[0] != "torch":
        raise PlanError(
            f"op {op.index} ({op.where}) is {callable_name(step.func)}, a Python function whose text workers do not have; "
            "write it with torch's own operators"
        )
