"""One training or evaluation step, traced (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.ir import GRAPH, INPUT, GuardStep, Program
from autoplan.trace.copies import random_state_kept
from autoplan.trace.core import generalise_module
from autoplan.trace.loss import LossFunction
from autoplan.trace.prepare import Metrics, prepare_step
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph
from autoplan.trace.step_module import CAPTURED, StepModule, user_name

__all__ = ["Metrics", "TracedStep", "trace_step"]


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step and its program.

    Attributes:
        program: valid for any graph of the schema; None where there is none.
        reason: why there is none.
        recording: without a program, one pass over the first sample: sizes and costs only.
        schema: of the user's graph; the program's inputs are its tensors in schema order.
        sample_rows: rows of every axis, one entry per entry of ``program.samples`` (and of the recording's).
        loss: one sentence that says what the loss is and why.
        has_loss: whether the first output is a loss.
        training: the mode it was recorded in.
        metrics: names of the metrics, which are the last output.
        parameters: names of the model's parameters, the model's own, tied ones once.
        lazy: names of those parameters and buffers that the user's model has not sized yet.
        module: what was recorded, for comparisons with plain PyTorch.
        least_nodes: nodes that a sample needs at least.
    """

    program: Program | None
    reason: str | None
    recording: Program | None
    schema: GraphSchema
    sample_rows: tuple[Mapping[str, int], ...]
    loss: str
    has_loss: bool
    training: bool
    metrics: tuple[str, ...]
    parameters: tuple[str, ...]
    lazy: tuple[str, ...]
    module: StepModule
    least_nodes: int = 1

    def state_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """The tensors that the program reads besides the graph's: `StateSlot.path` -> the model's own, or a captured one.

        Args:
            model: the user's model, with every parameter sized.
        """
        return dict(self._state_tensors(model))

    def _state_tensors(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        program = self.program or self.recording
        for slot in program.state if program is not None else ():
            owner: nn.Module = self.module if slot.path.startswith(f"{CAPTURED}.") else model
            path = slot.path if owner is self.module else user_name(slot.path)
            module, _, name = path.rpartition(".")
            yield slot.path, getattr(owner.get_submodule(module), name)


def trace_step(
    model: nn.Module,
    graph: AnyGraph,
    loss: LossFunction | None = None,
    *,
    training: bool = True,
    metrics: Metrics | None = None,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> TracedStep:
    """Trace a model with its loss and metrics on samples of a graph.

    The user's model, graph and random state are left as they are, to the bit.

    Args:
        model: any module whose forward takes the graph's attributes by name, or the graph.
        graph: the graph to train on.
        loss: ``loss(out, graph)``. None: in training what the labels suggest (see `resolve_loss`), in evaluation none.
        training: record in training mode (dropout drops) or in evaluation mode.
        metrics: by name, functions like the loss.
        inputs: what the user says of attributes (`GraphSchema.of`) and of forward's arguments (`match_arguments`).
        seed: of the samples.
        dtype: floating dtype to trace in instead of the model's own (`verify` uses float64), torch's default meanwhile.

    Raises:
        TraceError: the graph cannot be classified, an argument has no attribute, or model, loss or a metric fails on a
            sample.
    """
    with EXCLUSIVE, random_state_kept(), _default(dtype):
        step = prepare_step(
            model,
            graph,
            loss,
            training=training,
            metrics=metrics,
            inputs=inputs,
            seed=seed,
            dtype=dtype,
        )
        traced = generalise_module(step.module, [sample.tensors for sample in step.samples])
    program = traced.program
    return TracedStep(
        program=None if program is None else _told_of_attributes(program, step.schema),
        reason=traced.reason and (step.too_small or traced.reason),
        recording=traced.recording,
        schema=step.schema,
        sample_rows=tuple(sample.rows for sample in step.samples[:-1]),
        loss=step.loss,
        has_loss=step.module.has_loss,
        training=training,
        metrics=tuple(metrics or ()),
        parameters=tuple(name for name, _ in model.named_parameters()),
        lazy=step.lazy,
        module=step.module,
        least_nodes=step.least_nodes,
    )


@contextmanager
def _default(dtype: torch.dtype | None) -> Iterator[None]:
    """A dtype as torch's default, which tensors that the user's code makes follow; None: as it is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _told_of_attributes(program: Program, schema: GraphSchema) -> Program:
    """The program whose guards on inputs say which attribute of the graph they read: ``v6.size(1) > 1`` tells a user nothing."""
    steps = list(program.steps)
    for index, step in enumerate(steps):
        if isinstance(step, GuardStep) and step.where == INPUT:
            read = step.test.text.partition(".")[0]
            place = f"{GRAPH}{schema.names[program.inputs.index(read)]}"
            steps[index] = replace(step, where=place)
    return replace(program, steps=tuple(steps))
