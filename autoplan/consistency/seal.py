"""Seals of a plan's document: short digests of what decides how a plan runs, which tell an edit by hand. No torch.

Much of a plan can be held to itself (`planconsistency`) or to the traced program (`planner.held`). What cannot, such as an
optimizer or a schedule that is another valid one, has a price and a memory sheet of its own, which an edit leaves stale. So
each decision is written with a digest. A seal is no signature: it is there against mistakes. What is only told (notes,
prices, names) has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

_DIGEST_BYTES = 4
_FIELDS = (
    "strategy",
    "exact",
    "objective",
    "optimizer",
    "generality",
    "devices",
    "graph_rows",
    "graph_attributes",
    "model_tensors",
    "partition",
    "batch",
    "pipeline",
)
_OF_A_STAGE = (
    "devices",
    "choices",
    "transitions",
    "inputs",
    "parameters",
    "buffers",
    "attributes",
    "sends",
)


def seals(document: Mapping[str, Any]) -> dict[str, str]:
    """By JSON path of what decides how a plan runs, the digest of its value.

    Args:
        document: a plan's, of the right types.
    """
    return {path: _digest(value) for path, value in _sealed(document)}


def broken_seal(document: Mapping[str, Any], written: Mapping[str, str]) -> tuple[str, Any] | None:
    """The first path whose value is not the one that was sealed, with the value; None where all are.

    Args:
        document: a plan's, of the right types.
        written: the seals in its file.
    """
    there = dict(_sealed(document))
    for path, value in there.items():
        if written.get(path) != _digest(value):
            return path, value
    # a field that may be left out was there
    return next(((path, None) for path in written if path not in there), None)


def _sealed(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Small sections are sealed field by field, so that the field can be named."""
    for name in _FIELDS:
        value = document[name]
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", part) for key, part in value.items())
        else:
            yield name, value
    for number, stage in enumerate(document["stages"]):
        yield from ((f"stages[{number}].{key}", stage[key]) for key in _OF_A_STAGE)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
