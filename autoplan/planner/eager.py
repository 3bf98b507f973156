"""Plans of steps that have no program to rewrite: plain PyTorch on one device, in this process (torch).

A private copy of the model runs, in the traced step's own module; weights, buffers and plain attributes go back to the user's model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from autoplan.errors import AutoplanError, ExecutionError, PlanError
from autoplan.execute.audit import peak_memory, storage_bytes
from autoplan.execute.job import Evaluation, RankResult
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.progress import EpochReport, progress_bar
from autoplan.execute.train import TrainResult, combine
from autoplan.planner.attributes import attributes_of, bring_back
from autoplan.planner.source import Source
from autoplan.planner.stepping import StepOutcome
from autoplan.planner.workload import Workload
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.records import flatten
from autoplan.program.torch_internals import tree_unflatten
from autoplan.trace.copies import size_lazy
from autoplan.trace.model_state import ModelState
from autoplan.trace.remedies import first_line, remedy
from autoplan.trace.scope import AnyGraph
from autoplan.trace.step_module import own_values


def eager_step(workload: Workload, graph: AnyGraph, *, seed: int) -> StepOutcome:
    """One step on a graph without an update, as plain PyTorch runs it. Random draws are torch's own, from the seed."""
    traced = workload.traced
    with (
        ModelState(traced.module).kept(),
        _drawn_from(seed),
        torch.set_grad_enabled(traced.has_loss),
    ):
        loss, outputs, metrics = _run(workload, graph)
        if loss is not None and loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        gradients = own_values(
            {
                name: parameter.grad.clone()
                for name, parameter in traced.module.named_parameters()
                if parameter.grad is not None
            }
        )
        traced.module.zero_grad()
        buffers = own_values({name: b.clone() for name, b in traced.module.named_buffers()})
    flat, spec = flatten(outputs)
    detached = tree_unflatten(
        [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in flat], spec
    )
    return StepOutcome(
        None if loss is None else loss.detach(), detached, gradients, buffers, metrics
    )


def eager_train(
    model: nn.Module,
    source: Source,
    training: Workload,
    evaluation: Workload | None,
    *,
    optimizer: OptimizerSpec,
    epochs: int,
    seed: int,
    evaluate_every: int | None,
    progress: bool,
) -> TrainResult:
    """Trains in this process and copies weights, buffers and what forward counts in plain attributes into the user's model.

    Raises:
        PlanError: there is no loss, or no parameter that asks for a gradient.
    """
    module = training.traced.module
    attributes = attributes_of(module.get_submodule("model"))
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not training.traced.has_loss or not trained:
        raise PlanError(
            "there is nothing to train: the plan has no loss (give loss=) or no parameter asks for a gradient"
        )
    updates = optimizer.build(trained)
    losses, seconds, evaluations = [], [], []
    per_epoch = source.order(seed).steps_per_epoch if source.streamed else 1
    measured_step = min(3, epochs * per_epoch - 1)
    peak, resident = 0, 0
    with progress_bar(epochs, shown=progress) as reporter:
        for step in range(epochs * per_epoch):
            graph = source.graph(step, seed)
            updates.zero_grad(set_to_none=True)
            with _drawn_from(seed + step):
                started = time.perf_counter()
                if step == measured_step:
                    tensors = training.traced.schema.tensors(graph)
                    resident = storage_bytes([*module.parameters(), *tensors])
                    with peak_memory(resident) as memory:
                        loss = _update(training, graph, updates)
                    peak = memory.peak
                else:
                    loss = _update(training, graph, updates)
                seconds.append(time.perf_counter() - started)
            losses.append(loss)
            epoch, within = divmod(step + 1, per_epoch)
            if within:
                continue
            last = epoch == epochs
            if last or (evaluate_every and epoch % evaluate_every == 0):
                evaluations.append(Evaluation(epoch, _evaluate(module, evaluation, source.whole)))
            if reporter.wants(last=last):
                metrics = evaluations[-1].metrics if evaluations else {}
                reporter.report(EpochReport(epoch, losses[-1], metrics))
    size_lazy(model, module.get_submodule("model"))
    model.load_state_dict(module.get_submodule("model").state_dict())
    bring_back(attributes, module.get_submodule("model"), model)
    result = RankResult(
        losses=tuple(losses),
        evaluations=tuple(evaluations),
        step_seconds=tuple(seconds),
        threads=torch.get_num_threads(),
        audited=(measured_step,),
        collectives=(),
        resident_bytes=resident,
        peak_bytes=peak,
        parameters={name: p.detach().clone() for name, p in model.named_parameters()},
        buffers={name: b.detach().clone() for name, b in model.named_buffers()},
    )
    return combine([result], None)


def _update(workload: Workload, graph: AnyGraph, updates: torch.optim.Optimizer) -> float:
    """One step; returns its loss. No tensor stays: torch's profiler warns on stderr of memory that is older than itself."""
    loss, _, _ = _run(workload, graph)
    assert loss is not None
    loss.backward()  # type: ignore[no-untyped-call]
    updates.step()
    return float(loss.detach())


def _evaluate(module: nn.Module, evaluation: Workload | None, graph: AnyGraph) -> dict[str, float]:
    if evaluation is None:
        return {}
    own = evaluation.traced.module.get_submodule("model")
    own.load_state_dict(module.get_submodule("model").state_dict())
    with torch.no_grad():
        _, _, metrics = _run(evaluation, graph)
    return {name: float(value) for name, value in metrics.items()}


def _run(workload: Workload, graph: AnyGraph) -> tuple[torch.Tensor | None, Any, dict[str, Any]]:
    """Loss, outputs and metrics of the step's module on a graph."""
    traced = workload.traced
    tensors = traced.schema.tensors(graph)
    try:
        result = traced.module(*(t.detach().requires_grad_(t.requires_grad) for t in tensors))
    except AutoplanError:
        raise
    except Exception as error:
        message = first_line(error)
        raise ExecutionError(
            f"the model or its loss fails on the graph: {type(error).__name__}: {message}"
            f"{remedy(error, message, traced.module.used, traced.module, traced.schema)}",
            rank=0,
        ) from error
    parts = list(result) if traced.has_loss or traced.metrics else [result]
    loss = parts.pop(0) if traced.has_loss else None
    return loss, parts[0], parts[1] if traced.metrics else {}


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """Torch's global generator from a seed, and back to where it was."""
    with EXCLUSIVE, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
