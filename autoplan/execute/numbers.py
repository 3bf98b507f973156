"""Numbers of a program on one rank: sizes that are shapes are local, sizes that are values are those of the whole graph.

Also which arguments of an op are shapes, and the keys by which rows are told apart in random draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from autoplan.errors import PlanError
from autoplan.execute.source import Body, axis_text, variable
from autoplan.opgraph import OpGraph, State
from autoplan.program.ir import OpStep
from autoplan.program.torch_internals import STORED_ENTRIES, schema, tree_unflatten
from autoplan.stages import mask_of, masks_of
from autoplan.states import has_halo, transitions

_SIZE = re.compile(
    r"\bs(?P<s>\d+)_(?P<d>\d+)\b|\bn(?P<n>\d+)\b|\bz(?P<z>\d+)\b"
    r"|\bv(?P<v>\d+)\.size\((?P<vd>\d+)\)|\bv(?P<vn>\d+)\.numel\(\)|\b(?P<i>i\d+_\d+)\b"
)

_SHAPE_OPERATORS = ("aten.arange.",)
"""Ops whose plain numbers are positions along an axis: shapes."""


class Numbers:
    """Names numbers in a function's body, adding the statements that compute them where they are first needed.

    Args:
        opgraph: axes and dimensions.
        body: where the statements go.
        defined: (tensor, state) of all variables that exist so far, in order (live).
        load: makes the variable of a graph attribute in a state.
        fetch: brings a tensor that is not defined yet in the state that it comes in, if it can be had.
    """

    def __init__(
        self,
        opgraph: OpGraph,
        body: Body,
        defined: Mapping[tuple[str, State], str],
        load: Callable[[str, State], str],
        fetch: Callable[[str], None],
    ) -> None:
        self._load = load
        self._fetch = fetch
        self._opgraph = opgraph
        self._body = body
        self._defined = defined
        self._known: set[str] = set()
        self._texts: dict[str, str] = {}

    def resolve(self, text: str, state: State) -> str:
        """A formula with its sizes replaced: whole ones in state R, else those of this rank's rows in that state."""

        def replace(match: re.Match[str]) -> str:
            group = match.groupdict()
            if group["i"] is not None:
                axis = self._opgraph.last.get(group["i"])
                # every rank has read the number of the whole graph
                local = axis is not None and state not in ("R", "S")
                return f"({self.rows(axis, state)} - 1)" if axis and local else group["i"]
            if group["z"] is not None:
                sparse = self._value(f"v{group['z']}", "R")
                return f"{sparse}.{STORED_ENTRIES}"
            elements = group["n"] or group["vn"]
            if elements is not None:
                dims = self._opgraph.tensors[f"v{elements}"].dims
                return "(" + " * ".join(self._size(dim, state) for dim in dims or (1,)) + ")"
            value = f"v{group['s'] or group['v']}"
            position = int(group["d"] or group["vd"])
            return self._size(self._opgraph.tensors[value].dims[position], state)

        return _SIZE.sub(replace, text)

    def sizes(self, text: str) -> dict[str, str]:
        """The sizes in a formula, by name, as those of the whole graph; numbers that were read are not among them."""
        named = (match[0] for match in _SIZE.finditer(text) if match["i"] is None)
        return {name: self.resolve(name, "R") for name in named}

    def follows_data(self, text: str) -> bool:
        """Whether a formula has the size of an axis whose rows only the data tells."""
        values = {
            f"v{group['s'] or group['v']}": int(group["d"] or group["vd"])
            for group in (match.groupdict() for match in _SIZE.finditer(text))
            if group["s"] or group["v"]
        }
        dims = (self._opgraph.tensors[value].dims[at] for value, at in values.items())
        return any(isinstance(dim, str) and masks_of(self._opgraph, dim) for dim in dims)

    def rows(self, axis: str, state: State) -> str:
        """The name of an axis's number of rows on this rank in a state."""
        about = self._opgraph.axes[axis]
        state = self._state_of(axis, state)
        name = f"rows_{self._text(axis)}_{state}"
        if name in self._known:
            return name
        self._known.add(name)
        if about.kind in ("base", "index"):
            self._body.add_first(f"{name} = context.rows({axis!r}, {state!r})")
            return name
        for (tensor, lies), source in self._defined.items():
            dims = self._opgraph.tensors[tensor].dims
            if lies == state and axis in dims:
                self._body.add_after(source, f"{name} = {source}.size({dims.index(axis)})")
                return name
        if about.kind == "concat":
            parts = " + ".join(self.rows(part, state) for part in about.parts)
            self._body.add(f"{name} = {parts}")
        elif about.kind == "blocks":
            self._body.add(f"{name} = {self.rows(about.parts[0], state)} * {about.width}")
        elif about.kind == "select":
            mask = self._value(mask_of(axis), state)
            self._body.add_after(mask, f"{name} = int({mask}.sum())")
        elif holder := self._input_along(axis):
            source = self._load(holder, state)
            position = self._opgraph.tensors[holder].dims.index(axis)
            self._body.add_after(source, f"{name} = {source}.size({position})")
        else:
            raise PlanError(
                f"the number of rows of axis {axis!r} is needed before any tensor has them; no strategy but R can serve "
                "this program: plan with one device"
            )
        return name

    def keys(self, axis: str, state: State) -> str:
        """The variable that holds the global keys of an axis's rows on this rank in a state."""
        about = self._opgraph.axes[axis]
        state = self._state_of(axis, state)
        name = f"keys_{self._text(axis)}_{state}"
        if name in self._known:
            return name
        self._known.add(name)
        if about.kind in ("base", "index"):
            self._body.add_first(f"{name} = context.keys({axis!r}, {state!r})", name)
        elif about.kind == "select":
            parent = self.keys(about.parts[0], state)
            self._body.add(f"{name} = {parent}[{self._value(mask_of(axis), state)}]", name)
        elif about.kind == "concat":
            parts = [self.keys(about.parts[0], state)]
            offset = self._bound(about.parts[0])
            for part in about.parts[1:]:
                parts.append(f"{self.keys(part, state)} + ({offset})")
                offset = f"{offset} + {self._bound(part)}"
            self._body.add(f"{name} = torch.cat([{', '.join(parts)}])", name)
        elif about.kind == "blocks":
            first = f"{self.keys(about.parts[0], state)}.unsqueeze(1) * {about.width}"
            within = f"torch.arange({about.width}, device=device)"
            self._body.add(f"{name} = ({first} + {within}).flatten()", name)
        else:
            rows = self.rows(axis, state)
            self._body.add(f"{name} = torch.arange({rows}, device=device)", name)
        return name

    def _state_of(self, axis: str, state: State) -> State:
        """Where an axis has no rows of its own in a state: only nodes have a halo, and other axes are whole everywhere."""
        if self._opgraph.axes[axis].kind == "other" or state == "S":
            return "R"
        return "O" if state == "H" and not has_halo(self._opgraph.axes, axis) else state

    def _text(self, axis: str) -> str:
        """An axis as a part of an identifier that no other axis has."""
        if axis not in self._texts:
            text = axis_text(axis)
            while text in self._texts.values():
                text += "_"
            self._texts[axis] = text
        return self._texts[axis]

    def _input_along(self, axis: str) -> str | None:
        """A graph attribute with a dimension along the axis."""
        for name, tensor in self._opgraph.tensors.items():
            if tensor.origin == "input" and axis in tensor.dims:
                return name
        return None

    def _bound(self, axis: str) -> str:
        """The most rows an axis can have, from base axes: a selection's is its parent's."""
        about = self._opgraph.axes[axis]
        if about.kind == "select":
            return self._bound(about.parts[0])
        if about.kind == "concat":
            return " + ".join(self._bound(part) for part in about.parts)
        if about.kind == "blocks":
            return f"({self._bound(about.parts[0])}) * {about.width}"
        return self.rows(axis, "R")

    def _size(self, dim: str | int, state: State) -> str:
        return str(dim) if isinstance(dim, int) else self.rows(dim, state)

    def _value(self, tensor: str, state: State) -> str:
        """The variable of a tensor in a state; cut from another state where that takes no exchange."""
        if not any(name == tensor for name, _ in self._defined):
            self._fetch(tensor)
        found = self._defined.get((tensor, state))
        if found is not None:
            return found
        meta = self._opgraph.tensors[tensor]
        for step in transitions(meta, self._opgraph.axes):
            source = self._defined.get((tensor, step.source))
            if step.target == state and step.exchange == "none" and source is not None:
                name = variable(tensor, state)
                dim = next(d for d, a in enumerate(meta.dims) if isinstance(a, str))
                cut = {"H": "drop_halo", "R": "own_rows"}[step.source]
                axis = str(meta.dims[dim])
                self._body.add(f"{name} = exchange.{cut}(context, {source}, {axis!r}, {dim})", name)
                return name
        raise PlanError(
            f"the rows that tensor {tensor} selects are needed in state {state}, where the plan does not have it; "
            "choose that state for the op that makes it"
        )


def is_shape(step: OpStep, operator: str) -> list[bool]:
    """Per flat argument of a step, whether a number there is a shape (else a value)."""
    if step.opaque:
        return [False] * len(step.args)
    if operator.startswith(_SHAPE_OPERATORS):
        return [True] * len(step.args)
    args, kwargs = tree_unflatten(list(range(len(step.args))), step.spec)
    shape = [False] * len(step.args)
    arguments = schema(step.func).arguments
    given = dict(zip([argument.name for argument in arguments], args)) | kwargs  # noqa: B905
    for argument in arguments:
        text = str(argument.type)
        if "int" in text and "number" not in text and argument.name in given:
            for position in _leaves(given[argument.name]):
                shape[position] = True
    return shape


def _leaves(value: Any) -> list[int]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]
