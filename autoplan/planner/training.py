"""Training a plan: from a workload and its choices to a job for workers, and back into the user's model (torch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from autoplan.execute.collection import GraphCollection
from autoplan.execute.job import RankData, TrainJob
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.rewrite import rank_program
from autoplan.execute.train import TrainResult, run_training
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import Source
from autoplan.planner.workload import Workload
from autoplan.trace.copies import size_lazy
from autoplan.trace.step_module import MODEL, own_values


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A workload and the strategy of each of its ops."""

    workload: Workload
    choices: Mapping[int, str]


def train(
    model: nn.Module,
    source: Source,
    measured: MeasuredGraph,
    training: Planned,
    evaluation: Planned | None,
    *,
    workers: int,
    optimizer: OptimizerSpec,
    epochs: int,
    seed: int,
    evaluate_every: int | None,
    planned_bytes: tuple[int, ...],
    progress: bool,
    device: str,
) -> TrainResult:
    """Trains on ``workers`` processes (this one, with one) and copies weights and buffers into the user's model.

    Args:
        model: the user's.
        source: the data.
        measured: everything as one graph, cut for the workers.
        training: the step.
        evaluation: the metrics, if there are any.
        workers: number of ranks.
        optimizer: see `autoplan.api.Plan.train`, as for the next three.
        epochs: see there.
        seed: see there.
        evaluate_every: see there.
        planned_bytes: what each rank hands to collectives in the step whose collectives are counted.
        progress: draw a bar.
        device: where the tensors of a rank live.

    Raises:
        ExecutionError: a worker failed; the model is unchanged then.
        PlanError: there is nothing to train.
    """
    assert training.workload.traced.program is not None
    step = rank_program(
        training.workload.traced.program, training.workload.opgraph, training.choices
    )
    wanted = list(step.inputs)
    sized = training.workload.traced
    start = sized.module.get_submodule(MODEL) if sized.lazy else model
    tensors = sized.state_tensors(start)
    evaluate, positions = None, {}
    if evaluation is not None:
        traced = evaluation.workload.traced
        assert traced.program is not None
        evaluate = rank_program(traced.program, evaluation.workload.opgraph, evaluation.choices)
        wanted += evaluate.inputs
        tensors |= traced.state_tensors(start)
        first = len(evaluate.outputs) - len(traced.metrics)
        positions = {name: first + i for i, name in enumerate(traced.metrics)}
    trainable = {p for p in tensors if isinstance(tensors[p], nn.Parameter)}
    job = TrainJob(
        program=step,
        parameters={path: tensors[path] for path in sorted(trainable)},
        buffers={path: tensors[path] for path in sorted(tensors.keys() - trainable)},
        optimizer=optimizer,
        epochs=epochs,
        seed=seed,
        evaluation=evaluate,
        metrics=positions,
        evaluate_every=evaluate_every,
        device=device,
        default_dtype=torch.get_default_dtype(),
        order=source.order(seed) if source.streamed else None,
    )
    data: Iterable[RankData] | GraphCollection = measured.rank_data(workers, wanted)
    if source.streamed:
        assert source.collection is not None
        data = source.collection.only({read.attribute for read in wanted})
    result = run_training(
        job,
        data,
        workers=workers,
        planned_bytes=planned_bytes,
        progress=progress,
    )
    if sized.lazy:
        size_lazy(model, start)
        tensors = sized.state_tensors(model)
    _copy_back(tensors, result, {*step.trained, *step.written})
    return replace(
        result, parameters=own_values(result.parameters), buffers=own_values(result.buffers)
    )


def _copy_back(tensors: Mapping[str, torch.Tensor], result: TrainResult, changed: set[str]) -> None:
    """Trained parameters and written buffers, into the very tensors of the user's model."""
    with torch.no_grad():
        for path, value in _values(result):
            if path in changed and path in tensors:
                tensors[path].copy_(value)


def _values(result: TrainResult) -> Iterator[tuple[str, torch.Tensor]]:
    yield from result.parameters.items()
    yield from result.buffers.items()
