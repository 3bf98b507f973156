"""What a forward pass returns as one flat list, its data classes opened like named tuples (torch).

torch's own flattening opens a data class only once it is registered, for the whole process and for good. Registering a user's class
would leave a mark on it; so a private node stands for the instance while it is flattened.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from autoplan.program.torch_internals import (
    TreeSpec,
    register_pytree_node,
    tree_flatten,
    tree_map,
)


class _Record:
    """A data class's instance while it is flattened: its class, and by field name what is set."""

    def __init__(self, kind: type, values: dict[str, Any]) -> None:
        self.kind = kind
        self.values = values


def flatten(returned: object) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and what `tree_unflatten` restores the structure with: instances of the same data classes.

    They are restored field by field: what a class does when it is made, or keeps beside its fields, is not repeated.
    """
    return tree_flatten(_opened(returned))


def _opened(obj: Any) -> Any:
    return tree_map(_opened_leaf, obj)


def _opened_leaf(leaf: Any) -> Any:
    if not is_dataclass(leaf) or isinstance(leaf, type):
        return leaf
    names = [field.name for field in fields(leaf) if hasattr(leaf, field.name)]
    return _Record(type(leaf), {name: _opened(getattr(leaf, name)) for name in names})


def _closed(values: Any, context: Any) -> Any:
    kind, names = context
    made = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)  # frozen ones, too
    return made


register_pytree_node(
    _Record,
    lambda record: (list(record.values.values()), (record.kind, tuple(record.values))),
    _closed,
)
