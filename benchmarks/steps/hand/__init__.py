"""The models written by hand with torch alone: what a lowering can be measured against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn

from benchmarks.steps.hand import aggregations, attention, convolutions

Lowered: TypeAlias = Callable[[Any], Tensor]
"""From a batch (the graph, or some of many) to the model's output."""

LOWERINGS: Mapping[str, Callable[[nn.Module, Any], Lowered]] = {
    "GCN": convolutions.gcn,
    "SAGE": convolutions.sage,
    "GAT": attention.gat,
    "GATv2": attention.gatv2,
    "GIN": convolutions.gin,
    "PNA": aggregations.pna,
    "APPNP": convolutions.appnp,
    "SGC": convolutions.sgc,
    "TransformerConv": attention.transformer,
    "EdgeConv": aggregations.edge_conv,
    "DeeperGCN": aggregations.deeper,
    "RGCN": aggregations.rgcn,
    "HGT": attention.hgt,
    "GIN-graphs": convolutions.gin_graphs,
}
"""By model: makes the lowered forward pass of a module, with its own parameters, for a graph."""


def lowered(name: str, model: nn.Module, graph: Any) -> Lowered:
    """The hand-lowered forward pass of a model. Raises LookupError where there is none."""
    if name not in LOWERINGS:
        raise LookupError(f"{name} has no hand-lowered version")
    return LOWERINGS[name](model, graph)
