"""Which loss a step has: the user's, or the one that the graph's labels suggest (torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from autoplan.errors import TraceError
from autoplan.opgraph import is_node_axis
from autoplan.trace.attributes import describe, is_integer
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph, TypeKey, full_name, label, store_of

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
    graph: AnyGraph,
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
    labelled = _labelled(schema, output, sample)
    if isinstance(labelled, str):
        return _none(labelled)
    key, labels, scores = labelled
    name, of = label(key, "y").removeprefix("graph."), "" if key is None else f" of {key!r}"
    selection = _selection(schema, key)
    over = f"over {selection}" if selection else "over all rows"
    of_type = key if isinstance(output, Mapping) else None
    if is_integer(labels):
        flat = labels.dim() == 2 and labels.size(1) == 1
        if scores.dim() != 2 or labels.dim() != 1 + flat or labels.size(0) != scores.size(0):
            return _none(
                f"{name} ({describe(labels)} on a sample) does not label the rows of the output ({describe(scores)})"
            )
        _check_labels(graph, key, selection, scores.size(1))
        return ResolvedLoss(
            _Labelled(functional.cross_entropy, key, selection, of_type, flatten=True),
            f"the loss is cross-entropy{of} {over}, as {name} holds integers and loss= was not given",
        )
    if labels.is_floating_point() and labels.shape == scores.shape:
        return ResolvedLoss(
            _Labelled(functional.mse_loss, key, selection, of_type, flatten=False),
            f"the loss is mean squared error{of} {over}, as {name} has the output's shape and loss= was not given",
        )
    return _none(
        f"{name} ({describe(labels)} on a sample) does not fit the output ({describe(scores)})"
    )


def _labelled(
    schema: GraphSchema, output: Any, sample: Mapping[str, Tensor]
) -> tuple[TypeKey, Tensor, Tensor] | str:
    """What is labelled: the part of the graph, its labels and the scores for them; or why nothing is."""
    keys: tuple[TypeKey, ...] = (None, *schema.node_types, *schema.edge_types)
    labels = {key: sample[name] for key in keys if (name := full_name(key, "y")) in sample}
    if not labels:
        return "the graph has no y" if not schema.several_types else "no node type has a y"
    if isinstance(output, Tensor):
        fitting = {key: y for key, y in labels.items() if y.dim() and len(y) == len(output)}
        chosen = labels if len(labels) == 1 else fitting
        scores = dict.fromkeys(chosen, output)
    elif schema.several_types and isinstance(output, Mapping):
        scores = {key: out for key, out in output.items() if isinstance(out, Tensor)}
    else:
        return f"the model returns a {type(output).__name__}, not one tensor"
    both = [key for key in labels if key in scores]
    if len(both) != 1:
        found = ", ".join(repr(key) for key in both or labels)
        return f"{len(both)} of the outputs have a y of their own (y is on {found})"
    return both[0], labels[both[0]], scores[both[0]]


def _none(why: str) -> ResolvedLoss:
    return ResolvedLoss(None, f"there is no loss: loss= was not given and {why}")


def _selection(schema: GraphSchema, key: TypeKey) -> str | None:
    """The attribute that selects the nodes to train on, if y has a row per node."""
    rows = schema[full_name(key, "y")].dims[:1]
    if not rows or not isinstance(rows[0], str) or not is_node_axis(rows[0]):
        return None
    for name in _SELECTIONS:
        full = full_name(key, name)
        if full in schema.names:
            spec = schema[full]
            mask = spec.dtype == "bool" and spec.dims == rows
            listed = spec.index is not None and len(spec.dims) == 1 and spec.index.axes == rows
            if mask or listed:
                return name
    return None


def _check_labels(graph: AnyGraph, key: TypeKey, selection: str | None, classes: int) -> None:
    """Raise TraceError where a label that is trained on is no column of the output; names the label."""
    store = store_of(graph, key)
    labels = store["y"] if selection is None else store["y"][store[selection]]
    labels = labels[labels != _IGNORED_LABEL]
    if not labels.numel():
        return
    low, high = (int(value) for value in torch.aminmax(labels))
    if low < 0 or high >= classes:
        bad = low if low < 0 else high
        raise TraceError(
            f"{label(key, 'y')} holds the label {bad}, but the model's output has {classes} columns "
            f"(labels 0 to {classes - 1}); widen the model, fix the labels, or give loss="
        )


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A loss of labels, over the rows that ``selection`` selects.

    Attributes:
        function: of scores and labels.
        key: the part of the graph that has the labels.
        selection: an attribute there, or None.
        of_type: the entry of the model's output, where that is a mapping.
        flatten: labels of shape [N, 1] are taken as [N].
    """

    function: Callable[[Tensor, Tensor], Tensor]
    key: TypeKey
    selection: str | None
    of_type: TypeKey
    flatten: bool

    def __call__(self, out: Any, graph: AnyGraph) -> Tensor:
        store = store_of(graph, self.key)
        scores: Tensor = out if self.of_type is None else out[self.of_type]
        labels: Tensor = store["y"].view(-1) if self.flatten else store["y"]
        if self.selection is None:
            return self.function(scores, labels)
        rows = store[self.selection]
        return self.function(scores[rows], labels[rows])
