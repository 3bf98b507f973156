"""Model, loss and metrics as one module over the graph's tensors: what is recorded (torch)."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from autoplan.opgraph import GRAPH, NODE
from autoplan.trace.arguments import Arguments
from autoplan.trace.captured import Slot, check_captured, slots
from autoplan.trace.schema import GraphSchema

MODEL, CAPTURED = "model", "captured"
"""Submodules of a `StepModule`: the copy of the user's model, and copies of what loss and metrics capture."""

_COUNTS_NODES = frozenset({"x", "feat", "pos", "batch", "node_type", "n_id"})
"""Attributes from whose rows PyG reads ``graph.num_nodes``."""


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
    """

    def __init__(
        self, value: Callable[..., Any] | None, path: str, places: tuple[tuple[Slot, str], ...]
    ) -> None:
        super().__init__(value)
        self.path = path
        self.places = places


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

    Raises:
        TraceError: loss or metrics capture tensors that belong on the graph.
    """

    def __init__(
        self,
        model: nn.Module,
        user_model: nn.Module,
        graph: Data,
        schema: GraphSchema,
        arguments: Arguments,
        loss: Callable[..., Any] | None = None,
        metrics: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self.add_module(MODEL, model)
        self.add_module(CAPTURED, nn.Module())
        self._names = schema.names
        self._arguments = arguments
        self._template = Borrowed(_without_tensors(graph, schema))
        self._node_size = _node_size(graph, schema)
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

    def forward(self, *tensors: Tensor) -> Any:
        """Run the step on a graph, given as its tensors in schema order."""
        graph = self.graph(tensors)
        out = self._arguments.call(self.get_submodule(MODEL), graph)
        results = [out]
        if self._loss is not None:
            results.insert(0, self._run(self._loss, out, graph))
        if self._metrics:
            results.append(
                {name: self._run(metric, out, graph) for name, metric in self._metrics.items()}
            )
        return results[0] if len(results) == 1 else tuple(results)

    def graph(self, tensors: tuple[Tensor, ...]) -> Data:
        """A graph of the user's class that holds the given tensors and the user's constants."""
        graph = copy.copy(self._template.value)
        for name, tensor in zip(self._names, tensors, strict=True):
            graph[name] = tensor
        if self._node_size is not None:
            name, dimension = self._node_size
            graph.num_nodes = graph[name].size(dimension)
        return graph

    def _run(self, function: UserFunction, out: Any, graph: Data) -> Any:
        with self._in_place(function.places):
            call = self._at(function.path) if function.value is None else function.value
            return call(out, graph)

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
        what: str,
        schema: GraphSchema,
        own: Mapping[int, str],
    ) -> UserFunction:
        """Keep a loss or metric, with copies of the foreign tensors and modules that it captures."""
        if isinstance(function, nn.Module):
            return UserFunction(None, self._own_path(name, function, own), ())
        found = slots(function)
        check_captured(what, found, schema.rows, set(own))
        places = [(slot, self._own_path(slot.name, slot.get(), own)) for slot in found]
        return UserFunction(function, "", tuple(places))

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


class StepBatch(Batch):  # type: ignore[misc]
    """A batch whose tensors are those of a step: what follows from them is worked out from them."""

    @property
    def num_graphs(self) -> int:
        """Rows of an attribute that has one for each graph; without one, as PyG tells it from ``batch``."""
        if self._counts_graphs is not None:
            rows: int = self[self._counts_graphs].size(0)
            return rows
        return int(self.batch.max()) + 1

    @property
    def ptr(self) -> Tensor:
        """[B + 1] where each graph's nodes begin."""
        numbers = torch.arange(self.num_graphs + 1, device=self.batch.device)
        return torch.searchsorted(self.batch, numbers)


def _without_tensors(graph: Data, schema: GraphSchema) -> Data:
    """An object of the graph's class with its constants only."""
    template: Data
    if isinstance(graph, Batch):
        template = StepBatch(_base_cls=type(graph).__bases__[-1])
        counting = [spec.name for spec in schema.attributes if spec.dims[:1] == (GRAPH,)]
        template._counts_graphs = counting[0] if counting else None
    else:
        template = copy.copy(graph)
    for name in list(template.keys()):
        del template[name]
    vars(template._store).pop("_cached_attr", None)  # PyG's memory of which attributes are per node
    for name, value in schema.constants:
        template[name] = value
    return template


def _node_size(graph: Data, schema: GraphSchema) -> tuple[str, int] | None:
    """Attribute and dimension to read ``num_nodes`` from; None where PyG finds it on its own."""
    explicit = "num_nodes" in graph
    if not explicit and _COUNTS_NODES & set(schema.names):
        return None
    for spec in sorted(schema.attributes, key=lambda spec: spec.name != "x"):
        if NODE in spec.dims:
            return spec.name, spec.dims.index(NODE)
    return None
