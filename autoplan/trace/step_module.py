"""Model, loss and metrics as one module over the graph's tensors: what is recorded (torch)."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from autoplan.trace.arguments import Arguments
from autoplan.trace.captured import Slot, check_captured, described, slots
from autoplan.trace.rebuilding import GraphTemplate
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph
from autoplan.trace.tables import Tables, cut_tables

MODEL, CAPTURED = "model", "captured"
"""Submodules of a `StepModule`: the copy of the user's model, and copies of what loss and metrics capture."""


def user_name(path: str) -> str:
    """The user's name of something in a step: ``conv1.lin`` for ``model.conv1.lin``; captured things keep theirs."""
    if path == MODEL:
        return ""
    return path.removeprefix(f"{MODEL}.")


def own_values(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by path in a step -> by the model's own names; what its loss or metrics captured is left out."""
    return {
        user_name(path): value
        for path, value in values.items()
        if not path.startswith(f"{CAPTURED}.")
    }


class Borrowed:
    """The user's own objects inside a step; a copy of the step shares them."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: dict[int, Any]) -> Borrowed:
        return self


class UserFunction(Borrowed):
    """A loss or metric, and what takes the place of the tensors and modules that it captures.

    Attributes:
        value: the function; None where it is a module, which lies in the step under ``path``.
        path: see above.
        places: each captured place with the path, in the step, of what belongs there.
        role: ``the loss`` or ``metric 'f1'``.
        what: ``the loss 'by_nodes' (models.py:12)``, or a metric likewise.
    """

    def __init__(
        self,
        value: Callable[..., Any] | None,
        path: str,
        places: tuple[tuple[Slot, str], ...],
        role: str,
        what: str,
    ) -> None:
        super().__init__(value)
        self.path = path
        self.places = places
        self.role = role
        self.what = what


class StepModule(nn.Module):
    """One step: takes the graph's tensors in schema order; returns loss, output and metrics as far as there are any.

    With a loss: ``(loss, out)``; with metrics: ``(out, {name: value})``; with both: ``(loss, out, {...})``; with neither: ``out``.

    Args:
        model: the copy that runs; its own parameter names are those of ``user_model``.
        user_model: the user's model; where loss or metrics capture it or its tensors, the copy's are used instead.
        graph: the user's graph; only its attributes that are no tensors are kept.
        schema: its schema.
        arguments: what forward is given.
        loss: ``loss(out, graph)``, or None.
        metrics: by name, functions like the loss.
        tables: the model's tensors with an entry for each node, which are cut to the graph's.

    Attributes:
        running: the loss or metric that is being called, or that failed.

    Raises:
        TraceError: loss or metrics capture tensors that belong on the graph.
    """

    def __init__(
        self,
        model: nn.Module,
        user_model: nn.Module,
        graph: AnyGraph,
        schema: GraphSchema,
        arguments: Arguments,
        loss: Callable[..., Any] | None = None,
        metrics: Mapping[str, Callable[..., Any]] | None = None,
        tables: Tables | None = None,
    ) -> None:
        super().__init__()
        self.add_module(MODEL, model)
        self.add_module(CAPTURED, nn.Module())
        self._arguments = arguments
        self._template = Borrowed(GraphTemplate.of(graph, schema))
        self.running: UserFunction | None = None
        self._names = schema.names
        self._tables = dict(tables or {})
        own = _paths_by_identity(user_model)
        self._loss = None if loss is None else self._take(loss, "loss", "the loss", schema, own)
        self._metrics = {
            name: self._take(function, f"metric_{name}", f"metric {name!r}", schema, own)
            for name, function in (metrics or {}).items()
        }

    @property
    def has_loss(self) -> bool:
        """Whether the first output is a loss."""
        return self._loss is not None

    @property
    def used(self) -> tuple[str, ...]:
        """The graph's attributes that the model's forward gets by themselves."""
        return self._arguments.attributes

    @property
    def given_by_type(self) -> tuple[str, ...]:
        """Arguments of the model's forward that get an attribute of every type, though their names do not say so."""
        return self._arguments.by_type_without_saying

    def forward(self, *tensors: Tensor) -> Any:
        """Run the step on a graph, given as its tensors in schema order."""
        graph = self.graph(tensors)
        model = self.get_submodule(MODEL)
        given = dict(zip(self._names, tensors, strict=True))
        with cut_tables(model, self._tables, given):
            out = self._arguments.call(model, graph)
        results = [out]
        if self._loss is not None:
            results.insert(0, self._run(self._loss, out, graph))
        if self._metrics:
            results.append(
                {name: self._run(metric, out, graph) for name, metric in self._metrics.items()}
            )
        return results[0] if len(results) == 1 else tuple(results)

    def graph(self, tensors: tuple[Tensor, ...]) -> AnyGraph:
        """A graph of the user's class that holds the given tensors and the user's constants."""
        template: GraphTemplate = self._template.value
        return template.graph(tensors)

    def _run(self, function: UserFunction, out: Any, graph: AnyGraph) -> Any:
        self.running = function
        with self._in_place(function.places):
            result = self.called(function)(out, graph)
        self.running = None
        return result

    def called(self, function: UserFunction) -> Callable[..., Any]:
        """The loss or metric itself."""
        call: Callable[..., Any] = (
            self._at(function.path) if function.value is None else function.value
        )
        return call

    @contextmanager
    def _in_place(self, places: tuple[tuple[Slot, str], ...]) -> Iterator[None]:
        """The step's own tensors and modules where the function looks for the captured ones."""
        kept = [(slot, slot.get()) for slot, _ in places]
        try:
            for slot, path in places:
                slot.put(self._at(path))
            yield
        finally:
            for slot, value in reversed(kept):
                slot.put(value)

    def _at(self, path: str) -> Any:
        owner, _, name = path.rpartition(".")
        return getattr(self.get_submodule(owner), name)

    def _take(
        self,
        function: Callable[..., Any],
        name: str,
        role: str,
        schema: GraphSchema,
        own: Mapping[int, str],
    ) -> UserFunction:
        """Keep a loss or metric, with copies of the foreign tensors and modules that it captures."""
        what = described(role, function)
        if isinstance(function, nn.Module):
            return UserFunction(None, self._own_path(name, function, own), (), role, what)
        found = slots(function)
        check_captured(what, found, schema.rows, set(own))
        places = [(slot, self._own_path(slot.name, slot.get(), own)) for slot in found]
        return UserFunction(function, "", tuple(places), role, what)

    def _own_path(self, name: str, value: Tensor | nn.Module, own: Mapping[int, str]) -> str:
        """Where the step has its version of a captured value; a foreign one is copied, and is not trained."""
        if id(value) in own:
            return f"{MODEL}.{own[id(value)]}".rstrip(".")
        captured = self.get_submodule(CAPTURED)
        base = re.sub(r"\W", "_", name)
        key, count = base, 1
        while hasattr(captured, key):
            count += 1
            key = f"{base}_{count}"
        if isinstance(value, nn.Module):
            captured.add_module(key, copy.deepcopy(value).cpu().requires_grad_(False))
        else:
            captured.register_buffer(key, value.detach().clone().cpu())
        return f"{CAPTURED}.{key}"


def _paths_by_identity(model: nn.Module) -> dict[int, str]:
    """Identity of the model, its submodules, parameters and buffers -> path in the model."""
    named = (*model.named_modules(), *model.named_parameters(), *model.named_buffers())
    return {id(value): path for path, value in named}
