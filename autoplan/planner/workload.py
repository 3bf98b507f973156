"""What is to be planned: a traced step and its operator graph (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from autoplan.errors import AutoplanError, GuardError, TraceError
from autoplan.opgraph import OpGraph
from autoplan.planner.decisions import check_content, rows_check
from autoplan.planner.values import check_values
from autoplan.program.binding import check_input_guards
from autoplan.program.ir import Expression, GuardStep
from autoplan.search import ModelTensor
from autoplan.trace.attributes import dtype_name
from autoplan.trace.build import build_opgraph
from autoplan.trace.loss import LossFunction
from autoplan.trace.remedies import first_line, remedy
from autoplan.trace.schema import GraphSchema
from autoplan.trace.scope import AnyGraph
from autoplan.trace.step import Metrics, TracedStep, trace_step
from autoplan.trace.step_module import MODEL, user_name
from autoplan.trace.validation import validate

_SMALL_PASS_BYTES = 256 * 2**20
"""Up to this much the whole graph is run once by the model and once by the program when a plan is made (DESIGN 3)."""
TOLERANCE = 1e-4
"""Largest relative difference there, in the model's own dtype."""
_SEVERAL = 2
"""Rows that a sample has at least along every axis."""


@dataclass(frozen=True, slots=True, eq=False)
class StepRequest:
    """The user's functions and hints that make a step of a model; arguments as in `trace_step`."""

    loss: LossFunction | None = None
    training: bool = True
    metrics: Metrics | None = None
    inputs: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A step, traced.

    Attributes:
        traced: the step with its program.
        opgraph: the program as data; ``concrete`` where it holds for no other size than those it was recorded at.
        request: what it was traced from.
    """

    traced: TracedStep
    opgraph: OpGraph
    request: StepRequest

    @property
    def general(self) -> bool:
        """Whether there is a program that may be rewritten."""
        return self.traced.program is not None and self.opgraph.generality == "general"

    @property
    def shardable(self) -> bool:
        """Whether there is a program that can be written for ranks; if not, plain PyTorch runs the step."""
        return self.general and self.opgraph.single_only is None


def make_workload(
    model: nn.Module, graph: AnyGraph, request: StepRequest, *, dtype: torch.dtype | None = None
) -> Workload:
    """Traces a step and describes it as an operator graph.

    Args:
        model: the user's, left as it is.
        graph: the user's.
        request: loss, mode, metrics, hints.
        dtype: floating dtype to trace in instead of the model's own.

    Raises:
        TraceError: see `trace_step`.
    """
    traced = trace_step(
        model,
        graph,
        request.loss,
        training=request.training,
        metrics=request.metrics,
        inputs=request.inputs,
        dtype=dtype,
    )
    recorded = traced.program or traced.recording
    if recorded is None:
        return Workload(traced, _unrecorded(traced), request)
    rows = traced.sample_rows[: len(recorded.samples)]
    opgraph = build_opgraph(
        recorded,
        traced.schema.attributes,
        rows,
        has_loss=traced.has_loss,
        training=request.training,
        frozen=_frozen(traced),
        generality="general" if traced.program is not None else "concrete",
        reason=traced.reason,
    )
    ops = tuple(replace(op, module=user_name(op.module)) for op in opgraph.ops)
    return Workload(traced, replace(opgraph, ops=ops), request)


def check_on_graph(workload: Workload, graph: AnyGraph) -> Workload:
    """The workload, held to the graph itself: where a decision recorded from the samples comes out differently, concrete.

    Checked are decisions on sizes, dtypes, layouts and what follows from the graph alone, and, where one pass is small,
    everything: outputs and gradients of the program against the model's own on the whole graph. Then a graph of several types
    may also have one row or none along an axis (a relation without edges): samples have several, and programs are held to that.

    Raises:
        TraceError: a label or another number of the graph is out of range, or the model fails on the whole graph.
    """
    traced = workload.traced
    program = traced.program
    if program is None or not workload.general:
        return workload
    tensors = traced.schema.tensors(graph)
    check_values(program, traced.schema, tensors)
    try:
        rows = GraphSchema.of(graph, workload.request.inputs).rows
        small = _pass_bytes(workload, rows) <= _SMALL_PASS_BYTES
        few = traced.schema.several_types and min(rows.values()) < _SEVERAL
        if small and few:
            workload = free_of_rows(workload)
            program = workload.traced.program
            assert program is not None
        check_input_guards(program, tensors, traced.module)
        rows_check(program, workload.opgraph)(rows)
        if not small:
            check_content(program, workload.opgraph, tensors)
        else:  # the model runs first, so that where it fails itself that is told; then every decision is looked at
            worst = max(validate(program, traced.module, tensors).values())
            if worst > TOLERANCE:
                raise GuardError(f"the program differs from the model by {worst:.1e}")
    except GuardError as error:
        return concrete(workload, f"not valid for this graph: {error}")
    except AutoplanError:
        raise
    except Exception as error:
        message = first_line(error)
        raise TraceError(
            f"the model or its loss fails on the whole graph, though not on samples of it: "
            f"{type(error).__name__}: {message}"
            f"{remedy(error, message, traced.module.used, traced.module, traced.schema)}"
        ) from error
    return workload


def free_of_rows(workload: Workload) -> Workload:
    """The workload with a program that is not held to more than one row along the axes of its inputs."""
    program = workload.traced.program
    if program is None:
        return workload
    held = {
        f"{name}.size({dim}) > 1"
        for name, spec in zip(program.inputs, workload.traced.schema.attributes, strict=True)
        for dim, axis in enumerate(spec.dims)
        if isinstance(axis, str)
    }
    steps = tuple(
        replace(step, test=Expression(step.test.text.replace("> 1", ">= 0")))
        if isinstance(step, GuardStep) and step.test.text in held
        else step
        for step in program.steps
    )
    return replace(workload, traced=replace(workload.traced, program=replace(program, steps=steps)))


def concrete(workload: Workload, reason: str) -> Workload:
    """The workload as one whose program holds only for the samples: plain PyTorch runs it."""
    opgraph = replace(workload.opgraph, generality="concrete", reason=reason)
    return replace(workload, opgraph=opgraph)


def _pass_bytes(workload: Workload, rows: Mapping[str, int]) -> float:
    """All tensors that one pass over a graph of these rows makes, as if none were freed."""
    counts = {name: float(count) for name, count in rows.items()}
    sizes = {name: axis.count(counts) for name, axis in workload.opgraph.axes.items()}
    made = [t for t in workload.opgraph.tensors.values() if t.origin == "op"]
    return sum(tensor.bytes.evaluate(sizes) for tensor in made)


def model_tensors(workload: Workload) -> tuple[ModelTensor, ...]:
    """The model's parameters and buffers, tied ones once, and whether a gradient of the loss reaches them.

    Taken from the traced copy, where lazy layers have their sizes; one that forward never sizes takes no memory.
    """
    model, opgraph = workload.traced.module.get_submodule(MODEL), workload.opgraph
    reached = {
        user_name(tensor.source)
        for tensor in opgraph.tensors.values()
        if tensor.origin == "parameter" and tensor.reaches_loss and tensor.source is not None
    }
    parameters = [
        ModelTensor(name, p.numel() * p.element_size(), name in reached, dtype_name(p))
        for name, p in model.named_parameters()
        if not is_lazy(p)
    ]
    buffers = [
        ModelTensor(name, b.numel() * b.element_size(), False, dtype_name(b))
        for name, b in model.named_buffers()
        if not is_lazy(b)
    ]
    return (*parameters, *buffers)


def model_forms(opgraph: OpGraph) -> tuple[tuple[str, str], ...]:
    """What a program reads of the model, for people: by the model's own names, as ``float32 [8, 16], trained``."""
    forms = {}
    for tensor in opgraph.tensors.values():
        if tensor.origin not in ("parameter", "buffer") or tensor.source is None:
            continue
        role = "buffer"
        if tensor.origin == "parameter":
            role = "frozen (requires_grad=False)"
            if tensor.requires_grad:
                role = "trained" if tensor.reaches_loss else "no gradient"
        shape = ", ".join(map(str, tensor.dims))
        forms[user_name(tensor.source)] = f"{tensor.dtype} [{shape}], {role}"
    return tuple(sorted(forms.items()))


def _frozen(traced: TracedStep) -> tuple[str, ...]:
    return tuple(
        name for name, parameter in traced.module.named_parameters() if not parameter.requires_grad
    )


def cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """A floating tensor in a dtype; others as they are."""
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _unrecorded(traced: TracedStep) -> OpGraph:
    """The graph of a step of which not even one pass could be recorded: no ops, one device."""
    why = traced.reason or "it could not be recorded"
    return OpGraph(
        ops=(),
        tensors={},
        axes={},
        outputs=(),
        has_loss=traced.has_loss,
        training=traced.training,
        generality="concrete",
        reason=why,
        single_only=why,
    )
