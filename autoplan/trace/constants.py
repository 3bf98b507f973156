"""Lists, arrays and other plain numbers that the user's code takes from its surroundings: where they are node ids (torch).

A captured tensor is state of the step (`trace.captured`); a Python list or NumPy array is a constant of the program. It is
right as such, for an op that reads it sees all rows; but it lists rows of the whole graph, which a sample may not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from autoplan.opgraph import is_edge_axis, is_node_axis, type_of_axis
from autoplan.trace.attributes import graph_name
from autoplan.trace.captured import slots
from autoplan.trace.scope import label, rows_word

_SEQUENCES = (list, tuple, range, set, frozenset)
_NAMES = {np.ndarray: "NumPy array", Tensor: "tensor", frozenset: "set"}


@dataclass(frozen=True, slots=True)
class Constant:
    """Plain numbers that a function or a module holds.

    Attributes:
        name: the variable's, or the path of a module's attribute.
        kind: ``list``, ``NumPy array`` and so on.
        values: [n] of any dtype, flattened.
        rows: entries of its first dimension.
    """

    name: str
    kind: str
    values: NDArray[Any]
    rows: int

    def __str__(self) -> str:
        what = {"b": "booleans", "i": "integers"}.get(self._dtype, "numbers")
        largest = f", the largest {self.values.max()}" if self.holds_ids else ""
        return f"{self.name!r} (a {self.kind} of {self.values.size} {what}{largest})"

    @property
    def _dtype(self) -> str:
        return "i" if self.values.dtype.kind == "u" else self.values.dtype.kind

    @property
    def holds_ids(self) -> bool:
        """Whether its entries may be positions."""
        return self._dtype == "i"

    def reaches(self, rows: int) -> bool:
        """Whether it lists a row that a tensor of so many rows does not have."""
        return self.holds_ids and bool(self.values.max() >= rows or self.values.min() < -rows)

    def lies_along(self, rows: int) -> bool:
        """Whether it has an entry for each of so many rows, more than one."""
        return self.rows == rows > 1


def constants_of(function: object) -> list[Constant]:
    """The plain numbers behind a loss, a metric or a model: captured variables, or attributes and buffers of a module."""
    if not isinstance(function, nn.Module):
        found = [_constant(slot.name, slot.get()) for slot in slots(function, _is_constant)]
        modules = [slot for slot in slots(function) if isinstance(slot.get(), nn.Module)]
        found += [c for slot in modules for c in constants_of(slot.get())]
        return [constant for constant in found if constant is not None]
    return list(_of_module(function))


def _of_module(module: nn.Module) -> Iterator[Constant]:
    for path, submodule in module.named_modules():
        held = {**vars(submodule), **dict(submodule.named_buffers(recurse=False))}
        for key, value in held.items():
            constant = _constant(f"{path}.{key}".lstrip("."), value)
            if constant is not None:
                yield constant


def _is_constant(value: object) -> bool:
    return _constant("", value) is not None


def _constant(name: str, value: object) -> Constant | None:
    """The numbers in a value; None where it is no collection of plain numbers."""
    if isinstance(value, Tensor):
        if value.dim() == 0 or value.layout != torch.strided or not value.numel():
            return None
        plain = value.detach().cpu()
        array = (plain.double() if plain.is_floating_point() else plain).numpy()
    elif isinstance(value, _SEQUENCES):
        entries = list(value)
        if not entries or not all(isinstance(e, bool | int | float | np.number) for e in entries):
            return None
        array = np.asarray(entries)
    elif isinstance(value, np.ndarray) and value.size and value.ndim:
        array = value
    else:
        return None
    if array.dtype.kind not in "biuf":
        return None
    kind = next((text for cls, text in _NAMES.items() if isinstance(value, cls)), None)
    return Constant(name, kind or type(value).__name__, array.reshape(-1), len(array))


def node_ids(
    function: object,
    role: str,
    *,
    real: Mapping[str, int],
    sample: Mapping[str, int],
) -> str | None:
    """A clause that names captured numbers which belong on the graph, with the remedy; None where there are none.

    Args:
        function: the loss, metric or model that failed on a sample.
        role: ``the loss``, ``metric 'f1'`` or ``forward``: where the numbers are to be read from the graph instead.
        real: rows of the graph's axes.
        sample: rows of the sample's.
    """
    constants = constants_of(function)
    node_axes = [axis for axis in real if is_node_axis(axis)]
    for axis in (*node_axes, *filter(is_edge_axis, real)):
        for constant in constants:
            if constant.lies_along(real[axis]):
                return (
                    f"it captures {constant}, an entry for each {rows_word(axis)} of the whole graph: "
                    f"{_remedy(constant, role, type_of_axis(axis))}"
                )
    most = max(real[axis] for axis in node_axes)
    least = min(min(sample[axis], real[axis]) for axis in node_axes)
    kind = type_of_axis(node_axes[0]) if len(node_axes) == 1 else "TYPE"
    for constant in constants:
        if constant.reaches(least):
            what = f"it captures {constant}, "
            if constant.reaches(most):
                return f"{what}but the graph has {most} nodes: fix the ids, and {_remedy(constant, role, kind)}"
            return f"{what}ids of nodes of the whole graph: {_remedy(constant, role, kind)}"
    return None


def _remedy(constant: Constant, role: str, kind: str | None) -> str:
    name = graph_name(constant.name, ids=constant.holds_ids)
    place = label(kind, name)
    if constant.kind in ("range", "set"):
        given = f"torch.tensor(sorted({constant.name}))"
    else:
        given = constant.name if constant.kind == "tensor" else f"torch.as_tensor({constant.name})"
    return (
        f"put it on the graph ({place} = {given}) and use {place} in {role}, "
        "so that it is cut when the graph is"
    )
