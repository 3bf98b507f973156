"""From a recorded program to an `OpGraph`: dimensions, provenance, gradients, work and strategies, op by op (torch).

Default-deny: every op may run in R. A strategy that a rule admits is kept only where

- the dimensions that the rule gives are those that every sample saw; else they are taken from the sizes, and the op runs in R;
- inputs that hold positions are such that the rule says it knows what becomes of them (local numbering is not global);
- the states of inputs and outputs are states that those tensors can be in;
- nothing that shares storage with what the op touches is written and read under another name later.

Sizes: where an op reads a size of a ``select`` axis (or of one made of it), the tensor that has it is among the op's inputs,
after its own tensors: in R where the size is a value, in the rows' state where it is a shape argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from autoplan.errors import TraceError
from autoplan.opgraph import IndexInto, Op, OpGraph, OpStrategy, State, TensorMeta
from autoplan.program.ir import ConstantStep, Expression, GuardStep, OpStep, Program
from autoplan.trace import alias
from autoplan.trace.backward import OpFlow, with_gradients
from autoplan.trace.gradients import Flow, flow_of
from autoplan.trace.hoisting import hoistable
from autoplan.trace.inseparable import inseparable, numbers_read
from autoplan.trace.phases import is_outside, phase_of
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import AxisTable
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.numbers import Numbers
from autoplan.trace.rules.reads import counted_axis, numbered_axis
from autoplan.trace.rulings import call_of, checked_outputs, ruling_of
from autoplan.trace.size_reads import guard_reads, is_tensor, size_reads
from autoplan.trace.strategies import (
    SizeRead,
    for_partitions,
    kept,
    loadable_states,
    providers_of,
    reachable_states,
    replicated,
    with_sizes,
    with_written,
)
from autoplan.trace.tensors import TensorTable

_WHOLE: tuple[State, ...] = ("R",)


class InputSpec(Protocol):
    """What an input of the program is; `trace.attributes.AttributeSpec` is one."""

    @property
    def name(self) -> str:
        """The graph attribute."""

    @property
    def dims(self) -> tuple[str | int, ...]:
        """Per dimension an axis or a fixed size."""

    @property
    def index(self) -> IndexInto | None:
        """Set when its values are positions."""


def build_opgraph(
    program: Program,
    inputs: Sequence[InputSpec],
    base_rows: Sequence[Mapping[str, int]],
    *,
    has_loss: bool,
    training: bool,
    frozen: Collection[str] = (),
    generality: Literal["general", "concrete"] = "general",
    reason: str | None = None,
) -> OpGraph:
    """Describes a program as data for search, prices and rewriting.

    Args:
        program: what was recorded.
        inputs: what each of ``program.inputs`` is, in that order.
        base_rows: per entry of ``program.samples``, the rows of every axis that the inputs name.
        has_loss: the first output is the loss.
        training: gradients are wanted; without, nothing reaches the loss.
        frozen: paths (`StateSlot.path`) of parameters that ask for no gradient.
        generality: passed on; a ``concrete`` program has no strategy but R.
        reason: why it is concrete.

    Raises:
        TraceError: an input does not have the dimensions that it was said to have.
    """
    builder = _Builder(program, base_rows, sharded=generality == "general")
    builder.take_inputs(inputs)
    builder.take_state(frozen)
    for index, step in enumerate(program.steps):
        if isinstance(step, OpStep):
            builder.take_op(index, step)
        elif isinstance(step, ConstantStep):
            builder.take_constant(step)
        elif isinstance(step, GuardStep):
            builder.take_guard(index, step)
    return builder.graph(has_loss, training, generality, reason)


class _Builder:
    """What is known of the program so far."""

    def __init__(
        self, program: Program, base_rows: Sequence[Mapping[str, int]], *, sharded: bool
    ) -> None:
        self.program = program
        self.axes = AxisTable.of(base_rows)
        self.tensors = TensorTable()
        self.last: dict[str, str] = {}
        self.counted: dict[str, str] = {}
        self.numbers = Numbers(self.tensors.dims_of, self.axes.axes, self.last, self.counted)
        self.whole_only = alias.whole_only(program)
        self.own = frozenset(
            [*program.inputs, *(slot.name for slot in program.state)]
        )  # tensors of the graph and the model
        self.alias = program.samples[0].alias
        self.sharded = sharded
        self.flows: list[OpFlow] = []
        self.read_from: dict[str, str] = {}
        self.single_only: str | None = None

    def take_inputs(self, inputs: Sequence[InputSpec]) -> None:
        """Enters the graph's tensors."""
        for value, spec in zip(self.program.inputs, inputs, strict=True):
            if not is_tensor(value) or value in self.tensors.current:
                continue
            dims = tuple(spec.dims)
            seen = [tuple(sample.shapes[value]) for sample in self.program.samples]
            if len(dims) != len(seen[0]) or not all(
                self.axes.agrees(dim, sizes)
                for dim, sizes in zip(dims, zip(*seen, strict=True), strict=True)
            ):
                raise TraceError(
                    f"graph.{spec.name} was said to be {list(dims)}, but the samples have {[list(shape) for shape in seen]}; "
                    "say what it is with inputs="
                )
            # positions along an axis that no partition cuts (graphs) are the same numbers everywhere
            cut = spec.index is not None and self.axes.cut(spec.index.axes)
            meta = self._meta(value, dims, "input", spec.name, index=spec.index if cut else None)
            self._enter(meta, loadable_states(meta, self.axes))

    def take_state(self, frozen: Collection[str]) -> None:
        """Enters the model's tensors."""
        for slot in self.program.state:
            if slot.name in self.tensors.current or slot.name not in self.alias:
                continue
            parameter = slot.kind == "parameter"
            dtype = self.program.samples[0].dtypes[slot.name]
            meta = self._meta(
                slot.name,
                self._matched(slot.name),
                "parameter" if parameter else "buffer",
                slot.path,
                requires_grad=parameter and dtype.is_floating_point and slot.path not in frozen,
            )
            self._enter(meta, _WHOLE)

    def take_constant(self, step: ConstantStep) -> None:
        """Enters a tensor made from Python data."""
        self._enter(self._meta(step.name, self._matched(step.name), "constant"), _WHOLE)

    def take_guard(self, index: int, step: GuardStep) -> None:
        """A decision on what tensors hold, or on sizes that only they tell, becomes an op that needs them whole."""
        needed = guard_reads(step, self.numbers, self.tensors, self.axes, self.read_from, self.own)
        if needed is None:
            return
        inputs = tuple(self.tensors.metas[name] for name in needed)
        op = Op(
            index,
            "guard",
            "",
            step.where,
            tuple(needed),
            (),
            "guard",
            work.NOTHING,
            None,
            (),
            (replicated(inputs, 0, "local"),),
        )
        self.flows.append(OpFlow(op, work.NOTHING, frozenset()))

    def take_op(self, index: int, step: OpStep) -> None:
        """One call: rule, checks, gradients."""
        outs = [name for name in step.outs if is_tensor(name)]
        call = call_of(step, outs, self.program, self.tensors, self.axes, self.numbers)
        flow = flow_of(step, self.program.samples[0], self._wanting(step))
        family, ruling = ruling_of(call)
        outputs, agreed = checked_outputs(call, ruling)
        reads = size_reads(step, self.numbers, self.tensors, self.axes)
        hidden = [value for value in alias.written(step) if value not in outs]
        unreturned = [self.tensors.of(value) for value in hidden]
        strategies = with_written(
            self._strategies(step, call, ruling, outputs, agreed, reads), call.inputs, unreturned
        )
        if step.opaque and self.single_only is None:
            self.single_only = (
                f"{call.name} at {step.where} is Python code that the recording does not see into"
            )
        before = {name: self.tensors.current[name] for name in (*flow.reaches, *flow.copied)}
        names = [
            self._output(value, output, call.dtypes[k], flow.requires_grad[k], strategies, k)
            for k, (value, output) in enumerate(zip(outs, outputs, strict=True))
        ]
        for value, meta in zip(hidden, unreturned, strict=True):
            version = self.tensors.add(replace(meta, name=value, origin="op"), meta.states)
            names.append(version.name)
        self._spread_gradients(step)
        for name in step.outs:
            if name.startswith("i") and call.inputs:
                self.read_from[name] = call.inputs[0].name
                identity = self.tensors.identities.get(call.inputs[0].name)
                if axis := counted_axis(identity):
                    self.last[name] = axis
                if axis := numbered_axis(identity):
                    self.counted[name] = axis
        op = Op(
            index,
            call.name,
            step.module,
            step.where,
            (*(tensor.name for tensor in call.inputs), *providers_of(call.inputs, reads)),
            tuple(names),
            family,
            ruling.forward,
            ruling.backward,
            (*self._saved(flow), *(before[name] for name in flow.copied)),
            strategies,
        )
        reaches = frozenset(before[name] for name in flow.reaches)
        self.flows.append(OpFlow(op, ruling.backward, reaches))

    def graph(
        self,
        has_loss: bool,
        training: bool,
        generality: Literal["general", "concrete"],
        reason: str | None,
    ) -> OpGraph:
        """The whole, with what is only known from the loss backwards."""
        outputs = tuple(
            self.tensors.current[value.text]
            for value in self.program.outputs
            if isinstance(value, Expression) and is_tensor(value.text)
        )
        loss = outputs[0] if has_loss and training and outputs else None
        ops, tensors = with_gradients(self.flows, self.tensors, loss, self.alias, self.whole_only)
        numbers = numbers_read(self.program)
        ops = tuple(replace(op, numbers=numbers.get(op.index, ())) for op in ops)
        axes = dict(self.axes.axes)
        once = hoistable(self.program, ops, tensors, axes, training=training)
        ops = tuple(
            replace(
                op,
                hoistable=op.index in once,
                phase=phase_of(op, tensors, axes),
                outside=is_outside(op),
            )
            for op in ops
        )
        return OpGraph(
            ops,
            tensors,
            axes,
            outputs,
            has_loss,
            training,
            generality,
            reason,
            self.single_only,
            inseparable(self.program, ops, tensors, axes, self.whole_only),
            dict(self.last),
        )

    def _wanting(self, step: OpStep) -> frozenset[str]:
        return frozenset(
            name
            for name in step.reads
            if name in self.tensors.current and self.tensors.of(name).requires_grad
        )

    def _strategies(
        self,
        step: OpStep,
        call: Call,
        ruling: Ruling,
        outputs: Sequence[Output],
        agreed: bool,
        reads: Sequence[SizeRead],
    ) -> tuple[OpStrategy, ...]:
        touched = {name for name in (*step.reads, *step.outs) if is_tensor(name)}
        whole = replicated(call.inputs, len(outputs), ruling.kernel)
        admit = (
            self.sharded
            and agreed
            and not step.opaque
            and not touched & self.whole_only
            and (ruling.reads_positions or not call.positions)
        )
        in_whole = {
            self.tensors.current[value]
            for value in alias.written(step)
            if self.alias.get(value, value) in self.own
        }
        found = kept(ruling.strategies, call.inputs, outputs, self.axes, in_whole) if admit else ()
        found = for_partitions(found, call.inputs, outputs, self.axes)
        providers = [self.tensors.metas[name] for name in providers_of(call.inputs, reads)]
        return with_sizes((whole, *found), call.inputs, reads, providers)

    def _output(
        self,
        value: str,
        output: Output,
        dtype: str,
        requires_grad: bool,
        strategies: Sequence[OpStrategy],
        position: int,
    ) -> str:
        # in R only, positions are plain numbers: nothing would translate them for a shard
        sharded = any(strategy.outputs[position] != "R" for strategy in strategies)
        index = output.index if sharded else None
        meta = TensorMeta(value, output.dims, dtype, "op", None, requires_grad, index=index)
        entered = self._enter(meta, {strategy.outputs[position] for strategy in strategies})
        if output.identity:
            self.tensors.identities[entered.name] = output.identity
        if output.owned_where:
            self.tensors.owned_where[entered.name] = output.owned_where
        return entered.name

    def _enter(self, meta: TensorMeta, states: Iterable[State]) -> TensorMeta:
        return self.tensors.add(meta, reachable_states(meta, states, self.axes))

    def _meta(
        self,
        value: str,
        dims: tuple[str | int, ...],
        origin: Literal["input", "parameter", "buffer", "constant"],
        source: str | None = None,
        *,
        requires_grad: bool = False,
        index: IndexInto | None = None,
    ) -> TensorMeta:
        return TensorMeta(
            value, dims, self._dtype(value), origin, source, requires_grad, index=index
        )

    def _matched(self, value: str) -> tuple[str | int, ...]:
        seen = [tuple(sample.shapes[value]) for sample in self.program.samples]
        return tuple(self.axes.match(sizes) for sizes in zip(*seen, strict=True))

    def _dtype(self, value: str) -> str:
        return str(self.program.samples[0].dtypes[value]).removeprefix("torch.")

    def _spread_gradients(self, step: OpStep) -> None:
        """What shares storage with a written tensor that asks for a gradient asks for one, too."""
        for value in alias.written(step):
            if value not in self.whole_only or not self.tensors.of(value).requires_grad:
                continue
            for other in self.whole_only & self.tensors.current.keys():
                if self.alias[other] == self.alias[value]:
                    meta = self.tensors.of(other)
                    self.tensors.change(meta.name, replace(meta, requires_grad=True))

    def _saved(self, flow: Flow) -> tuple[str, ...]:
        """What is kept for backward, by the tensor that owns the storage: a view keeps what it looks at."""
        roots = (self.alias.get(name, name) for name in flow.saved)
        return tuple(dict.fromkeys(self.tensors.current[root] for root in roots))
