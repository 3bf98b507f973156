"""GAT, GATv2, TransformerConv and HGT: weights of edges and heads, and one sparse product over all heads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils import add_self_loops, remove_self_loops

from benchmarks.steps.hand.operators import (
    attend,
    edge_softmax,
    from_sources,
    from_targets,
    scores_of_ends,
    scores_of_sums,
)
from benchmarks.steps.hand.structure import Heads, Structure


def _with_loops(graph: Any, heads: int) -> Heads:
    edges, _ = remove_self_loops(graph.edge_index)
    edges, _ = add_self_loops(edges, num_nodes=graph.num_nodes)
    return Heads(Structure(edges, graph.num_nodes, graph.num_nodes), heads)


def _joined(out: Any, layer: Any) -> Any:
    return out.flatten(1) if layer.concat else out.mean(1)


def _layers(model: Any, graph: Any, step: Any) -> Any:
    def run(_: Any) -> Any:
        first, *others = model.layers
        x: Tensor = step(first, graph.x)
        for layer in others:
            x = step(layer, x.relu())
        return x

    return run


def gat(model: Any, graph: Any) -> Any:
    """Scores are sums of two node values; softmax on [edges, heads] only."""
    heads = _with_loops(graph, model.layers[0].heads)
    structure = heads.structure

    def step(layer: Any, x: Tensor) -> Any:
        values = layer.lin(x).view(-1, layer.heads, layer.out_channels)
        source = (values * layer.att_src).sum(-1)
        target = (values * layer.att_dst).sum(-1)
        scores = from_sources(source, structure) + from_targets(target, structure)
        weights = edge_softmax(functional.leaky_relu(scores, layer.negative_slope), structure)
        return _joined(attend(weights, values, heads), layer) + layer.bias

    return _layers(model, graph, step)


def gatv2(model: Any, graph: Any) -> Any:
    """Scores need every edge's vector: in chunks, which are computed again in the backward pass."""
    heads = _with_loops(graph, model.layers[0].heads)
    structure = heads.structure

    def step(layer: Any, x: Tensor) -> Any:
        shape = (-1, layer.heads, layer.out_channels)
        values = layer.lin_l(x).view(shape)
        scores = scores_of_sums(
            values, layer.lin_r(x).view(shape), layer.att, layer.negative_slope, structure
        )
        weights = edge_softmax(scores, structure)
        return _joined(attend(weights, values, heads), layer) + layer.bias

    return _layers(model, graph, step)


def transformer(model: Any, graph: Any) -> Any:
    """Products of ends in chunks; their gradients are sparse products over all heads."""
    structure = Structure(graph.edge_index, graph.num_nodes, graph.num_nodes)
    heads = Heads(structure, model.layers[0].heads)

    def step(layer: Any, x: Tensor) -> Any:
        shape = (-1, layer.heads, layer.out_channels)
        query = layer.lin_query(x).view(shape) / math.sqrt(layer.out_channels)
        scores = scores_of_ends(query, layer.lin_key(x).view(shape), heads)
        weights = edge_softmax(scores, structure)
        out = attend(weights, layer.lin_value(x).view(shape), heads)
        return _joined(out, layer) + layer.lin_skip(x)

    return _layers(model, graph, step)


def hgt(model: Any, graph: Any) -> Any:
    """One structure for all relations; relations' factors are put on their sources' keys.

    In the last layer only what the papers' logits read.
    """
    kinds, relations = graph.node_types, graph.edge_types
    counts = {kind: graph[kind].num_nodes for kind in kinds}
    some = model.layers[0]
    last_kinds = ["paper"]
    every = _joint(graph, kinds, relations, counts, some)
    last = _joint(graph, last_kinds, [r for r in relations if r[2] == "paper"], counts, some)

    def run(_: Any) -> Any:
        x = {kind: model.encoders[kind](graph[kind].x).relu() for kind in kinds}
        for place, layer in enumerate(model.layers):
            joint, reached = (
                (last, last_kinds) if place == len(model.layers) - 1 else (every, kinds)
            )
            x = _hgt_layer(layer, x, joint, reached)
        out: Tensor = model.out(x["paper"])
        return out

    return run


def _joint(graph: Any, kinds: Any, relations: Any, counts: Any, layer: Any) -> tuple[Any, Heads]:
    targets, sources, edges = {}, 0, []
    size = 0
    for kind in kinds:
        targets[kind] = size
        size += counts[kind]
    for relation in relations:
        ends = graph[relation].edge_index
        edges.append(ends + torch.tensor([[sources], [targets[relation[2]]]]))
        sources += counts[relation[0]]
    return relations, Heads(Structure(torch.cat(edges, 1), sources, size), layer.heads)


def _hgt_layer(layer: Any, x: dict[str, Tensor], joint: Any, kinds: Any) -> dict[str, Tensor]:
    relations, heads = joint
    width = layer.out_channels // layer.heads
    kqv = {kind: layer.kqv_lin.lins[kind](value) for kind, value in x.items()}
    parts = {
        kind: [each.reshape(-1, layer.heads, width) for each in value.tensor_split(3, dim=1)]
        for kind, value in kqv.items()
    }
    keys, values = [], []
    for relation in relations:
        place = layer.edge_types_map[relation]
        of_heads = torch.arange(layer.heads) * len(layer.edge_types) + place
        factor = layer.p_rel["__".join(relation)].view(-1, 1, 1) / math.sqrt(width)
        key, _, value = (each.transpose(0, 1) for each in parts[relation[0]])
        keys.append(torch.bmm(key, layer.k_rel.weight[of_heads] * factor).transpose(0, 1))
        values.append(torch.bmm(value, layer.v_rel.weight[of_heads]).transpose(0, 1))
    query = torch.cat([parts[kind][1] for kind in kinds])
    scores = scores_of_ends(query, torch.cat(keys), heads)
    weights = edge_softmax(scores, heads.structure)
    out = attend(weights, torch.cat(values), heads).flatten(1)
    made = {}
    for kind, rows in zip(kinds, out.split([len(x[kind]) for kind in kinds]), strict=True):
        alpha = layer.skip[kind].sigmoid()
        rows = layer.out_lin.lins[kind](functional.gelu(rows))
        made[kind] = alpha * rows + (1 - alpha) * x[kind]
    return made
