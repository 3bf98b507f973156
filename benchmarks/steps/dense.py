"""The ceiling of each model: a step of nothing but the matrix products that every exact version has to do.

Counted after everything that may be moved: a linear layer after a gather is done before it, one of two ends' features is
split between the ends, propagation of the input features has left the loop, linear layers without anything between them are
one. Nothing on edges is counted but products that a nonlinear function on edges forces there; no activations, sums, softmax,
normalisation or loss. So plain over ceiling bounds the speed-up of any exact lowering.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmarks.steps.graphs import GRAPHS_PER_STEP, RELATIONS
from benchmarks.steps.models import HEADS, HIDDEN, LAYERS


@dataclass(frozen=True, slots=True)
class Product:
    """Of ``rows`` x ``inputs`` with the weights, ``inputs`` x ``outputs``, and the two products of its backward pass.

    Attributes:
        rows: of the input.
        inputs: columns of the input.
        outputs: columns of the output.
        input_gradient: whether anything trained lies before it.
        forward: False where only the backward pass has so many rows.
        backward: False where only the forward pass has so many rows.
    """

    rows: int
    inputs: int
    outputs: int
    input_gradient: bool = True
    forward: bool = True
    backward: bool = True

    @property
    def flops(self) -> int:
        """Of a step: two for each multiplication."""
        passes = self.forward + self.backward * (1 + self.input_gradient)
        return 2 * passes * self.rows * self.inputs * self.outputs


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the counts depend on."""

    nodes: int
    edges: int
    features: int
    classes: int
    hidden: int = HIDDEN
    heads: int = HEADS

    def widths(self) -> list[tuple[int, int, bool]]:
        """(inputs, outputs, whether the input needs a gradient) of the three layers."""
        ends = [self.features, *[self.hidden] * (LAYERS - 1), self.classes]
        return [(i, o, place > 0) for place, (i, o) in enumerate(itertools.pairwise(ends))]


def _each(count: int) -> Callable[[Sizes, Any], list[Product]]:
    """``count`` linear layers of nodes in each layer."""

    def products(sizes: Sizes, graph: Any) -> list[Product]:
        del graph
        return [Product(sizes.nodes, i, o, g) for i, o, g in sizes.widths() for _ in range(count)]

    return products


def _attention(count: int, skip: bool = False) -> Callable[[Sizes, Any], list[Product]]:
    """``count`` projections, in the last layer one of all classes for each head; with a linear layer around it, ``skip``."""

    def products(sizes: Sizes, graph: Any) -> list[Product]:
        del graph
        found = []
        for place, (i, o, g) in enumerate(sizes.widths()):
            wide = o * sizes.heads if place == LAYERS - 1 else o
            found += [Product(sizes.nodes, i, wide, g)] * count
            found += [Product(sizes.nodes, i, o, g)] * skip
        return found

    return products


def _gin(sizes: Sizes, graph: Any) -> list[Product]:
    """Both layers of each perceptron; the first one's input of layer 1 is a sum over the graph, which is made once."""
    del graph
    found = []
    for i, o, g in sizes.widths():
        found += [Product(sizes.nodes, i, o, g), Product(sizes.nodes, o, o)]
    return found


def _pna(sizes: Sizes, graph: Any) -> list[Product]:
    """Of each layer the pre-layer's source half and a post-layer of five parts.

    The destination half is the same for all messages of a node, so that it may be folded into the post-layer. This has the node and
    its four aggregates: nodes of equal degree share their scalers, which go into the weights. The layer's last linear layer is
    folded into it, too.
    """
    del graph
    found = []
    for i, o, g in sizes.widths():
        found += [Product(sizes.nodes, i, i, g), Product(sizes.nodes, 5 * i, o)]
    return found


def _appnp(sizes: Sizes, graph: Any) -> list[Product]:
    """The three linear layers."""
    return _each(1)(sizes, graph)


def _sgc(sizes: Sizes, graph: Any) -> list[Product]:
    """The linear layer; its input is made once."""
    del graph
    return [Product(sizes.nodes, sizes.features, sizes.classes, input_gradient=False)]


def _edge_conv(sizes: Sizes, graph: Any) -> list[Product]:
    """Both layers of the perceptron.

    First layer: one product for each end, on nodes. Second layer: on edges, as a ReLU is before and a
    maximum after it. The maximum takes one edge for each destination and column: the backward pass has as many non-zero
    gradients as a node matrix.
    """
    del graph
    found = []
    for i, o, g in sizes.widths():
        found += [Product(sizes.nodes, i, o, g)] * 2
        found.append(Product(sizes.edges, o, o, backward=False))
        found.append(Product(min(sizes.nodes, sizes.edges), o, o, forward=False))
    return found


def _deeper(sizes: Sizes, graph: Any) -> list[Product]:
    """Encoder, the two layers of each block's perceptron (twice as wide inside), output layer."""
    del graph
    hidden = sizes.hidden
    inside = [Product(sizes.nodes, hidden, 2 * hidden), Product(sizes.nodes, 2 * hidden, hidden)]
    encoder = Product(sizes.nodes, sizes.features, hidden, input_gradient=False)
    return [encoder, *inside * LAYERS, Product(sizes.nodes, hidden, sizes.classes)]


