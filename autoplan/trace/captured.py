"""Tensors and modules that a loss or a metric takes from its surroundings: found, and exchanged while it runs (torch).

A loss such as ``lambda out, g: F.cross_entropy(out, g.y, weight=w)`` holds ``w`` in a closure cell. The traced step owns
copies of such values as state, and puts them in place for the time of a call.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import os
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from autoplan.errors import TraceError
from autoplan.trace.attributes import graph_name
from autoplan.trace.user_code import is_library

_DEPTH = 3
"""How deep lists, dicts, tuples and plain objects are looked into."""

Wanted = Callable[[object], bool]


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


def is_state(value: object) -> bool:
    """Whether a step owns a copy of it: a tensor, a module or a graph."""
    return isinstance(value, Tensor | nn.Module | Data | HeteroData)


def slots(function: object, wanted: Wanted = is_state) -> list[Slot]:
    """The places that a callable reads tensors, modules and graphs (or whatever is wanted) from, once each.

    Closures, defaults, globals, arguments of `functools.partial` and attributes of a callable object are looked at, with
    what lies in lists, dicts, tuples and plain objects there; so are helper functions of the same Python module.
    """
    found: list[Slot] = []
    _visit(function, getattr(function, "__module__", None), set(), found, wanted)
    return found


def described(what: str, function: object) -> str:
    """A loss or metric for people: ``the loss 'by_nodes' (models.py:12)``; no place where Python does not tell it.

    Args:
        what: ``the loss`` or ``metric 'f1'``; the latter's own name is enough.
        function: the user's, or the one that autoplan chose.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if type(function).__module__.startswith("autoplan."):
        return what
    name = getattr(function, "__name__", type(function).__name__)
    called = function
    if not isinstance(function, types.FunctionType | types.MethodType):
        method = "forward" if isinstance(function, nn.Module) else "__call__"
        called = getattr(type(function), method, None)
    plain = inspect.unwrap(called) if callable(called) else called
    plain = getattr(plain, "__func__", plain)
    told = what if "'" in what else f"{what} {name!r}"
    if not isinstance(plain, types.FunctionType) or is_library(plain.__module__):
        return told
    code = plain.__code__
    return f"{told} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _visit(
    value: object, home: str | None, seen: set[int], found: list[Slot], wanted: Wanted
) -> None:
    """Add the slots behind a callable; ``home`` is the Python module whose functions are entered."""
    if id(value) in seen:
        return
    seen.add(id(value))
    places: Iterator[Slot]
    if isinstance(value, functools.partial):
        _visit(value.func, home, seen, found, wanted)
        places = itertools.chain(_items(value.keywords), _positional(value))
    elif isinstance(value, types.MethodType):
        _visit(value.__func__, home, seen, found, wanted)
        places = _attributes(value.__self__)
    elif isinstance(value, types.FunctionType):
        places = _of_function(value)
    elif callable(value) and not isinstance(value, type | nn.Module | types.BuiltinFunctionType):
        _visit(inspect.getattr_static(type(value), "__call__"), home, seen, found, wanted)
        places = _attributes(value)
    else:
        return
    for place in places:
        content = place.get()
        found.extend(_held(place, content, wanted, _DEPTH))
        if isinstance(content, types.FunctionType) and content.__module__ == home:
            _visit(content, home, seen, found, wanted)


def _held(place: Slot, content: object, wanted: Wanted, depth: int) -> Iterator[Slot]:
    """The place itself if its content is wanted, or places inside the content."""
    if wanted(content):
        yield place
        return
    if depth == 0 or is_state(content):
        return
    for name, value, get, put in _inside(place, content):
        if not isinstance(value, str | int | float | bytes | type(None)):
            yield from _held(Slot(name, get, put), value, wanted, depth - 1)


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


def _positional(partial: functools.partial[Any]) -> Iterator[Slot]:
    """Arguments given by position, by the name of the parameter that they are for."""
    try:
        names = list(inspect.signature(partial.func).parameters)
    except (TypeError, ValueError):  # a function of C without a signature
        names = []
    for position in range(len(partial.args)):
        name = names[position] if position < len(names) else f"argument {position}"
        yield Slot(
            name,
            functools.partial(lambda at: partial.args[at], position),
            functools.partial(_set_positional, partial, position),
        )


def _set_positional(partial: functools.partial[Any], position: int, value: Any) -> None:
    arguments = _replaced(partial.args, position, value)
    state = (partial.func, arguments, partial.keywords, vars(partial))
    partial.__setstate__(state)  # type: ignore[attr-defined]


def _replaced(values: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*values[:position], value, *values[position + 1 :])


_Inner = tuple[str, Any, Callable[[], Any], Callable[[Any], None]]


def _inside(place: Slot, content: object) -> Iterator[_Inner]:
    """Name, value, and how to read and replace each thing that lies directly in a container or a plain object."""
    if isinstance(content, dict | list):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in list(pairs):
            yield (
                f"{place.name}_{key}",
                value,
                functools.partial(content.__getitem__, key),
                functools.partial(content.__setitem__, key),
            )
    elif type(content) is tuple:
        for key, value in enumerate(content):
            yield (
                f"{place.name}_{key}",
                value,
                functools.partial(lambda at: place.get()[at], key),
                functools.partial(lambda at, new: place.put(_replaced(place.get(), at, new)), key),
            )
    elif not isinstance(content, type | types.ModuleType) and not callable(content):
        if is_library(type(content).__module__) and not isinstance(content, types.SimpleNamespace):
            return
        for slot in _attributes(content):
            yield slot.name, slot.get(), slot.get, slot.put


def check_captured(what: str, found: list[Slot], rows: Mapping[str, int], own: set[int]) -> None:
    """Refuse captured tensors that belong to the graph: they would not follow its nodes into a sample or a shard.

    Args:
        what: ``the loss 'by_nodes' (models.py:12)`` or the like.
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
        ids = not value.is_floating_point() and value.dtype.is_signed
        remedy = (
            f"put it on the graph (graph.{graph_name(slot.name, ids=ids)} = {slot.name}) and read it from the second "
            "argument, so that it is cut when the graph is"
        )
        if ids:
            raise TraceError(
                f"{what} captures {slot.name!r} ({shape}), whose entries may be node ids; {remedy}; constants that are "
                f"no ids may be captured as floating point ({slot.name}.float()), or belong to the model as a buffer"
            )
        if axis is not None and value.size(0) > 1:
            raise TraceError(
                f"{what} captures {slot.name!r} ({shape}), with as many rows as the graph has in {axis!r}; {remedy}"
            )
