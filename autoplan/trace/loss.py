"""Which loss a step has: the user's, or the one that the graph's labels suggest (torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from autoplan.errors import TraceError
from autoplan.opgraph import NODE
from autoplan.trace.attributes import describe, is_integer
from autoplan.trace.schema import GraphSchema

LossFunction = Callable[[Any, Any], Any]
"""``loss(out, graph)``: the model's output and the graph, to a scalar."""

_IGNORED_LABEL = -100
"""`torch.nn.functional.cross_entropy` leaves rows with this label out."""

_SELECTIONS = ("train_mask", "train_idx", "train_index")
"""Attributes that say which rows are trained on, the first one found counts."""


@dataclass(frozen=True, slots=True)
class ResolvedLoss:
    """The loss of a step.

    Attributes:
        function: ``loss(out, graph)``, or None: the plan is forward only.
        sentence: what it is and why, for `explain`.
    """

    function: LossFunction | None
    sentence: str


def resolve_loss(
    loss: LossFunction | None,
    graph: Data,
    schema: GraphSchema,
    output: Any,
    sample: Mapping[str, Tensor],
) -> ResolvedLoss:
    """The user's loss, or by the labels: integer ``y`` cross-entropy, float ``y`` of the output's shape squared error.

    Both are taken over ``train_mask`` (or the nodes of ``train_idx``) where the graph has one.

    Args:
        loss: the user's, or None.
        graph: the real graph; only its labels are looked at.
        schema: its schema.
        output: what the model returned for a sample.
        sample: the sample's tensors by attribute.

    Raises:
        TraceError: integer labels that the output has no column for.
    """
    if loss is not None:
        if not callable(loss):
            raise TraceError(
                f"loss is a {type(loss).__name__}; give a function loss(out, graph), for example "
                "lambda out, graph: F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])"
            )
        name = getattr(loss, "__name__", type(loss).__name__)
        return ResolvedLoss(loss, f"the loss is the given function {name!r}")
    labels = sample.get("y")
    if labels is None:
        return _none("the graph has no y")
    if not isinstance(output, Tensor):
        return _none(f"the model returns a {type(output).__name__}, not one tensor")
    selection = _selection(schema)
    over = f"over {selection}" if selection else "over all rows"
    if is_integer(labels):
        flat = labels.dim() == 2 and labels.size(1) == 1
        if output.dim() != 2 or labels.dim() != 1 + flat or labels.size(0) != output.size(0):
            return _none(
                f"y ({describe(labels)} on a sample) does not label the rows of the output ({describe(output)})"
            )
        _check_labels(graph, selection, output.size(1))
        return ResolvedLoss(
            _CrossEntropy(selection),
            f"the loss is cross-entropy {over}, as y holds integers and loss= was not given",
        )
    if labels.is_floating_point() and labels.shape == output.shape:
        return ResolvedLoss(
            _SquaredError(selection),
            f"the loss is mean squared error {over}, as y has the output's shape and loss= was not given",
        )
    return _none(f"y ({describe(labels)} on a sample) does not fit the output ({describe(output)})")


def _none(why: str) -> ResolvedLoss:
    return ResolvedLoss(None, f"there is no loss: loss= was not given and {why}")


def _selection(schema: GraphSchema) -> str | None:
    """The attribute that selects the nodes to train on, if y has a row per node."""
    if schema["y"].dims[:1] != (NODE,):
        return None
    for name in _SELECTIONS:
        if name in schema.names:
            spec = schema[name]
            mask = spec.dtype == "bool" and spec.dims == (NODE,)
            listed = spec.index is not None and len(spec.dims) == 1 and spec.index.axis == NODE
            if mask or listed:
                return name
    return None


def _check_labels(graph: Data, selection: str | None, classes: int) -> None:
    """Raise TraceError where a label that is trained on is no column of the output; names the label."""
    labels = graph.y if selection is None else graph.y[graph[selection]]
    labels = labels[labels != _IGNORED_LABEL]
    if not labels.numel():
        return
    low, high = (int(value) for value in torch.aminmax(labels))
    if low < 0 or high >= classes:
        bad = low if low < 0 else high
        raise TraceError(
            f"graph.y holds the label {bad}, but the model's output has {classes} columns (labels 0 to {classes - 1}); "
            "widen the model, fix the labels, or give loss="
        )


@dataclass(frozen=True, slots=True)
class _CrossEntropy:
    """Cross-entropy of integer labels, over the rows that ``selection`` selects."""

    selection: str | None

    def __call__(self, out: Tensor, graph: Data) -> Tensor:
        labels = graph.y.view(-1)
        if self.selection is None:
            return functional.cross_entropy(out, labels)
        rows = graph[self.selection]
        return functional.cross_entropy(out[rows], labels[rows])


@dataclass(frozen=True, slots=True)
class _SquaredError:
    """Mean squared error, over the rows that ``selection`` selects."""

    selection: str | None

    def __call__(self, out: Tensor, graph: Data) -> Tensor:
        if self.selection is None:
            return functional.mse_loss(out, graph.y)
        rows = graph[self.selection]
        return functional.mse_loss(out[rows], graph.y[rows])
