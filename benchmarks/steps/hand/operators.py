"""Differentiable steps on a `Structure`. Values of edges are in its order: by destination."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.steps.hand.structure import Heads, Structure

CHUNK = 16_384
"""Edges that are computed at once where values of edges need not be kept."""


class Propagate(Function):
    """``matrix @ x`` with fixed values, both matrices given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.transposed @ gradients[0].contiguous(), None, None


class FromSources(Function):
    """The source's row of each edge."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, structure: Structure) -> Tensor:
        ctx.structure = structure
        return x.index_select(0, structure.source)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0].contiguous()
        return ctx.structure.to_sources(gradient.dtype) @ gradient, None


class FromTargets(Function):
    """The destination's row of each edge."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, structure: Structure) -> Tensor:
        ctx.structure = structure
        return x.index_select(0, structure.target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0].contiguous()
        return ctx.structure.to_targets(gradient.dtype) @ gradient, None


class EdgeSoftmax(Function):
    """PyG's softmax over each destination's edges, of [edges, heads]."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, structure: Structure) -> Tensor:
        index = structure.target[:, None].expand_as(scores)
        most = scores.new_zeros(structure.targets, scores.shape[1])
        most.scatter_reduce_(0, index, scores, "amax", include_self=False)
        weights = (scores - most.index_select(0, structure.target)).exp_()
        total = structure.to_targets(scores.dtype) @ weights + 1e-16
        weights /= total.index_select(0, structure.target)
        ctx.structure = structure
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weights,) = ctx.saved_tensors
        weighted = weights * gradients[0]
        mean = ctx.structure.to_targets(weights.dtype) @ weighted
        return weighted.addcmul_(
            weights, mean.index_select(0, ctx.structure.target), value=-1
        ), None


class Attend(Function):
    """For each destination and head, the sum of the sources' values [sources, heads, C] times [edges, heads] weights."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, heads: Heads) -> Tensor:
        ctx.heads = heads
        ctx.save_for_backward(weights, values)
        flat = values.reshape(-1, values.shape[-1])
        return (heads.matrix(weights) @ flat).view(-1, *values.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, values = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        flat = gradient.view(-1, gradient.shape[-1])
        back = (ctx.heads.transposed(weights) @ flat).view(values.shape)
        return products_of_ends(gradient, values, ctx.heads), back, None


class Scores(Function):
    """For each edge and head, the product of the ends' vectors, [targets, heads, C] and [sources, heads, C]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, heads: Heads) -> Tensor:
        ctx.heads = heads
        ctx.save_for_backward(query, key)
        return products_of_ends(query, key, heads)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key = ctx.saved_tensors
        width = query.shape[-1]
        to_query = ctx.heads.matrix(gradients[0]) @ key.reshape(-1, width)
        to_key = ctx.heads.transposed(gradients[0]) @ query.reshape(-1, width)
        return to_query.view(query.shape), to_key.view(key.shape), None


def products_of_ends(query: Tensor, key: Tensor, heads: Heads) -> Tensor:
    """[edges, heads]: the entries of the product of both matrices that the blocks of heads have."""
    pattern = heads.matrix(query.new_zeros(heads.structure.edges, heads.heads))
    width = query.shape[-1]
    sampled = torch.sparse.sampled_addmm(
        pattern, query.reshape(-1, width), key.reshape(-1, width).t(), beta=0.0
    )
    return heads.in_order(sampled.values())


class ScoresOfSums(Function):
    """GATv2's scores: for each edge and head, ``attention . leaky_relu(source + destination)``.

    In chunks, which are computed anew in the backward pass. Sums over a head's columns are products with a block matrix.
    """

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, target: Tensor, attention: Tensor, slope: float, s: Structure
    ) -> Tensor:
        """Args: source: [sources, heads, C]; target: [targets, heads, C]; attention: [1, heads, C]; slope: below zero."""
        ctx.structure, ctx.slope = s, slope
        ctx.save_for_backward(source, target, attention)
        blocks = _blocks(attention).t().contiguous()
        source, target = source.flatten(1), target.flatten(1)
        out = source.new_empty(s.edges, attention.shape[1])
        for first in range(0, s.edges, CHUNK):
            part = slice(first, first + CHUNK)
            torch.mm(_leaky(source, target, slope, s, part), blocks, out=out[part])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        source, target, attention = ctx.saved_tensors
        s: Structure = ctx.structure
        heads = attention.shape[1]
        blocks = _blocks(attention)
        flat_source, flat_target = source.flatten(1), target.flatten(1)
        each = source.new_empty(s.edges, flat_source.shape[1])
        to_blocks = torch.zeros_like(blocks)
        for first in range(0, s.edges, CHUNK):
            part = slice(first, first + CHUNK)
            both = _leaky(flat_source, flat_target, ctx.slope, s, part)
            gradient = gradients[0][part]
            to_blocks.addmm_(gradient.t(), both)
            torch.ops.aten.leaky_relu_backward.grad_input(
                gradient @ blocks, both, ctx.slope, True, grad_input=each[part]
            )
        to_attention = to_blocks.view(heads, heads, -1).diagonal().t()[None]
        return (
            (s.to_sources(each.dtype) @ each).view(source.shape),
            (s.to_targets(each.dtype) @ each).view(target.shape),
            to_attention,
            None,
            None,
        )


def _blocks(attention: Tensor) -> Tensor:
    """[heads, heads x C], each head's vector in its own columns."""
    eye = torch.eye(attention.shape[1], dtype=attention.dtype)
    return (eye[:, :, None] * attention).flatten(1)


def _leaky(source: Tensor, target: Tensor, slope: float, s: Structure, part: slice) -> Tensor:
    both = source.index_select(0, s.source[part])
    both += target.index_select(0, s.target[part])
    return torch.nn.functional.leaky_relu_(both, slope)


class Extremes(Function):
    """Least and largest of the sources' rows at each destination, [targets, C] each; zero without edges.

    Equal ones share the gradient, as in `torch.Tensor.scatter_reduce_`. Where the first and the last of a destination's edges
    that have the extreme come from one source, all of the gradient is this source's; elsewhere edges are counted.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Structure) -> tuple[Tensor, Tensor]:
        found = [_extreme(x, s, reduce) for reduce in ("amin", "amax")]
        ctx.structure = s
        ctx.save_for_backward(x, *(each for pair in found for each in pair))
        return found[0][0], found[1][0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, least, first, last, most, other_first, other_last = ctx.saved_tensors
        s: Structure = ctx.structure
        total = torch.zeros_like(x)
        extremes = ((least, first, last), (most, other_first, other_last))
        for (extreme, one, another), gradient in zip(extremes, gradients, strict=True):
            shared = (one != another).any(1)
            alone = gradient * ((s.degree > 0) & ~shared)[:, None]
            total.scatter_add_(0, one, alone)
            edges = shared[s.target].nonzero().flatten()
            source, target = s.source[edges], s.target[edges]
            hits = (x[source] == extreme[target]).to(x.dtype)
            counts = torch.zeros_like(extreme).index_add_(0, target, hits).clamp_(min=1)
            total.index_add_(0, source, hits.mul_((gradient / counts)[target]))
        return total, None


def _extreme(x: Tensor, s: Structure, reduce: str) -> tuple[Tensor, Tensor, Tensor]:
    """Values, and the sources, [targets, C], that the first and the last of the edges with this value come from."""
    out = torch.empty(0)
    sources = []
    for matrix, source in ((s.matrix(s.ones(x.dtype)), s.source), s.reversed_matrix(x.dtype)):
        with torch.enable_grad():
            # only for an input that is differentiated the places are told
            wanted = x.detach().requires_grad_()
            out, place = torch.ops.aten._sparse_mm_reduce_impl(matrix, wanted, reduce)
        sources.append(source[place.clamp_(max=s.edges - 1)] if s.edges else place.long())
    return out.detach(), sources[0], sources[1]


class LargestOfPerceptron(Function):
    """EdgeConv's maximum over edges of ``relu(target + source) @ weight.T``; zero without edges.

    Equal ones share the gradient. Hidden values of edges are computed anew in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, target: Tensor, source: Tensor, weight: Tensor, bias: Tensor, s: Structure
    ) -> Tensor:
        messages = source.new_empty(s.edges, weight.shape[0])
        for first in range(0, s.edges, CHUNK):
            part = slice(first, first + CHUNK)
            torch.addmm(bias, _hidden(target, source, s, part), weight.t(), out=messages[part])
        most: Tensor = torch.sparse.mm(s.to_targets(source.dtype), messages, "amax")
        ctx.structure = s
        ctx.messages = messages
        ctx.save_for_backward(target, source, weight, most)
        return most

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        target, source, weight, most = ctx.saved_tensors
        s: Structure = ctx.structure
        values = ctx.messages
        ctx.messages = None
        for first in range(0, s.edges, CHUNK):
            part = slice(first, first + CHUNK)
            torch.eq(values[part], most.index_select(0, s.target[part]), out=values[part])
        has_edges = (s.degree > 0)[:, None]
        gradient = gradients[0] * has_edges
        share = gradient / (s.to_targets(values.dtype) @ values).clamp_(min=1)
        to_weight = torch.zeros_like(weight)
        back = (
            values
            if values.shape[1] == source.shape[1]
            else source.new_empty(s.edges, source.shape[1])
        )
        for first in range(0, s.edges, CHUNK):
            part = slice(first, first + CHUNK)
            each = values[part].mul_(share.index_select(0, s.target[part]))
            hidden = _hidden(target, source, s, part)
            to_weight.addmm_(each.t(), hidden)
            back[part] = (each @ weight).mul_(hidden > 0)
        return (
            s.to_targets(back.dtype) @ back,
            s.to_sources(back.dtype) @ back,
            to_weight,
            gradient.sum(0),
            None,
        )


def _hidden(target: Tensor, source: Tensor, s: Structure, part: slice) -> Tensor:
    both = source.index_select(0, s.source[part])
    both += target.index_select(0, s.target[part])
    hidden: Tensor = torch.relu_(both)
    return hidden


propagate: Any = Propagate.apply
from_sources: Any = FromSources.apply
from_targets: Any = FromTargets.apply
edge_softmax: Any = EdgeSoftmax.apply
attend: Any = Attend.apply
scores_of_ends: Any = Scores.apply
scores_of_sums: Any = ScoresOfSums.apply
extremes: Any = Extremes.apply
largest_of_perceptron: Any = LargestOfPerceptron.apply
