"""The models written by hand with torch alone: what a lowering can be measured against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

Lowered = Callable[[Any], Tensor]
"""From a batch (the graph, or some of many) to the model's output."""

LOWERINGS: Mapping[str, Callable[[nn.Module, Any], Lowered]] = {}
"""By model: makes the lowered forward pass of a module, with its own parameters, for a graph."""


def lowered(name: str, model: nn.Module, graph: Any) -> Lowered:
    """The hand-lowered forward pass of a model. Raises LookupError where there is none."""
    if name not in LOWERINGS:
        raise LookupError(f"{name} has no hand-lowered version")
    return LOWERINGS[name](model, graph)
