"""EdgeConv, PNA, DeeperGCN and RGCN: messages of edges are avoided where the reduction allows it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.steps.graphs import RELATIONS
from benchmarks.steps.hand.convolutions import Neighbours
from benchmarks.steps.hand.operators import extremes, from_sources, largest_of_perceptron
from benchmarks.steps.hand.structure import Structure

_GROUP = 64
"""Nodes of one degree from which on their scalers go into the weights of a product of their own."""


def _structure(graph: Any) -> Structure:
    return Structure(graph.edge_index, graph.num_nodes, graph.num_nodes)


def edge_conv(model: Any, graph: Any) -> Any:
    """The first linear layer on nodes; the second one on chunks of edges."""
    structure = _structure(graph)

    def run(_: Any) -> Any:
        x = graph.x
        for place, layer in enumerate(model.layers):
            x = x.relu() if place else x
            before, _, after = layer.nn
            own, difference = before.weight.split(x.shape[1], dim=1)
            target = torch.addmm(before.bias, x, (own - difference).t())
            x = largest_of_perceptron(
                target, x @ difference.t(), after.weight, after.bias, structure
            )
        return x

    return run


def pna(model: Any, graph: Any) -> Any:
    """A message is a sum of its ends' parts, so that means, extremes and variances are of the sources' part only.

    Nodes of one degree share their scalers: these go into the post-layer's weights.
    """
    s = _structure(graph)
    dtype = graph.x.dtype
    share = s.degree.clamp(min=1).to(dtype).reciprocal()
    means = Neighbours(s, share[s.target])
    has_edges = (s.degree > 0).to(dtype)[:, None]
    order = torch.argsort(s.degree, stable=True)
    back = torch.argsort(order)
    found, sizes = torch.unique_consecutive(s.degree[order], return_counts=True)
    big = sizes >= _GROUP
    alone = found[big]
    # few nodes have any of the other degrees: their scaled aggregates are made
    grouped = torch.isin(s.degree, alone)
    order = torch.cat([order[grouped[order]], order[~grouped[order]]])
    back = torch.argsort(order)
    pieces = [*sizes[big].tolist(), int((~grouped).sum())]

    def run(_: Any) -> Any:
        x = graph.x
        for place, layer in enumerate(model.layers):
            x = x.relu() if place else x
            (pre,) = layer.pre_nns[0]
            (post,) = layer.post_nns[0]
            width = x.shape[1]
            at_target, at_source = pre.weight.split(width, dim=1)
            target = torch.addmm(pre.bias, x, at_target.t()) * has_edges
            source = x @ at_source.t()
            mean = means(source)
            least, most = extremes(source, s)
            variance = means(source * source) - mean * mean
            spread = variance.clamp(min=1e-5).sqrt()
            spread = spread.masked_fill(spread <= math.sqrt(1e-5), 0.0)
            made = torch.cat([target + mean, target + least, target + most, spread], 1)
            x = layer.lin(x @ post.weight[:, :width].t() + scaled(made, layer, post, width))
        return x

    def scaled(made: Any, layer: Any, post: Any, width: int) -> Any:
        log = layer.aggr_module.avg_deg_log
        rows = made.index_select(0, order).split(pieces)
        same, up, down = post.weight[:, width:].split(4 * width, dim=1)
        outs = []
        for degree, part in zip(alone.tolist(), rows[:-1], strict=True):
            more = math.log(degree + 1) / log
            less = log / math.log(max(degree, 1) + 1)
            outs.append(part @ (same + more * up + less * down).t())
        degrees = s.degree[order[len(order) - pieces[-1] :]].to(dtype)[:, None]
        part = rows[-1]
        more, less = (degrees + 1).log() / log, log / (degrees.clamp(min=1) + 1).log()
        outs.append(part @ same.t() + more * (part @ up.t()) + less * (part @ down.t()))
        return torch.cat(outs).index_select(0, back) + post.bias

    return run


def deeper(model: Any, graph: Any) -> Any:
    """A message depends on its source only, so that softmax over edges is a quotient of two sparse products.

    Weights are relative to each column's largest message, not to each destination's, which float32 allows where messages
    of a column are less than 60 apart.

    Raises:
        ArithmeticError: (the returned function) they are further apart.
    """
    s = _structure(graph)
    near = Neighbours(s, s.ones(graph.x.dtype))

    def convolve(conv: Any, x: Tensor) -> Tensor:
        message = x.relu() + conv.eps
        scores = message * conv.aggr_module.t
        with torch.no_grad():
            least, most = scores.aminmax(dim=0, keepdim=True)
            if float((most - least).max()) > 60:
                raise ArithmeticError("messages of a column are more than 60 apart")
        weights = (scores - most).exp()
        width = x.shape[1]
        sums = near(torch.cat([weights, message * weights], 1))
        total = sums[:, :width]
        mixed = sums[:, width:] / torch.where(total == 0, torch.ones_like(total), total)
        out: Tensor = conv.mlp(mixed + x)
        return out

    def run(_: Any) -> Any:
        blocks: Any = model.blocks
        x = convolve(blocks[0].conv, model.encoder(graph.x))
        for block in blocks[1:]:
            x = x + convolve(block.conv, block.norm(x).relu())
        out: Tensor = model.out(functional.relu(blocks[0].norm(x)))
        return out

    return run


def rgcn(model: Any, graph: Any) -> Any:
    """Each relation's product on its sources only, then one sparse product; layer 1's means are made once."""
    nodes, dtype = graph.num_nodes, graph.x.dtype
    kinds = graph.edge_type
    picked, places, edges, weights = [], [], [], []
    counted = 0
    means = []
    for kind in range(RELATIONS):
        ends = graph.edge_index[:, kinds == kind]
        s = Structure(ends, nodes, nodes)
        share = s.degree.clamp(min=1).to(dtype).reciprocal()[s.target]
        means.append(s.matrix(share) @ graph.x)
        rows, where = torch.unique(s.source, return_inverse=True)
        picked.append(rows)
        places.append(len(rows))
        edges.append(torch.stack([where + counted, s.target]))
        weights.append(share)
        counted += len(rows)
    reached = [mean.abs().sum(1).nonzero().flatten() for mean in means]
    once = [mean[rows] for mean, rows in zip(means, reached, strict=True)]
    joint = Structure(torch.cat(edges, 1), counted, nodes)
    near = Neighbours(joint, torch.cat(weights)[joint.order])
    sources = torch.cat(picked)
    pick = Structure(torch.stack([sources, torch.arange(counted)]), nodes, counted)

    def run(_: Any) -> Any:
        first, *others = model.layers
        x = torch.addmm(first.bias, graph.x, first.root)
        for kind, (rows, mean) in enumerate(zip(reached, once, strict=True)):
            x = x.index_add(0, rows, mean @ first.weight[kind])
        for layer in others:
            x = x.relu()
            parts = from_sources(x, pick).split(places)
            made = [part @ layer.weight[kind] for kind, part in enumerate(parts)]
            x = near(torch.cat(made)) + torch.addmm(layer.bias, x, layer.root)
        return x

    return run