def _rgcn(sizes: Sizes, graph: Any) -> list[Product]:
    """The root's product, and one for each relation.

    That is on its destinations (after the mean) or on its sources (before it),
    whichever are fewer. Layer 1: on destinations' means, which are made once.
    """
    ends = [graph.edge_index[:, graph.edge_type == kind] for kind in range(RELATIONS)]
    targets = [int(torch.unique(pair[1]).numel()) for pair in ends]
    sources = [int(torch.unique(pair[0]).numel()) for pair in ends]
    found = []
    for i, o, g in sizes.widths():
        found.append(Product(sizes.nodes, i, o, g))
        found += [Product(min(pair), i, o, g) for pair in zip(targets, sources, strict=True)]
    return found


def _hgt(sizes: Sizes, graph: Any) -> list[Product]:
    """Encoders, layers, and the output layer of papers.

    In each layer key, query and value of every node, the relation's products of keys and values by heads on its
    sources, and the output layer. Of the last layer only what the papers' logits need.
    """
    hidden, inside = sizes.hidden, sizes.hidden // sizes.heads
    counts = {kind: graph[kind].num_nodes for kind in graph.node_types}
    found = [Product(n, sizes.features, hidden, input_gradient=False) for n in counts.values()]
    for layer in range(LAYERS):
        last = layer == LAYERS - 1
        reached = [kind for kind in graph.node_types if not last or kind == "paper"]
        relations = [kind for kind in graph.edge_types if kind[2] in reached]
        found += [Product(counts[kind], hidden, 2 * hidden) for kind in graph.node_types]
        found += [Product(counts[kind], hidden, hidden) for kind in reached]
        found += [
            Product(counts[source] * sizes.heads, inside, inside) for source, _, _ in relations
        ] * 2
        found += [Product(counts[kind], hidden, hidden) for kind in reached]
    return [*found, Product(counts["paper"], hidden, sizes.classes)]


def _graphs(sizes: Sizes, graph: Any) -> list[Product]:
    """Both layers of each perceptron on a batch of mean size, and the output layer on its graphs."""
    hidden = sizes.hidden
    found = []
    for layer in range(LAYERS):
        width = hidden if layer else sizes.features
        found += [
            Product(sizes.nodes, width, hidden, layer > 0),
            Product(sizes.nodes, hidden, hidden),
        ]
    return [*found, Product(min(GRAPHS_PER_STEP, len(graph)), hidden, sizes.classes)]


COUNTS: dict[str, Callable[[Sizes, Any], list[Product]]] = {
    "GCN": _each(1),
    "SAGE": _each(2),
    "GAT": _attention(1),
    "GATv2": _attention(2),
    "GIN": _gin,
    "PNA": _pna,
    "APPNP": _appnp,
    "SGC": _sgc,
    "TransformerConv": _attention(3, skip=True),
    "EdgeConv": _edge_conv,
    "DeeperGCN": _deeper,
    "RGCN": _rgcn,
    "HGT": _hgt,
    "GIN-graphs": _graphs,
}
"""By model: the products of a step."""


def products(name: str, graph: Any, *, hidden: int = HIDDEN, heads: int = HEADS) -> list[Product]:
    """The products that a step of a model needs on a graph (of many graphs: on a batch of mean size)."""
    if isinstance(graph, list):
        share = min(GRAPHS_PER_STEP, len(graph)) / len(graph)
        nodes = round(share * sum(each.num_nodes for each in graph))
        edges = round(share * sum(each.num_edges for each in graph))
        classes = 1 + max(int(each.y.max()) for each in graph)
        width = graph[0].num_node_features
    else:
        labelled = graph if isinstance(graph, Data) else graph["paper"]
        nodes, edges = graph.num_nodes, graph.num_edges
        classes, width = 1 + int(labelled.y.max()), labelled.x.shape[1]
    return COUNTS[name](Sizes(nodes, edges, width, classes, hidden, heads), graph)


class Ceiling(nn.Module):
    """Does the products, forward and backward; matrices of one shape share their memory."""

    def __init__(self, work: list[Product]) -> None:
        super().__init__()
        self._work = work
        self.weights = nn.ParameterList(
            torch.randn(each.inputs, each.outputs) / each.inputs**0.5 for each in work
        )
        self._matrices: dict[tuple[int, int], Tensor] = {}

    def run(self) -> None:
        """One forward and backward pass; sets the weights' gradients."""
        for each, weight in zip(self._work, self.weights, strict=True):
            if each.forward:
                self._matrix(each.rows, each.inputs) @ weight.detach()
        for each, weight in zip(self._work, self.weights, strict=True):
            if each.backward:
                gradient = self._matrix(each.rows, each.outputs)
                weight.grad = self._matrix(each.rows, each.inputs).t() @ gradient
                if each.input_gradient:
                    gradient @ weight.detach().t()

    def _matrix(self, rows: int, columns: int) -> Tensor:
        if (rows, columns) not in self._matrices:
            self._matrices[rows, columns] = torch.randn(rows, columns)
        return self._matrices[rows, columns]
