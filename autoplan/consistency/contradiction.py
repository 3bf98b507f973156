"""What a field of a plan's document contradicts, in words. No torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
"""Of `PlanData.to_dict`: fields and types are right."""

_SHOWN = 60
"""So many characters of a value are told."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A field that cannot be as it is: its JSON path, its value, and what is wrong about it (a clause after "but")."""

    path: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is {shown(self.value)}, but {self.reason}"


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


def misshapen(found: Any, expected: Any, path: str = "") -> Contradiction | None:
    """The first object of a JSON document that lacks a field or has one that there is not; None where none does.

    Args:
        found: the document.
        expected: the same, with exactly the fields that there are.
        path: of both.
    """
    if isinstance(expected, Mapping):
        for key in expected:
            if key not in found:
                return Contradiction(joined(path, key), None, "the field is missing")
        for key in found:
            if key not in expected:
                return Contradiction(joined(path, key), found[key], "there is no such field")
        pairs = [(joined(path, key), found[key], expected[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        pairs = [
            (f"{path}[{position}]", *both)
            for position, both in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return None
    return next((wrong for at, a, b in pairs if (wrong := misshapen(a, b, at))), None)


def joined(path: str, key: str) -> str:
    """The path of a field of the object at a path."""
    return f"{path}.{key}" if path else key


def twice(path: str, values: Sequence[Any]) -> Iterator[Contradiction]:
    """Entries of a list, no two of which may be equal."""
    for value, times in Counter(values).items():
        if times > 1:
            last = max(position for position, other in enumerate(values) if other == value)
            yield Contradiction(f"{path}[{last}]", value, f"it is listed {times} times")
