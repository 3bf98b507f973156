"""One recorded call as a rule sees it, and what a rule answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoplan.opgraph import (
    DTYPE_BYTES,
    Collective,
    IndexInto,
    OpStrategy,
    Polynomial,
    State,
    TensorMeta,
    Work,
)
from autoplan.trace.rules.axes import AxisTable, Dim, Dims, Sharded, Sizes
from autoplan.trace.rules.numbers import Numbers


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that a call returns.

    Attributes:
        dims: what its dimensions count.
        index: set when its values are positions along an axis.
        identity: equal for tensors that hold the same values (two selections of one row); empty: only itself.
        owned_where: of a boolean tensor: identities of index tensors whose positions are owned rows where it holds
            (``True``) or where it does not (``False``).
    """

    dims: Dims
    index: IndexInto | None = None
    identity: str = ""
    owned_where: Mapping[bool, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule says of a call.

    Attributes:
        outputs: one for each tensor returned.
        forward, backward: the work in each direction, where a backward takes place.
        strategies: the ways to run it beyond R (every input and output in R), which is always admitted.
        kernel: of strategy R.
        reads_positions: the rule knows what becomes of positions, so that inputs that hold some may be local ones.
    """

    outputs: tuple[Output, ...]
    forward: Work
    backward: Work
    strategies: tuple[OpStrategy, ...] = ()
    kernel: str = "local"
    reads_positions: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an ATen operator.

    Attributes:
        name: ``aten.mm.default``; base: ``mm`` (without the trailing underscore of an in-place variant).
        arguments: by the schema's names, defaults filled in: a `TensorMeta`, a list that may hold some, an `Expression`
            for a computed number, or a constant.
        inputs: the tensors among them, once each, in order.
        shapes: of each tensor returned, per sample.
        dtypes: of each tensor returned.
        axes, numbers: the program's.
        identities: by tensor name, see `Output`; owned_where: likewise.
        repeated: by tensor name, the dimensions along which an expanded tensor repeats what it holds.
        known: every tensor of the program so far.
    """

    name: str
    base: str
    arguments: Mapping[str, Any]
    inputs: tuple[TensorMeta, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    dtypes: tuple[str, ...]
    axes: AxisTable
    numbers: Numbers
    identities: Mapping[str, str]
    owned_where: Mapping[str, Mapping[bool, frozenset[str]]]
    repeated: Mapping[str, frozenset[int]]
    known: Mapping[str, TensorMeta] = field(default_factory=dict)

    def tensor(self, argument: str) -> TensorMeta:
        """The tensor given for an argument."""
        value = self.arguments[argument]
        assert isinstance(value, TensorMeta), f"{self.name}: {argument} is no tensor"
        return value

    def tensors(self, argument: str) -> tuple[TensorMeta, ...]:
        """The tensors in a list argument."""
        return tuple(value for value in self.arguments[argument] if isinstance(value, TensorMeta))

    def get(self, argument: str, default: Any = None) -> Any:
        """An argument, or the default where the operator's schema has none of that name."""
        return self.arguments.get(argument, default)

    def seen(self, output: int) -> tuple[Sizes, ...]:
        """Per dimension of a returned tensor, its size in every sample."""
        return tuple(zip(*self.shapes[output], strict=True))

    def matched(self, output: int = 0) -> Dims:
        """Dimensions of a returned tensor by their sizes alone."""
        return tuple(self.axes.match(sizes) for sizes in self.seen(output))

    def sharded(self, tensor: TensorMeta) -> Sharded | None:
        """The one dimension of an input that a partition cuts."""
        return self.axes.sharded(tensor.dims)

    def identity(self, tensor: TensorMeta) -> str:
        """What is equal for tensors that hold the same values."""
        return self.identities.get(tensor.name, tensor.name)

    @property
    def chosen_dim(self) -> int | None:
        """The dimension of its result whose size is decided by what its tensors hold; None: shapes decide all."""
        if self.base in ("nonzero", "masked_select"):
            return 0
        indices = self.arguments.get("indices") or () if self.base == "index" else ()
        masks = (
            position
            for position, index in enumerate(indices)
            if isinstance(index, TensorMeta) and index.dtype in ("bool", "uint8")
        )
        return next(masks, None)

    def is_given(self, tensor: TensorMeta) -> bool:
        """Whether it holds what one of the graph's own tensors does."""
        first = self.known.get(self.identity(tensor), tensor)
        return first.origin == "input"

    def first_of(self, tensor: TensorMeta) -> str:
        """The name of the first tensor that holds the same values: equal masks select the same rows."""
        return self.axes.masks.setdefault(self.identity(tensor), tensor.name)

    def held(self, tensor: TensorMeta) -> Polynomial:
        """Bytes that an input holds: an expanded tensor holds less than its size."""
        skipped = self.repeated.get(tensor.name, frozenset())
        dims = tuple(dim for position, dim in enumerate(tensor.dims) if position not in skipped)
        return product(dims) * DTYPE_BYTES[tensor.dtype]

    @property
    def positions(self) -> bool:
        """Whether an input holds positions along an axis."""
        return any(tensor.index is not None for tensor in self.inputs)

    def strategy(
        self,
        name: str,
        states: Mapping[str, State],
        outputs: State | Sequence[State],
        *,
        rows: State | None = None,
        kernel: str = "local",
        collectives: tuple[Collective, ...] = (),
        closed: bool | None = None,
    ) -> OpStrategy:
        """A strategy in which the inputs named in ``states`` lie so, and all others in R."""
        given: tuple[State, ...] = (
            (outputs,) * len(self.shapes) if isinstance(outputs, str) else tuple(outputs)
        )
        return OpStrategy(
            name,
            tuple(states.get(tensor.name, "R") for tensor in self.inputs),
            given,
            rows or ("R" if name not in ("O", "H") else "O" if name == "O" else "H"),
            kernel,
            collectives,
            closed,
        )


def normal(dim: int, dims: int) -> int:
    """A dimension counted from the front."""
    return dim % dims if dims else 0


def product(dims: Sequence[Dim]) -> Polynomial:
    """Number of elements of a tensor with these dimensions."""
    total = Polynomial.of(1)
    for dim in dims:
        total = total * (Polynomial.of(dim) if isinstance(dim, int) else Polynomial.of(1, dim))
    return total
