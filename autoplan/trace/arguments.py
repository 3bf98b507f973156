"""Which of the graph's attributes each argument of the model's forward gets (torch)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch_geometric.nn import HeteroConv, Sequential

from autoplan.errors import TraceError
from autoplan.trace.classification import says_what
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import NUM_NODES, AnyGraph, TypeKey, full_name, store_of

_WHOLE_GRAPH = ("data", "graph", "g")
"""Names under which models take the graph itself."""

_DATA_TYPES = ("Data", "HeteroData", "Batch", "BaseData")

_DICT = "_dict"
"""How arguments end that get an attribute of all types that have it, by type."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of forward.

    Attributes:
        name: forward's name for it; None for an entry of ``*args``.
        source: ``attribute`` of a part of the graph, a ``mapping`` of several by type, the whole ``graph``, or a ``value``
            that the user gave.
        key: the part of the graph; attribute: the attribute's name there.
        value: the user's value.
        entries: of a mapping.
    """

    name: str | None
    source: Literal["attribute", "mapping", "graph", "value"]
    key: TypeKey = None
    attribute: str = ""
    value: Any = None
    entries: tuple[tuple[TypeKey, Argument], ...] = ()

    def of(self, graph: AnyGraph) -> Any:
        """Its value for a graph."""
        if self.source == "graph":
            return graph
        if self.source == "value":
            return self.value
        if self.source == "mapping":
            return {key: entry.of(graph) for key, entry in self.entries}
        store = store_of(graph, self.key)
        return store.num_nodes if self.attribute == NUM_NODES else store[self.attribute]

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that it hands over, by their names in the schema."""
        if self.source == "attribute":
            return (full_name(self.key, self.attribute),)
        return tuple(name for _, entry in self.entries for name in entry.attributes)


@dataclass(frozen=True, slots=True)
class Arguments:
    """All arguments that forward is called with: those passed by position, then those passed by name."""

    positional: tuple[Argument, ...]
    keywords: tuple[Argument, ...]

    def call(self, model: nn.Module, graph: AnyGraph) -> Any:
        """Call the model on a graph."""
        positional = [argument.of(graph) for argument in self.positional]
        keywords = {str(argument.name): argument.of(graph) for argument in self.keywords}
        return model(*positional, **keywords)

    @property
    def by_type_without_saying(self) -> tuple[str, ...]:
        """Arguments that get a mapping by type, though their names do not end in ``_dict``."""
        names = [a.name for a in (*self.positional, *self.keywords) if a.source == "mapping"]
        return tuple(name for name in names if name is not None and not name.endswith(_DICT))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The graph's attributes that are passed by themselves, or by type."""
        return tuple(
            name for argument in (*self.positional, *self.keywords) for name in argument.attributes
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """What arguments can get of a graph.

    Attributes:
        schema: of the graph.
        names: attributes of single parts, by their names in the schema.
        by_type: of a graph of several types, by attribute the parts that have it.
    """

    schema: GraphSchema
    names: frozenset[str]
    by_type: Mapping[str, tuple[TypeKey, ...]]

    @classmethod
    def of(cls, schema: GraphSchema) -> _Known:
        """Everything that the schema names."""
        constants = (name for name, _ in schema.constants)
        names = {*schema.names, *constants}
        if not schema.several_types:
            return cls(schema, frozenset({*names, NUM_NODES}), {})
        names |= {full_name(kind, NUM_NODES) for kind in schema.node_types}
        having: dict[str, set[TypeKey]] = {}
        for name in names:
            key, attribute = schema.place(name)
            if key is not None:
                having.setdefault(attribute, set()).add(key)
        order: tuple[TypeKey, ...] = (*schema.node_types, *schema.edge_types)
        by_type = {
            attribute: tuple(key for key in order if key in keys)
            for attribute, keys in having.items()
        }
        return cls(schema, frozenset(names), by_type)

    def find(self, argument: str | None, name: str) -> Argument | None:
        """The attribute of this name, or by type what ``x_dict`` (or ``x``) means; None where there is no such thing."""
        if name in self.names:
            key, attribute = self.schema.place(name)
            return Argument(argument, "attribute", key, attribute)
        attribute = name.removesuffix(_DICT)
        if attribute in self.by_type:
            entries = tuple(
                (key, Argument(None, "attribute", key, attribute))
                for key in self.by_type[attribute]
            )
            return Argument(argument, "mapping", entries=entries)
        types: Mapping[str, Any] = {
            "metadata": (list(self.schema.node_types), list(self.schema.edge_types)),
            "node_types": list(self.schema.node_types),
            "edge_types": list(self.schema.edge_types),
        }
        if self.schema.several_types and name in types:
            return Argument(argument, "value", value=types[name])
        return None

    def __str__(self) -> str:
        """What there is, for messages."""
        return ", ".join([*sorted(f"{name}{_DICT}" for name in self.by_type), *sorted(self.names)])


def match_arguments(
    model: nn.Module, schema: GraphSchema, inputs: Mapping[str, Any] | None = None
) -> Arguments:
    """Match forward's parameters to the graph's attributes by name.

    A parameter gets the attribute of its name, else its default; ``data``, ``graph`` and parameters annotated as `Data`
    get the graph. Of a `HeteroData` ``x_dict`` (or ``x``, as in a model from `to_hetero`) gets the ``x`` of every type that
    has one, by type; ``metadata``, ``node_types`` and ``edge_types`` get these. Optional edge weights and features are left
    out where the model says that it ignores them (`BasicGNN.supports_edge_attr`, a convolution with ``edge_dim=None``).

    Args:
        model: its forward is looked at, never called.
        schema: the graph's attributes.
        inputs: parameter -> attribute's name (``x``, ``paper.x``, ``x_dict``), of several types a mapping of type to
            attribute's name, or a value (number, None); ``"*args"`` -> names of attributes. Entries that say what an
            attribute is (see `GraphSchema.of`) are skipped.

    Raises:
        TraceError: a required parameter has no attribute, or ``inputs`` names something that does not exist.
    """
    known = _Known.of(schema)
    wishes = _wishes(inputs or {}, schema)
    if isinstance(model, HeteroConv) and not wishes:
        wishes = {"*args": ("x_dict", "edge_index_dict")}
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
                f"({', '.join(by_name)}) nor an attribute of the graph ({known})"
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
            found[parameter.name] = _by_name(parameter, model, known, len(named))
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
        if not (name in schema.names and says_what(wish))
    }


