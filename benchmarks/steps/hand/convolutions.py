"""GCN, SAGE, GIN, SGC and APPNP: sums over neighbours as sparse products; what only the graph decides is made once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from benchmarks.steps.hand.operators import propagate
from benchmarks.steps.hand.structure import Structure


class Neighbours:
    """A fixed sparse matrix and its transpose."""

    def __init__(self, structure: Structure, values: Tensor) -> None:
        """``values`` are of the structure's edges, in its order."""
        self.matrix, self.transposed = structure.matrix(values), structure.transposed(values)

    def __call__(self, x: Tensor) -> Tensor:
        """Sums over the neighbours' rows."""
        out: Tensor = propagate(x, self.matrix, self.transposed)
        return out


def normalised(graph: Any) -> Neighbours:
    """GCN's matrix: with loops, both degrees' roots divided out."""
    edges, weights = gcn_norm(graph.edge_index, None, graph.num_nodes, dtype=graph.x.dtype)
    structure = Structure(edges, graph.num_nodes, graph.num_nodes)
    return Neighbours(structure, weights[structure.order])


def gcn(model: Any, graph: Any) -> Any:
    """Layer 1's propagation is made once; the others' linear layers come first, as they never widen."""
    near = normalised(graph)
    once = near(graph.x)

    def run(_: Any) -> Any:
        first, *others = model.layers
        x = torch.addmm(first.bias, once, first.lin.weight.t())
        for layer in others:
            x = near(x.relu() @ layer.lin.weight.t()) + layer.bias
        return x

    return run


def sage(model: Any, graph: Any) -> Any:
    """Layer 1's means are made once; the last layer's linear layer comes before the mean."""
    structure = Structure(graph.edge_index, graph.num_nodes, graph.num_nodes)
    share = structure.degree.clamp(min=1).to(graph.x.dtype).reciprocal()
    near = Neighbours(structure, share[structure.target])
    once = near(graph.x)

    def run(_: Any) -> Any:
        first, *others = model.layers
        x = first.lin_l(once) + first.lin_r(graph.x)
        for layer in others:
            x = x.relu()
            x = near(x @ layer.lin_l.weight.t()) + layer.lin_l.bias + layer.lin_r(x)
        return x

    return run


def gin(model: Any, graph: Any) -> Any:
    """Layer 1's sums are made once; the others' first linear layers come before the sum."""
    near = _sums(graph)
    once = graph.x + near(graph.x)

    def run(_: Any) -> Any:
        first, *others = model.layers
        x = first.nn(once)
        for layer in others:
            x = _gin_layer(layer, x.relu(), near)
        return x

    return run


def gin_graphs(model: Any, graph: Any) -> Any:
    """As `gin`, with a matrix for each batch; nothing is made once, as every step has other graphs."""
    del graph

    def run(batch: Any) -> Any:
        near = _sums(batch)
        x = batch.x
        for place, layer in enumerate(model.layers):
            x = layer.nn(x + near(x)) if place == 0 else _gin_layer(layer, x, near)
            x = x.relu()
        sums = x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.batch, x)
        out: Tensor = model.out(sums)
        return out

    return run


def _sums(graph: Any) -> Neighbours:
    structure = Structure(graph.edge_index, graph.num_nodes, graph.num_nodes)
    return Neighbours(structure, structure.ones(graph.x.dtype))


def _gin_layer(layer: Any, x: Tensor, near: Neighbours) -> Tensor:
    before, activation, after = layer.nn
    x = x @ before.weight.t()
    out: Tensor = after(activation(x + near(x) + before.bias))
    return out


def sgc(model: Any, graph: Any) -> Any:
    """All three hops are made once: what is left is a linear layer."""
    near = normalised(graph)
    once = graph.x
    for _ in range(model.K):
        once = near(once)
    return lambda _: model.lin(once)


def appnp(model: Any, graph: Any) -> Any:
    """Ten sparse products on the logits."""
    near = normalised(graph)
    alpha: Any = model.propagation.alpha

    def run(_: Any) -> Any:
        x = graph.x
        for layer in model.layers[:-1]:
            x = layer(x).relu()
        logits: Tensor = model.layers[-1](x)
        x, kept = logits, alpha * logits
        for _ in range(model.propagation.K):
            x = torch.add(kept, near(x), alpha=1 - alpha)
        return x

    return run
