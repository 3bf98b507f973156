"""Which of the graph's attributes each argument of the model's forward gets (torch)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import Sequential

from autoplan.errors import TraceError
from autoplan.trace.attributes import KINDS
from autoplan.trace.schema import GraphSchema

_WHOLE_GRAPH = ("data", "graph", "g")
"""Names under which models take the graph itself."""

_DATA_TYPES = ("Data", "Batch", "BaseData")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of forward.

    Attributes:
        name: forward's name for it; None for an entry of ``*args``.
        source: ``attribute`` of the graph, the whole ``graph``, or a ``value`` that the user gave.
        attribute: the attribute's name.
        value: the user's value.
    """

    name: str | None
    source: Literal["attribute", "graph", "value"]
    attribute: str = ""
    value: Any = None

    def of(self, graph: Data) -> Any:
        """Its value for a graph."""
        if self.source == "graph":
            return graph
        if self.source == "value":
            return self.value
        return graph.num_nodes if self.attribute == "num_nodes" else graph[self.attribute]


@dataclass(frozen=True, slots=True)
class Arguments:
    """All arguments that forward is called with: those passed by position, then those passed by name."""

    positional: tuple[Argument, ...]
    keywords: tuple[Argument, ...]

    def call(self, model: nn.Module, graph: Data) -> Any:
        """Call the model on a graph."""
        positional = [argument.of(graph) for argument in self.positional]
        keywords = {str(argument.name): argument.of(graph) for argument in self.keywords}
        return model(*positional, **keywords)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The graph's attributes that are passed by themselves."""
        return tuple(
            argument.attribute
            for argument in (*self.positional, *self.keywords)
            if argument.source == "attribute"
        )


def match_arguments(
    model: nn.Module, schema: GraphSchema, inputs: Mapping[str, Any] | None = None
) -> Arguments:
    """Match forward's parameters to the graph's attributes by name.

    A parameter gets the attribute of its name, else its default; ``data``, ``graph`` and parameters annotated as `Data`
    get the graph. Optional edge weights and features are left out where the model says that it ignores them
    (`BasicGNN.supports_edge_attr`, a convolution with ``edge_dim=None``).

    Args:
        model: its forward is looked at, never called.
        schema: the graph's attributes.
        inputs: parameter -> attribute's name or a value (number, None); ``"*args"`` -> names of attributes. Entries
            that say what an attribute is (see `GraphSchema.of`) are skipped.

    Raises:
        TraceError: a required parameter has no attribute, or ``inputs`` names something that does not exist.
    """
    known = {*schema.names, *(name for name, _ in schema.constants), "num_nodes"}
    wishes = _wishes(inputs or {}, schema)
    parameters = _parameters(model)
    named = [
        p for p in parameters if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD
    ]
    by_name = {parameter.name: parameter for parameter in named}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    takes_more = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    for name in wishes:
        if name not in by_name and not (takes_more if name == "*args" else takes_any):
            raise TraceError(
                f"inputs name {name!r}, which is neither an argument of {type(model).__name__}.forward "
                f"({', '.join(by_name)}) nor an attribute of the graph ({', '.join(sorted(known))})"
            )
    if not named and not wishes and (takes_any or takes_more):
        raise TraceError(
            f"{type(model).__name__}.forward takes only *args and **kwargs, so its arguments cannot be matched by "
            "name; say what it gets, for example inputs={'*args': ('x', 'edge_index')}"
        )
    found: dict[str, Argument | None] = {}
    for parameter in named:
        if parameter.name in wishes:
            found[parameter.name] = _wished(parameter.name, wishes[parameter.name], known)
        else:
            found[parameter.name] = _by_name(parameter, model, known, len(named), schema)
    positional, keywords = _ordered(named, found)
    if "*args" in wishes:
        positional += [_wished(None, wish, known) for wish in _names(wishes["*args"])]
    keywords += [
        _wished(name, wish, known)
        for name, wish in wishes.items()
        if name not in by_name and name != "*args"
    ]
    return Arguments(tuple(positional), tuple(keywords))


def _wishes(inputs: Mapping[str, Any], schema: GraphSchema) -> dict[str, Any]:
    """The entries of ``inputs`` about arguments: all but those that say what a tensor of the graph is."""
    return {
        name: wish
        for name, wish in inputs.items()
        if not (name in schema.names and _says_kind(wish, schema))
    }


def _says_kind(wish: object, schema: GraphSchema) -> bool:
    return (
        isinstance(wish, tuple) or wish in KINDS or (isinstance(wish, str) and wish in schema.rows)
    )


def _names(wish: object) -> Iterable[Any]:
    return wish if isinstance(wish, list | tuple) else (wish,)


def _parameters(model: nn.Module) -> list[inspect.Parameter]:
    """Parameters of forward; PyG's `Sequential` keeps them in its own signature."""
    if isinstance(model, Sequential):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [inspect.Parameter(name, kind) for name in model.signature.param_dict]
    return list(inspect.signature(model.forward).parameters.values())


def _wished(name: str | None, wish: object, known: set[str]) -> Argument:
    if not isinstance(wish, str):
        return Argument(name, "value", value=wish)
    if wish not in known:
        raise TraceError(
            f"inputs give {wish!r} to {name or '*args'!r}, but the graph has only {', '.join(sorted(known))}"
        )
    return Argument(name, "attribute", wish)


def _by_name(
    parameter: inspect.Parameter,
    model: nn.Module,
    known: set[str],
    count: int,
    schema: GraphSchema,
) -> Argument | None:
    """What a parameter gets without the user's help; None: its default."""
    name = parameter.name
    optional = parameter.default is not parameter.empty
    if _wants_graph(parameter):
        return Argument(name, "graph")
    constants = {constant for constant, _ in schema.constants}
    if name in schema.names or name in constants or (name == "num_nodes" and not optional):
        ignored = optional and _ignores(model, name)
        return None if ignored else Argument(name, "attribute", name)
    if optional:
        return None
    if name in _WHOLE_GRAPH or (name == "batch" and count == 1):
        return Argument(name, "graph")
    raise TraceError(
        f"{type(model).__name__}.forward needs {name!r}, which the graph does not have; it has "
        f"{', '.join(sorted(known))}. Set graph.{name}, or say which attribute it is: inputs={{'{name}': 'x'}}"
    )


def _wants_graph(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in _DATA_TYPES
    return isinstance(annotation, type) and annotation.__name__ in _DATA_TYPES


def _ignores(model: nn.Module, name: str) -> bool:
    """Whether the model says that it makes no use of optional edge weights or edge features."""
    if name in ("edge_weight", "edge_attr"):
        if not getattr(model, f"supports_{name}", True):
            return True
        return name == "edge_attr" and getattr(model, "edge_dim", 0) is None
    return False


def _ordered(
    named: list[inspect.Parameter], found: Mapping[str, Argument | None]
) -> tuple[list[Argument], list[Argument]]:
    """By position as long as nothing is left out (hooks of the model see what users pass by position), then by name."""
    positional: list[Argument] = []
    keywords: list[Argument] = []
    gap = False
    for parameter in named:
        argument = found[parameter.name]
        gap = gap or argument is None or parameter.kind is parameter.KEYWORD_ONLY
        if argument is not None:
            (keywords if gap else positional).append(argument)
    return positional, keywords
