"""Training a plan: from a workload and its choices to a job for workers, and back into the user's model (torch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from autoplan.execute.collection import GraphCollection
from autoplan.execute.job import Pipeline, RankData, TrainJob
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.rewrite import rank_program
from autoplan.execute.train import TrainResult, run_training
from autoplan.planner.arrangement import Arrangement
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import Source
from autoplan.planner.workload import Workload
from autoplan.program.rank_program import RankProgram
from autoplan.trace.copies import size_lazy
from autoplan.trace.step_module import MODEL, own_values


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A workload and who computes what of it."""

    workload: Workload
    arrangement: Arrangement


def train(
    model: nn.Module,
    source: Source,
    measured: MeasuredGraph,
    training: Planned,
    evaluation: Planned | None,
    *,
    optimizer: OptimizerSpec,
    epochs: int,
    seed: int,
    evaluate_every: int | None,
    planned_bytes: tuple[int, ...] | None,
    progress: bool,
    device: str,
) -> TrainResult:
    """Trains on ``workers`` processes (this one, with one) and copies weights and buffers into the user's model.

    Args:
        model: the user's.
        source: the data.
        measured: everything as one graph, cut for the ranks.
        training: the step.
        evaluation: the metrics, if there are any.
        optimizer: see `autoplan.api.Plan.train`, as for the next three.
        epochs: see there.
        seed: see there.
        evaluate_every: see there.
        planned_bytes: what each rank hands to others in the step that is counted; None where it is not known.
        progress: draw a bar.
        device: where the tensors of a rank live.

    Raises:
        ExecutionError: a worker failed; the model is unchanged then.
        PlanError: there is nothing to train.
    """
    arrangement = training.arrangement
    sized = training.workload.traced
    start = sized.module.get_submodule(MODEL) if sized.lazy else model
    tensors = sized.state_tensors(start)
    positions: dict[str, int] = {}
    if evaluation is not None:
        traced = evaluation.workload.traced
        assert traced.program is not None
        tensors |= traced.state_tensors(start)
        first = len(traced.program.outputs) - len(traced.metrics)
        positions = {name: first + i for i, name in enumerate(traced.metrics)}
    trainable = {p for p in tensors if isinstance(tensors[p], nn.Parameter)}
    job = TrainJob(
        program=None if arrangement.pipeline is not None else _program(training),
        pipeline=_pipeline(training, evaluation),
        parameters={path: tensors[path] for path in sorted(trainable)},
        buffers={path: tensors[path] for path in sorted(tensors.keys() - trainable)},
        optimizer=optimizer,
        epochs=epochs,
        seed=seed,
        evaluation=None
        if evaluation is None or arrangement.pipeline is not None
        else _program(evaluation),
        metrics=positions,
        evaluate_every=evaluate_every,
        device=device,
        default_dtype=torch.get_default_dtype(),
        order=source.order(seed) if source.streamed else None,
    )
    ranks = range(arrangement.workers)
    wanted = tuple(dict.fromkeys(read for rank in ranks for read in job.reads(rank)))
    data: Iterable[RankData] | GraphCollection
    whole = None
    if not source.streamed:
        data = measured.rank_data(arrangement.parts, wanted, closed=arrangement.closed)
        if arrangement.closed and evaluation is not None:
            (whole,) = measured.rank_data(1, wanted)
    else:
        assert source.collection is not None
        data = source.collection.only({read.attribute for read in wanted})
    result = run_training(
        job,
        data,
        workers=arrangement.workers,
        planned_bytes=planned_bytes,
        progress=progress,
        whole=whole,
    )
    if sized.lazy:
        size_lazy(model, start)
        tensors = sized.state_tensors(model)
    programs = [job.program_of(rank) for rank in ranks]
    changed = {name for program in programs for name in (*program.trained, *program.written)}
    _copy_back(tensors, result, changed)
    return replace(
        result, parameters=own_values(result.parameters), buffers=own_values(result.buffers)
    )


def _program(planned: Planned) -> RankProgram:
    """The one program of all ranks."""
    workload = planned.workload
    assert workload.traced.program is not None
    return rank_program(workload.traced.program, workload.opgraph, planned.arrangement.choices)


def _pipeline(training: Planned, evaluation: Planned | None) -> Pipeline | None:
    """The programs of the stages, where there are stages."""
    arrangement = training.arrangement
    if arrangement.pipeline is None:
        return None
    return Pipeline(
        arrangement.programs(training.workload),
        arrangement.pipeline.schedule,
        arrangement.pipeline.micro_batches,
        arrangement.pipeline.replicas,
        () if evaluation is None else evaluation.arrangement.programs(evaluation.workload),
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
