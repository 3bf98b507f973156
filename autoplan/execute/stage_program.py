"""A traced program cut into stages: per stage the program of its own ops, and what it receives and sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoplan.errors import PlanError
from autoplan.execute.placement import Placement, place
from autoplan.execute.rewrite import Writer
from autoplan.opgraph import Axis, Op, OpGraph, TensorMeta
from autoplan.program.ir import ConstantStep, Expression, OpStep, Program, Step
from autoplan.program.rank_program import RankProgram
from autoplan.stages import Crossing, check_stages, crossings, reads


@dataclass(frozen=True, slots=True, eq=False)
class StageProgram:
    """The program of one stage. Picklable.

    Attributes:
        stage: its number, from 0; stages: how many there are.
        program: its ops. Gradients of what it sends are given to its backward pass beside the loss's.
        receives: what it reads of earlier stages, by source, then in program order; sends: what later stages read of it, by
            target, then in program order. One message for each source or target holds its tensors in this order.
        positions: of the outputs it returns, among those of the traced program.
        tensors: what is received and sent, by name; axes: those of their dimensions, and what these are made of.
    """

    stage: int
    stages: int
    program: RankProgram
    receives: tuple[Crossing, ...]
    sends: tuple[Crossing, ...]
    positions: tuple[int, ...]
    tensors: Mapping[str, TensorMeta]
    axes: Mapping[str, Axis]


def stage_programs(
    program: Program,
    opgraph: OpGraph,
    choices: Mapping[int, str],
    stage_of: Mapping[int, int],
    *,
    partial_loss: bool,
    capture: bool = False,
    stages: int | None = None,
) -> tuple[StageProgram, ...]:
    """Writes the programs of all stages.

    Args:
        program: the traced program.
        opgraph: the same program as ops, tensors and strategies.
        choices: by op index, the name of its strategy; R where there is none.
        stage_of: by op index, its stage.
        partial_loss: the batch is cut into parts that never talk to each other: the loss of each is returned as the partial
            sum that it is.
        capture: also report every op's results (see `RankProgram.run`).
        stages: how many there are, of which some may have no ops; by default as many as have.

    Raises:
        PlanError: stages that break a rule of `check_stages`; what `rank_program` raises; with ``partial_loss``, an op or a
            loss that needs rows of other parts (named).
    """
    check_stages(opgraph, stage_of, stages)
    placement = place(program, opgraph, choices, partial_loss=partial_loss)
    if partial_loss:
        _check_silent(opgraph, placement)
    count = stages or 1 + max(stage_of.values(), default=0)
    crossing = crossings(opgraph, choices, stage_of)
    positions = _positions(program, opgraph, stage_of, count)
    written = tuple(
        _stage(program, opgraph, placement, stage_of, stage, count, crossing, positions, capture)
        for stage in range(count)
    )
    if partial_loss:
        _check_transitions(opgraph, written)
    return written


def _stage(
    program: Program,
    opgraph: OpGraph,
    placement: Placement,
    stage_of: Mapping[int, int],
    stage: int,
    count: int,
    crossing: tuple[Crossing, ...],
    positions: Mapping[int, int],
    capture: bool,
) -> StageProgram:
    receives = sorted((c for c in crossing if c.target == stage), key=lambda c: c.source)
    sends = sorted((c for c in crossing if c.source == stage), key=lambda c: c.target)
    own = tuple(position for position, where in positions.items() if where == stage)
    writer = _StageWriter(program, opgraph, placement, capture, stage, stage_of, own, tuple(sends))
    written = writer.write()
    expected = {(c.tensor, c.state) for c in receives}
    if set(written.receives) != expected:
        differing = sorted(set(written.receives) ^ expected)
        raise PlanError(
            f"stage {stage} reads {[name for name, _ in written.receives]} of earlier stages but is sent "
            f"{[c.tensor for c in receives]}: {differing[0][0]} differs; choose another cut"
        )
    tensors = {c.tensor: opgraph.tensors[c.tensor] for c in (*receives, *sends)}
    return StageProgram(
        stage,
        count,
        written,
        tuple(receives),
        tuple(sends),
        own,
        tensors,
        _axes_of(opgraph, tensors),
    )


def homes(programs: Sequence[StageProgram]) -> dict[str, frozenset[int]]:
    """By name, where a parameter is trained and a buffer is written: the stages (see `stages.following`)."""
    found: dict[str, set[int]] = {}
    for each in programs:
        for name in (*each.program.trained, *each.program.written):
            found.setdefault(name, set()).add(each.stage)
    return {name: frozenset(stages) for name, stages in found.items()}


class _StageWriter(Writer):
    """Writes the ops of one stage."""

    def __init__(
        self,
        program: Program,
        opgraph: OpGraph,
        placement: Placement,
        capture: bool,
        stage: int,
        stage_of: Mapping[int, int],
        positions: tuple[int, ...],
        sends: tuple[Crossing, ...],
    ) -> None:
        super().__init__(program, opgraph, placement, capture)
        self.positions = positions
        self.sends = tuple(dict.fromkeys((c.tensor, c.state) for c in sends))
        self._stage = stage
        self._stage_of = stage_of
        self._ops = {op.index: op for op in opgraph.ops}
        others = [op for op in opgraph.ops if stage_of[op.index] != stage]
        self.variables.elsewhere = frozenset(name for op in others for name in op.outputs)
        self._reads = reads(opgraph)
        self._constants = self._constants_read()
        self._numbers: set[int] = set()

    def step(self, step: Step, op: Op | None) -> None:
        """Steps of this stage; of those of others, what they call their results."""
        if isinstance(step, ConstantStep):
            if step.name in self._constants:
                reader = self._constants[step.name]
                if reader is not None:
                    self._read_numbers(reader)
                super().step(step, op)
        elif op is None:
            # a guard that depends on no tensor, or one that always holds
            if isinstance(step, OpStep):
                super().step(step, op)
        elif self._stage_of[op.index] == self._stage:
            self._read_numbers(op)
            # masks of rows that a kernel of the op tells apart, whichever of its kernels was chosen
            for name in self._reads[op.index]:
                if name in self.variables.elsewhere and name not in op.inputs:
                    self.variables.fetch(name)
            super().step(step, op)
            if isinstance(step, OpStep):
                self._numbers.add(op.index)
        else:
            for name in op.outputs:
                self.variables.latest[name.partition(".")[0]] = name

    def _read_numbers(self, op: Op) -> None:
        """Reads again the numbers that ops of earlier stages have read from tensors."""
        for number in op.numbers:
            step = self.program.steps[number]
            if number not in self._numbers and isinstance(step, OpStep):
                self._numbers.add(number)
                self.run(step, self._ops[number])

    def _constants_read(self) -> dict[str, Op | None]:
        """Constants that this stage makes, each with the first op that reads it; None where it is only returned."""
        found: dict[str, Op | None] = {}
        for op in self.opgraph.ops:
            if self._stage_of[op.index] != self._stage:
                continue
            for name in self._reads[op.index]:
                if self.opgraph.tensors[name].origin == "constant":
                    found.setdefault(name, op)
        returned = [self.program.outputs[position] for position in self.positions]
        for output in returned:
            if isinstance(output, Expression):
                found.setdefault(output.text, None)
        return found


def _positions(
    program: Program, opgraph: OpGraph, stage_of: Mapping[int, int], stages: int
) -> dict[int, int]:
    """By position among the traced program's outputs, the stage that returns it: where it is made, else the last one.

    Raises:
        PlanError: an output that is computed from numbers of several stages.
    """
    made: dict[str, int] = {}
    for op in opgraph.ops:
        step = program.steps[op.index]
        made.update((name.partition(".")[0], stage_of[op.index]) for name in op.outputs)
        if isinstance(step, OpStep):
            made.update((name, stage_of[op.index]) for name in step.outs if name.startswith("i"))
    found: dict[int, int] = {}
    for position, output in enumerate(program.outputs):
        names = output.names if isinstance(output, Expression) else ()
        where = {made[name] for name in names if name in made}
        if len(where) > 1:
            raise PlanError(
                f"the program returns {output}, which is computed from numbers of stages {sorted(where)}; "
                "return the numbers, or cut elsewhere"
            )
        found[position] = where.pop() if where else stages - 1
    return found


def _check_silent(opgraph: OpGraph, placement: Placement) -> None:
    """Parts of a batch never talk: no op may need the other parts' rows.

    Raises:
        PlanError: naming the op and its module.
    """
    for op in opgraph.ops:
        if placement.strategies[op.index].collectives:
            raise PlanError(
                f"op {op.index} {op.name} in {op.module or 'the model'} ({op.where}) needs the rows of the whole batch, so "
                "the batch cannot run in parts; use one micro-batch and one replica"
            )
    if opgraph.has_loss and placement.returned[opgraph.outputs[0]] != "S":
        raise PlanError(
            "the loss is no sum over the parts of a batch, so the batch cannot run in parts; use one micro-batch and one "
            "replica"
        )


def _check_transitions(opgraph: OpGraph, programs: tuple[StageProgram, ...]) -> None:
    """Halo exchanges of closed parts move nothing; any other exchange would.

    Raises:
        PlanError: naming the tensor and where it is made.
    """
    maker = {name: op for op in opgraph.ops for name in op.outputs}
    for written in programs:
        for step in written.program.transitions:
            if step.exchange in ("none", "halo_exchange"):
                continue
            op = maker.get(step.tensor)
            where = f", made by op {op.index} {op.name} in {op.module or 'the model'}" if op else ""
            raise PlanError(
                f"tensor {step.tensor}{where} is needed whole ({step.exchange}), so the batch cannot run in parts; use one "
                "micro-batch and one replica"
            )


def _axes_of(opgraph: OpGraph, tensors: Mapping[str, TensorMeta]) -> dict[str, Axis]:
    """The axes of tensors, with those that these are made of."""
    found: dict[str, Axis] = {}
    waiting = [dim for meta in tensors.values() for dim in meta.dims if isinstance(dim, str)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = opgraph.axes[name]
            waiting += found[name].parts
    return found
