"""Tensors and modules that a loss or a metric takes from its surroundings: found, and exchanged while it runs (torch).

A loss such as ``lambda out, g: F.cross_entropy(out, g.y, weight=w)`` holds ``w`` in a closure cell. The traced step owns
copies of such values as state, and puts them in place for the time of a call.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from autoplan.errors import TraceError


@dataclass(frozen=True, slots=True)
class Slot:
    """A place outside the step that holds a tensor, a module or a graph.

    Attributes:
        name: the variable's name.
        get, put: read it and replace its content.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


def slots(function: object) -> list[Slot]:
    """The places that a callable reads tensors, modules and graphs from, once each.

    Closures, defaults, globals, `functools.partial` keywords and attributes of a callable object are looked at, and so are
    helper functions of the same Python module.
    """
    found: list[Slot] = []
    _visit(function, getattr(function, "__module__", None), set(), found)
    return found


def _visit(value: object, home: str | None, seen: set[int], found: list[Slot]) -> None:
    """Add the slots behind a callable; ``home`` is the Python module whose functions are entered."""
    if id(value) in seen:
        return
    seen.add(id(value))
    places: Iterator[Slot]
    if isinstance(value, functools.partial):
        _visit(value.func, home, seen, found)
        places = _items(value.keywords)
    elif isinstance(value, types.MethodType):
        _visit(value.__func__, home, seen, found)
        places = _attributes(value.__self__)
    elif isinstance(value, types.FunctionType):
        places = _of_function(value)
    elif callable(value) and not isinstance(value, type | nn.Module | types.BuiltinFunctionType):
        _visit(inspect.getattr_static(type(value), "__call__"), home, seen, found)
        places = _attributes(value)
    else:
        return
    for place in places:
        content = place.get()
        if isinstance(content, Tensor | nn.Module | Data | HeteroData):
            found.append(place)
        elif isinstance(content, dict | list):
            found.extend(slot for slot in _inside(place.name, content))
        elif isinstance(content, types.FunctionType) and content.__module__ == home:
            _visit(content, home, seen, found)


def _of_function(function: types.FunctionType) -> Iterator[Slot]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if _filled(cell):
            yield Slot(
                name,
                functools.partial(getattr, cell, "cell_contents"),
                functools.partial(setattr, cell, "cell_contents"),
            )
    yield from _items(function.__kwdefaults__ or {})
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for position, name in enumerate(names[len(names) - len(defaults) :]):
        yield Slot(
            name,
            functools.partial(_default, function, position),
            functools.partial(_set_default, function, position),
        )
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield Slot(
                name,
                functools.partial(function.__globals__.__getitem__, name),
                functools.partial(function.__globals__.__setitem__, name),
            )


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return False
    return True


def _default(function: types.FunctionType, position: int) -> Any:
    return (function.__defaults__ or ())[position]


def _set_default(function: types.FunctionType, position: int, value: Any) -> None:
    defaults = list(function.__defaults__ or ())
    defaults[position] = value
    function.__defaults__ = tuple(defaults)


def _global_names(code: types.CodeType) -> list[str]:
    """Names that code (and functions defined in it) loads from its globals; attribute names are not among them."""
    names = [
        i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    ]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _global_names(constant)
    return list(dict.fromkeys(names))


def _items(mapping: dict[str, Any]) -> Iterator[Slot]:
    for name in list(mapping):
        yield Slot(
            name,
            functools.partial(mapping.__getitem__, name),
            functools.partial(mapping.__setitem__, name),
        )


def _attributes(value: object) -> Iterator[Slot]:
    for name in list(getattr(value, "__dict__", {})):
        yield Slot(
            name, functools.partial(getattr, value, name), functools.partial(setattr, value, name)
        )


def _inside(name: str, container: dict[Any, Any] | list[Any]) -> Iterator[Slot]:
    """Tensors, modules and graphs that lie directly in a list or dict."""
    pairs = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in list(pairs):
        if isinstance(value, Tensor | nn.Module | Data | HeteroData):
            yield Slot(
                f"{name}_{key}",
                functools.partial(container.__getitem__, key),
                functools.partial(container.__setitem__, key),
            )


def check_captured(what: str, found: list[Slot], rows: Mapping[str, int], own: set[int]) -> None:
    """Refuse captured tensors that belong to the graph: they would not follow its nodes into a sample or a shard.

    Args:
        what: ``the loss`` or ``metric 'f1'``.
        found: its slots.
        rows: rows of the real graph's axes.
        own: ids of the model's own tensors, which may be captured.

    Raises:
        TraceError: a graph, a tensor of indices, or one with a row per node or edge.
    """
    for slot in found:
        value = slot.get()
        if isinstance(value, Data | HeteroData):
            raise TraceError(
                f"{what} reads the graph from the variable {slot.name!r}; read its second argument instead: "
                f"a shard has its own graph"
            )
        if not isinstance(value, Tensor) or id(value) in own or value.dim() == 0:
            continue
        shape = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        axis = next((axis for axis, count in rows.items() if count == value.size(0)), None)
        remedy = (
            f"put it on the graph (graph.{slot.name} = {slot.name}) and read it from the second argument, "
            f"so that it is cut when the graph is"
        )
        if not value.is_floating_point() and value.dtype.is_signed:
            raise TraceError(
                f"{what} captures {slot.name!r} ({shape}), whose entries may be node ids; {remedy}"
            )
        if axis is not None and value.size(0) > 1:
            raise TraceError(
                f"{what} captures {slot.name!r} ({shape}), with as many rows as the graph has in {axis!r}; {remedy}"
            )