def _names(wish: object) -> Iterable[Any]:
    return wish if isinstance(wish, list | tuple) else (wish,)


def _parameters(model: nn.Module) -> list[inspect.Parameter]:
    """Parameters of forward; PyG's `Sequential` keeps them in its own signature."""
    if isinstance(model, Sequential):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [inspect.Parameter(name, kind) for name in model.signature.param_dict]
    return list(inspect.signature(model.forward).parameters.values())


def _wished(name: str | None, wish: object, known: _Known) -> Argument:
    """What the user gives to an argument."""
    schema = known.schema
    if schema.several_types and isinstance(wish, Mapping):
        entries = tuple((key, _wished_of_type(name, key, own, known)) for key, own in wish.items())
        return Argument(name, "mapping", entries=entries)
    if not isinstance(wish, str):
        return Argument(name, "value", value=wish)
    found = known.find(name, wish)
    if found is None:
        raise TraceError(
            f"inputs give {wish!r} to {name or '*args'!r}, but the graph has only {known}"
        )
    return found


def _wished_of_type(name: str | None, key: TypeKey, wish: object, known: _Known) -> Argument:
    """An entry of a mapping: ``{"paper": "feat"}`` means the same as ``{"paper": "paper.feat"}``."""
    if isinstance(wish, str) and full_name(key, wish) in known.names:
        return Argument(name, "attribute", key, wish)
    return _wished(name, wish, known)


def _by_name(
    parameter: inspect.Parameter, model: nn.Module, known: _Known, count: int
) -> Argument | None:
    """What a parameter gets without the user's help; None: its default."""
    name = parameter.name
    optional = parameter.default is not parameter.empty
    if _wants_graph(parameter):
        return Argument(name, "graph")
    found = known.find(name, name)
    if found is not None and not (optional and name == NUM_NODES):
        ignored = optional and _ignores(model, name)
        return None if ignored else found
    if optional:
        return None
    if name in _WHOLE_GRAPH or (name == "batch" and count == 1):
        return Argument(name, "graph")
    raise TraceError(
        f"{type(model).__name__}.forward needs {name!r}, which the graph does not have; it has "
        f"{known}. Set graph.{name}, or say which attribute it is, for example inputs={{'{name}': 'x'}}"
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
