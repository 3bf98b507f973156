"""The traced program: straight-line steps over named values, valid for any graph size. Data only; see `codegen`.

Names: ``v3`` is a tensor; ``s3_0`` the size of ``v3`` along dimension 0, ``n3`` its number of elements, ``z3`` its number
of stored entries (sparse); ``i7_0`` a number that step 7 read from tensors; ``a2`` a plain number or other non-tensor among the inputs.
An `Expression` is Python text over such names, ``math``, ``torch``, ``inf``, ``nan`` and ``device`` (the device of the run).
A device among an op's arguments stands for the device of the run, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from autoplan.program.modes import Modes

# where guards stand that say what an input must look like, until an attribute of the graph is known for it
INPUT = "input"
# how such a place begins then
GRAPH = "graph."

_SIZE_OF = re.compile(r"(v\d+)\.size\(\d+\)")
_NAME = re.compile(r"\b[vsnzia]\d+(?:_\d+)?\b")


@dataclass(frozen=True, slots=True)
class Expression:
    """Something computed at run time: a value's name, or a formula of numbers."""

    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """The program's names it reads, in order, once each."""
        return tuple(dict.fromkeys(_NAME.findall(self.text)))

    def replaced(self, name: str, text: str) -> str:
        """The text with one of the program's names replaced."""
        return re.sub(rf"\b{name}\b", text, self.text)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class SizeStep:
    """``name`` = a size of tensor ``value``: of dimension ``dim``, or its elements (``numel``) or stored entries (``nnz``)."""

    name: str
    value: str
    dim: int | None
    what: Literal["size", "numel", "nnz"]
    where: str


@dataclass(frozen=True, slots=True)
class GuardStep:
    """``test`` must evaluate to ``expected`` (a plain value, a dtype, or a tensor: same content), else `GuardError`."""

    test: Expression
    expected: Any
    where: str

    @property
    def held(self) -> str | None:
        """The value that must have the size that it had in every recording, where this is the whole test."""
        found = _SIZE_OF.fullmatch(self.test.text)
        return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class ConstantStep:
    """A tensor made from Python data: ``value``, or (when its entries are formulas) ``expression``."""

    name: str
    value: torch.Tensor | None
    expression: Expression | None
    where: str


@dataclass(frozen=True, slots=True)
class OpStep:
    """One call.

    Attributes:
        func: an ATen overload; where ``opaque``, a Python callable whose inside was not recorded.
        args: flat; an `Expression` for each tensor or formula, else the constant; ``spec`` restores (args, kwargs).
        outs: names of what it returns: ``v`` a tensor, ``i`` a number, ``_`` nothing. An in-place op returns the name of
            the value that it wrote, or a new one where it changed the shape (``unsqueeze_``).
        sequence: list or tuple where it returns one, else None.
        grad: grad mode around it.
        module: path of the module that was running (``convs.0.lin``), empty for the root and the loss.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    spec: Any
    outs: tuple[str, ...]
    sequence: type | None
    grad: bool
    opaque: bool
    module: str
    where: str

    @property
    def reads(self) -> tuple[str, ...]:
        """Names it reads, tensors and numbers."""
        return tuple(
            dict.fromkeys(n for a in self.args if isinstance(a, Expression) for n in a.names)
        )


Step = SizeStep | GuardStep | ConstantStep | OpStep


@dataclass(frozen=True, slots=True)
class StateSlot:
    """A tensor of the model that the program reads: where it lives.

    Every parameter and buffer has a slot, read or not; a plain attribute has one where it is read. A tensor that lives
    in several places (tied weights) has the first.
    """

    name: str
    module: str
    kind: Literal["parameter", "buffer", "attribute"]
    key: str

    @property
    def path(self) -> str:
        """The model's own name for it: ``conv1.lin.weight``."""
        return f"{self.module}.{self.key}" if self.module else self.key


@dataclass(frozen=True, slots=True)
class Sample:
    """What one recording saw: shapes, dtypes and aliases by value name."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
    strides: Mapping[str, tuple[int, ...]]
    alias: Mapping[str, str]
    """Value name -> name of the value that first held its storage (itself where it owns it)."""


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order; inputs, state and outputs by name.

    Attributes:
        inputs: value (``v``) or number (``a``) names in call order; ``input_paths``: their place in the call's
            structure, ``.0`` the first argument.
        outputs: flat; Expression for tensors and numbers, else the constant; ``out_spec`` restores the structure.
        samples: what each generalised recording saw (three or more, of distinct sizes).
        training: per module path, the mode it was recorded in; modes: what surrounded the whole call.
    """

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    input_paths: tuple[str, ...]
    state: tuple[StateSlot, ...]
    outputs: tuple[Any, ...]
    out_spec: Any
    samples: tuple[Sample, ...]
    training: Mapping[str, bool] = field(default_factory=dict)
    modes: Modes = field(default_factory=Modes.current)
