"""Trains a job on as many processes as it has ranks; on this process when it has one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from autoplan.errors import PlanError
from autoplan.execute.collection import GraphCollection, save_collection
from autoplan.execute.job import (
    GRAPHS_FILE,
    PROGRESS_FILE,
    Evaluation,
    RankData,
    RankResult,
    TrainJob,
    job_directory,
    read_result,
    write_job,
    write_shard,
)
from autoplan.execute.loop import default_dtype, train_rank
from autoplan.execute.pipeline_trainer import train_stage_rank
from autoplan.execute.point_to_point import Hub, ThreadPeers
from autoplan.execute.progress import Reporter, follow, progress_bar
from autoplan.execute.steps import FixedSteps, StepSource, sources_of
from autoplan.program.communicator import LocalCommunicator

_WARM_UP_STEPS = 2


@dataclass(frozen=True, slots=True, eq=False)
class TrainResult:
    """What a training run gave.

    Attributes:
        losses: of every step, before its update; an epoch has several where a step takes some of many graphs.
        metrics: of the trained model, by name.
        evaluations: every evaluation, in order; the last one's metrics are ``metrics``.
        step_seconds: median of one step on the slowest rank; without warm-up and without the steps that were watched.
        peak_bytes: measured tensor memory at its highest in one step, per rank.
        communication_bytes: payload that one step handed to collectives, counted at the process group, per rank.
        ran_as_planned: the counted payload is the planned one. None: there is nothing to compare with, as no plan was given or
            its stages send each other tensors whose rows only the data decide, of which the plan has an estimate (a note says so).
        parameters, buffers: trained values by the model's own names, on the CPU.
        ranks: what each rank reported.
    """

    losses: tuple[float, ...]
    metrics: Mapping[str, float]
    evaluations: tuple[Evaluation, ...]
    step_seconds: float
    peak_bytes: tuple[int, ...]
    communication_bytes: tuple[int, ...]
    ran_as_planned: bool | None
    parameters: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    ranks: tuple[RankResult, ...]


def run_training(
    job: TrainJob,
    data: Iterable[RankData] | GraphCollection,
    *,
    workers: int,
    planned_bytes: Sequence[int] | None = None,
    progress: bool = True,
    whole: RankData | None = None,
) -> TrainResult:
    """Trains.

    Args:
        job: what to run; its tensors are not changed.
        data: each part of the graph, in order, taken one by one, so that a generator keeps one in memory; of a job with an
            ``order`` all graphs, of which each rank cuts its own parts, step by step.
        workers: number of ranks P. With one, everything runs in this process.
        planned_bytes: [P] what the plan says each rank hands to collectives in a step.
        progress: draw a bar on stderr, if that is a terminal.
        whole: the whole graph, where a pipeline trains on several parts of it and has an evaluation.

    Raises:
        PlanError: the number of parts is not the job's.
        ExecutionError: a worker failed.
        GuardError: (one rank only) a decision recorded from the samples comes out differently on this graph.
    """
    with progress_bar(job.epochs, shown=progress) as reporter:
        if workers == 1:
            with default_dtype(job.default_dtype):
                ranks = [_train_alone(job, _own_sources(job, data, whole), reporter)]
        else:
            with job_directory() as directory:
                write_job(directory, job)
                _write_data(directory, job, data, workers)
                if whole is not None:
                    write_shard(directory, whole, whole=True)
                # torch's launcher takes half a second to import, which one rank does not need
                from autoplan.execute.launch import launch

                with follow(directory / PROGRESS_FILE, reporter):
                    launch(directory, workers)
                ranks = [read_result(directory, rank) for rank in range(workers)]
    return combine(ranks, planned_bytes, job)


def _train_alone(
    job: TrainJob, sources: tuple[StepSource, StepSource], reporter: Reporter
) -> RankResult:
    """The only rank's training, in this process."""
    if job.pipeline is None:
        return train_rank(job, *sources, LocalCommunicator(), reporter)
    return train_stage_rank(job, *sources, ThreadPeers(0, Hub(1)), reporter)


def _own_sources(
    job: TrainJob, data: Iterable[RankData] | GraphCollection, whole: RankData | None
) -> tuple[StepSource, StepSource]:
    """What the only rank trains and evaluates on."""
    if isinstance(data, GraphCollection):
        return sources_of(job, data, 0, 1)
    fixed = FixedSteps(tuple(data))
    _check_count(len(fixed.held), job, 1)
    return fixed, fixed if whole is None else FixedSteps((whole,))


def _write_data(
    directory: Path, job: TrainJob, data: Iterable[RankData] | GraphCollection, workers: int
) -> None:
    """All parts as files, one in memory at a time, or all graphs as one."""
    if isinstance(data, GraphCollection):
        save_collection(directory / GRAPHS_FILE, data)
        return
    written = 0
    for part in data:
        write_shard(directory, part)
        written += 1
        del part
    _check_count(written, job, workers)


def _check_count(parts: int, job: TrainJob, workers: int) -> None:
    if parts != job.parts(workers):
        raise PlanError(
            f"{parts} parts of the graph for {workers} workers, which compute {job.parts(workers)}; "
            "the partition must have one part for each"
        )


def combine(
    ranks: Sequence[RankResult], planned_bytes: Sequence[int] | None, job: TrainJob | None = None
) -> TrainResult:
    """One result of all ranks'.

    Losses, metrics and state are equal on all ranks and taken from the first. Of a pipeline (a ``job`` that has one), the
    ranks' shares of a loss add up, and what each stage of replica 0 holds makes up the state.
    """
    first = ranks[0]
    losses, parameters, buffers = first.losses, first.parameters, first.buffers
    if job is not None and job.pipeline is not None:
        losses = tuple(sum(shares) for shares in zip(*(r.losses for r in ranks), strict=True))
        # what no stage reads stays as it was
        parameters = {name: value.detach().cpu() for name, value in job.parameters.items()}
        buffers = {name: value.detach().cpu() for name, value in job.buffers.items()}
        for program, rank in zip(job.pipeline.programs, ranks, strict=False):
            parameters.update(rank.parameters)
            written = program.program.written
            buffers.update({name: rank.buffers[name] for name in written})
    counted = tuple(rank.communication_bytes for rank in ranks)
    return TrainResult(
        losses=losses,
        metrics=first.evaluations[-1].metrics,
        evaluations=first.evaluations,
        step_seconds=max(_typical_step(rank) for rank in ranks),
        peak_bytes=tuple(rank.peak_bytes for rank in ranks),
        communication_bytes=counted,
        ran_as_planned=None if planned_bytes is None else counted == tuple(planned_bytes),
        parameters=parameters,
        buffers=buffers,
        ranks=tuple(ranks),
    )


def _typical_step(rank: RankResult) -> float:
    """Median of the steps that count; of all where a short run leaves none."""
    counting = [
        seconds
        for number, seconds in enumerate(rank.step_seconds)
        if number >= _WARM_UP_STEPS and number not in rank.audited
    ]
    return statistics.median(counting or rank.step_seconds)
