"""The program of one rank: generated Python and what it needs, as data that can be sent to a worker.

The same `RankProgram` runs on every rank; what differs is the `RankContext` and the tensors handed to `run`. It needs
torch and `autoplan.program` only: neither the user's model nor PyG. `autoplan.execute.rewrite` writes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.errors import GuardError, PlanError
from autoplan.opgraph import IndexInto, State
from autoplan.program import exchange
from autoplan.program.codegen import ConstantTable, compile_source, numbers_found
from autoplan.program.context import RankContext
from autoplan.program.kernels import KERNELS

InputKey = tuple[str, State]
"""A graph attribute, and the state it is to be loaded in."""
TensorKey = tuple[str, State]
"""A tensor of the OpGraph, and the state it lies in."""


@dataclass(frozen=True, slots=True)
class RankInput:
    """A graph attribute that the program reads.

    Attributes:
        attribute: its name; state: how it is loaded.
        dim: the dimension that a partition cuts, None where there is none (then the state is R).
        axis: the base or index axis of that dimension.
        index: set where its values are positions along an axis: global in state R, local in O.
        written: the program writes over it, so that it is given a copy.
    """

    attribute: str
    state: State
    dim: int | None
    axis: str | None
    index: IndexInto | None
    written: bool = False


@dataclass(frozen=True, slots=True)
class RankOutput:
    """A value that the program returns.

    Attributes:
        name: of the tensor in the OpGraph, or None for a plain value.
        state: R or O: partial sums are reduced and halo rows dropped before they are returned.
        dim: the dimension that a partition cuts, None where there is none.
        axis: the axis of that dimension.
        keys: in state O along an axis that is not a base axis, where in the returned list the global keys of its rows
            are: sorted by key, the rows of all ranks are in the order of one device.
    """

    name: str | None
    state: State
    dim: int | None
    axis: str | None
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class RankTransition:
    """A transition in the program, in order of execution.

    Attributes:
        tensor: single-assignment name; source, target, exchange: as in `autoplan.states`.
        differentiable: it was recorded where gradients are tracked and the tensor may require one.
    """

    tensor: str
    source: State
    target: State
    exchange: str
    differentiable: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RankProgram:
    """One rank's program. Picklable.

    Attributes:
        source: Python text that defines ``step(context, parameters, buffers, inputs, capture, received)``.
        operators: by name in the text, the qualified name of an ATen overload (``aten.mm.default``).
        objects: by name in the text, constant tensors (on the CPU), what kernels are told of their ops, functions of torch.
        inputs: attributes to load, each in one or more states.
        parameters: paths of the parameters it reads; buffers: of the buffers and tensor attributes it reads.
        written: paths of buffers that it changes in place.
        trained: paths of the parameters that get a gradient from the loss.
        outputs: what it returns, flat, in the order of the traced program's outputs; the loss first where there is one.
        transitions: exchanges and slices, in order.
        gathered: axes along which it all-gathers (`RankContext.prepare`).
        has_loss: its first output is a scalar loss, equal on all ranks (a partial sum where it is a part of a pipeline).
        receives: tensors that earlier stages make, and their states; sends: tensors that later stages read. Empty where the
            program is whole.
        closed: the partition that it is right on: True: closed ones, False: others, None: any.
    """

    source: str
    operators: Mapping[str, str]
    objects: Mapping[str, Any]
    inputs: tuple[RankInput, ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    written: tuple[str, ...]
    trained: tuple[str, ...]
    outputs: tuple[RankOutput, ...]
    transitions: tuple[RankTransition, ...]
    gathered: tuple[str, ...]
    has_loss: bool
    receives: tuple[TensorKey, ...] = ()
    sends: tuple[TensorKey, ...] = ()
    closed: bool | None = None

    def run(
        self,
        context: RankContext,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        inputs: Mapping[InputKey, Any],
        capture: Callable[..., None] | None = None,
        received: Mapping[TensorKey, torch.Tensor] | None = None,
    ) -> list[Any]:
        """Runs one forward pass; gradients follow from calling ``backward`` on the loss on every rank.

        Args:
            context: this rank's place, rows, seed and step.
            parameters: by path; leaves whose ``requires_grad`` is set get gradients.
            buffers: by path; those in ``written`` are changed in place.
            inputs: by (attribute, state).
            capture: for `execute.lockstep`: called with (op index, tensor name, state, tensor, keys) for every result of a
                program that was written with ``capture=True``.
            received: what the program ``receives``.

        Returns:
            The outputs, in the order of ``outputs``, then the keys that some of them name, then what it ``sends``. With the
            loss in R on every rank, gradients summed over ranks carry a factor of the number of ranks, which a mean over
            ranks removes.

        Raises:
            GuardError: a decision recorded from the samples comes out differently.
            PlanError: an input, parameter, buffer or received tensor is missing, or the partition is not of the kind that
                the program was written for.
        """
        step = _COMPILED.get(self)
        if step is None:
            step = _compile(self)
            _COMPILED[self] = step
        if self.closed is not None and self.closed is not context.closed:
            kind, found = ("", "not ") if self.closed else ("not ", "")
            raise PlanError(
                f"the program was written for a partition that is {kind}closed, this one is {found}closed; plan again"
            )
        _check_given("parameter", self.parameters, parameters)
        _check_given("buffer", self.buffers, buffers)
        _check_given("input", [(i.attribute, i.state) for i in self.inputs], inputs)
        given = received or {}
        _check_given("tensor", self.receives, given)
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            result: list[Any] = step(context, parameters, buffers, inputs, capture, given)
        return result


_COMPILED: weakref.WeakKeyDictionary[RankProgram, Callable[..., list[Any]]] = (
    weakref.WeakKeyDictionary()
)


def _compile(program: RankProgram) -> Callable[..., list[Any]]:
    table = ConstantTable(dict(program.operators), dict(program.objects))
    step: Callable[..., list[Any]] = compile_source(
        program.source,
        table,
        "step",
        exchange=exchange,
        kernels=KERNELS,
        GuardError=GuardError,
        numbers_found=numbers_found,
    )
    return step


def _check_given(what: str, needed: Any, given: Mapping[Any, Any]) -> None:
    missing = [name for name in needed if name not in given]
    if missing:
        raise PlanError(
            f"the program reads {what} {missing[0]!r}, which is not given ({len(missing)} missing); "
            "use the model and graph that the plan was made for"
        )
