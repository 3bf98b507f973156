"""PyG's layers of several types, as equal functions of whole tensors while a pass is recorded (torch).

A loop over slices of rows, one for each type, and positions that are moved in place through views, say nothing of rows
to a rule. The numbers are those of the originals, which the program is compared with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from autoplan.program.typed_matmul import typed_matmul
from autoplan.trace.shadows import Replacement

Standing = Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]]
"""Gives the stand-in, or the original, by what runs."""


def whole_forms(standing: Standing) -> list[Replacement]:
    """The replacements for what of PyG is imported."""
    found: list[Replacement] = []
    linear = sys.modules.get("torch_geometric.nn.dense.linear")
    owner = getattr(linear, "HeteroLinear", None)
    if owner is not None:
        found.append((owner, "forward", standing(_linear_of(owner.forward), owner.forward)))
    for name, module in list(sys.modules.items()):
        original = vars(module).get(_JOINING) if name.startswith("torch_geometric.") else None
        if original is not None and getattr(original, "__module__", "") != __name__:
            found.append((module, _JOINING, standing(_joining_of(original), original)))
    return found


_JOINING = "construct_bipartite_edge_index"


def _linear_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """`HeteroLinear.forward`."""

    def forward(layer: Any, x: Tensor, type_vec: Tensor) -> Any:
        if x.dim() != 2 or type_vec.dim() != 1:
            return original(layer, x, type_vec)
        out = typed_matmul(x, type_vec, layer.weight)
        return out if layer.bias is None else out + layer.bias[type_vec]

    return forward


def _joining_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """`construct_bipartite_edge_index`: the pairs of all relations, each moved past the nodes of earlier types."""

    def joined(
        edge_index_dict: Mapping[Any, Any],
        src_offset_dict: Mapping[Any, Any],
        dst_offset_dict: Mapping[Any, Any],
        edge_attr_dict: Any = None,
        num_nodes: Any = None,
    ) -> Any:
        given = [edge_index_dict[relation] for relation in src_offset_dict]
        if not all(isinstance(e, Tensor) and e.layout == torch.strided for e in given):
            return original(
                edge_index_dict, src_offset_dict, dst_offset_dict, edge_attr_dict, num_nodes
            )
        pairs: list[Tensor] = []
        attributes: list[Tensor] = []
        for relation, first in src_offset_dict.items():
            edges = edge_index_dict[relation]
            ends = edges[0] + first, edges[1] + dst_offset_dict[relation[-1]]
            pairs.append(torch.stack(ends))
            if edge_attr_dict is not None:
                named = isinstance(edge_attr_dict, torch.nn.ParameterDict)
                value = edge_attr_dict["__".join(relation) if named else relation]
                if value.size(0) != edges.size(1):
                    value = value.expand(edges.size(1), -1)
                attributes.append(value)
        moved = torch.cat(pairs, dim=1)
        return moved, None if edge_attr_dict is None else torch.cat(attributes, dim=0)

    return joined
