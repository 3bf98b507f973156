"""Which of a rule's strategies are kept: states that the tensors can be in, sizes that are at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from autoplan.opgraph import IndexInto, OpStrategy, State, TensorMeta
from autoplan.states import transitions
from autoplan.trace.rules.axes import AxisTable
from autoplan.trace.rules.call import Output

ORDER: tuple[State, ...] = ("R", "O", "H", "S")


@dataclass(frozen=True, slots=True)
class SizeRead:
    """A size of a data-dependent axis that an op reads.

    Attributes:
        tensor: version name of the tensor that has it.
        as_value: it is a number (global); else a shape argument (rows of the strategy's state).
    """

    tensor: str
    as_value: bool


def reachable_states(
    meta: TensorMeta, found: Iterable[State], axes: AxisTable
) -> tuple[State, ...]:
    """The states that a tensor can be in: those it is made or loaded in, and what transitions make of them."""
    states = set(found)
    steps = transitions(replace(meta, states=tuple(states)), axes.axes)
    while True:
        more = {step.target for step in steps if step.source in states} - states
        if not more:
            return tuple(state for state in ORDER if state in states)
        states |= more


def loadable_states(meta: TensorMeta, axes: AxisTable) -> tuple[State, ...]:
    """The states that an input can be loaded in."""
    cut = axes.sharded(meta.dims)
    if cut is None:
        return ("R",)
    if axes.has_halo(cut.axis) and _mean_the_same(meta.index, axes):
        return ("R", "O", "H")
    return ("R", "O")


def replicated(inputs: Sequence[TensorMeta], outputs: int, kernel: str) -> OpStrategy:
    """Everything everywhere: what every op may do."""
    whole: State = "R"
    return OpStrategy("R", (whole,) * len(inputs), (whole,) * outputs, "R", kernel)


def kept(
    strategies: Iterable[OpStrategy],
    inputs: Sequence[TensorMeta],
    outputs: Sequence[Output],
    axes: AxisTable,
    in_whole: Collection[str],
) -> tuple[OpStrategy, ...]:
    """The strategies whose states exist.

    Args:
        strategies: what a rule admits beyond R.
        inputs: the op's tensors.
        outputs: what it returns.
        axes: the program's.
        in_whole: inputs that must be in R: the op writes to the model's or the graph's own tensors.
    """
    return tuple(
        strategy
        for strategy in strategies
        if all(
            state in tensor.states and (state == "R" or tensor.name not in in_whole)
            for tensor, state in zip(inputs, strategy.inputs, strict=True)
        )
        and all(
            _exists(out, state, axes) for out, state in zip(outputs, strategy.outputs, strict=True)
        )
    )


def for_partitions(
    strategies: Iterable[OpStrategy],
    inputs: Sequence[TensorMeta],
    outputs: Sequence[Output],
    axes: AxisTable,
) -> tuple[OpStrategy, ...]:
    """The strategies, each marked with the partitions that it is right on (`OpStrategy.closed`).

    Only a closed partition gives rows of the graph axis owners, and numbers graphs locally in O. So rows of graphs lie in O
    there alone; partial sums over all graphs, and rows of all graphs read at numbers from O, are right elsewhere alone.
    """
    found: list[OpStrategy] = []
    for strategy in strategies:
        dims = [tensor.dims for tensor in inputs] + [output.dims for output in outputs]
        along = {
            state
            for each, state in zip(dims, (*strategy.inputs, *strategy.outputs), strict=True)
            if any(axes.counts_graphs(dim) for dim in each)
        }
        numbers = any(
            state == "O"
            and tensor.index is not None
            and any(axes.counts_graphs(axis) for axis in tensor.index.axes)
            for tensor, state in zip(inputs, strategy.inputs, strict=True)
        )
        local = "O" in along
        whole = "S" in along or ("R" in along and numbers)
        if local and whole:
            continue
        found.append(
            replace(strategy, closed=True if local else False if whole else strategy.closed)
        )
    return tuple(found)


def with_sizes(
    strategies: Iterable[OpStrategy],
    inputs: Sequence[TensorMeta],
    reads: Sequence[SizeRead],
    providers: Sequence[TensorMeta],
) -> tuple[OpStrategy, ...]:
    """The strategies with the states of the tensors that sizes are read from, behind those of the op's own inputs.

    A size used as a value needs the whole tensor; one used as a shape needs the tensor as the rows are.
    """
    names = [tensor.name for tensor in inputs]
    added = [read for read in reads if read.as_value or read.tensor not in names]
    beside = [read for read in reads if not read.as_value and read.tensor in names]
    found: list[OpStrategy] = []
    for strategy in strategies:
        extra = tuple("R" if read.as_value else strategy.rows for read in added)
        if any(strategy.inputs[names.index(read.tensor)] != strategy.rows for read in beside):
            continue
        if all(state in provider.states for state, provider in zip(extra, providers, strict=True)):
            found.append(replace(strategy, inputs=strategy.inputs + extra))
    return tuple(found)


def with_written(
    strategies: Iterable[OpStrategy],
    inputs: Sequence[TensorMeta],
    written: Sequence[TensorMeta],
) -> tuple[OpStrategy, ...]:
    """The strategies with the states of inputs that are written but not returned (running statistics), as new versions."""
    names = [tensor.name for tensor in inputs]
    return tuple(
        replace(
            strategy,
            outputs=(
                *strategy.outputs,
                *(strategy.inputs[names.index(tensor.name)] for tensor in written),
            ),
        )
        for strategy in strategies
    )


def providers_of(inputs: Sequence[TensorMeta], reads: Sequence[SizeRead]) -> tuple[str, ...]:
    """Names of the tensors that `with_sizes` adds."""
    names = {tensor.name for tensor in inputs}
    return tuple(read.tensor for read in reads if read.as_value or read.tensor not in names)


def _exists(output: Output, state: State, axes: AxisTable) -> bool:
    if state == "R":
        return True
    if state == "S":
        return not axes.cut_by_all(output.dims) and output.index is None
    cut = axes.sharded(output.dims)
    if cut is None:
        return False
    return state == "O" or (axes.has_halo(cut.axis) and _mean_the_same(output.index, axes))


def _mean_the_same(index: IndexInto | None, axes: AxisTable) -> bool:
    """Whether halo rows may hold these positions: numbers of graphs are the same for all who read a node."""
    return index is None or all(axes.counts_graphs(axis) for axis in index.axes)
