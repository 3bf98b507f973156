"""One training or evaluation step, prepared for recording and traced (torch)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from autoplan.errors import TraceError
from autoplan.trace.arguments import Arguments, match_arguments
from autoplan.trace.attributes import describe, dtype_name
from autoplan.trace.copies import copy_model, lazy_parameters, random_state_kept
from autoplan.trace.loss import LossFunction, resolve_loss
from autoplan.trace.sampling import GraphSample, draw_samples
from autoplan.trace.schema import GraphSchema
from autoplan.trace.step_module import MODEL, StepModule, user_name

Metrics = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """Everything that recording needs.

    Attributes:
        module: model (a private copy), loss and metrics over the graph's tensors.
        samples: small graphs; the last one is to be held back.
        schema: of the user's graph.
        loss: one sentence that says what the loss is and why.
        lazy: names of the model's parameters and buffers that the user's model has not sized yet.
    """

    module: StepModule
    samples: tuple[GraphSample, ...]
    schema: GraphSchema
    loss: str
    lazy: tuple[str, ...]


def prepare_step(
    model: nn.Module,
    graph: Data,
    loss: LossFunction | None = None,
    *,
    training: bool = True,
    metrics: Metrics | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> PreparedStep:
    """Classify the graph, match forward's arguments, choose the loss, draw samples; see `trace_step`."""
    with random_state_kept():
        torch.manual_seed(seed)
        schema = GraphSchema.of(graph, inputs)
        arguments = match_arguments(model, schema, inputs)
        if dtype is not None:
            schema = _cast_schema(schema, dtype)
        copied = copy_model(model, training=training)
        lazy = lazy_parameters(copied)
        samples = _samples(graph, schema, copied, seed, dtype)
        if dtype is not None and not lazy:
            copied.to(dtype)
        step = StepModule(copied, model, graph, schema, arguments)
        if lazy:
            _run(step, samples[0], schema, training)
            copied.to(dtype or copied_dtype(copied))
            samples = _samples(graph, schema, copied, seed, dtype)
        sentence = ""
        return PreparedStep(step, samples, schema, sentence, lazy)
