"""A job: what a parent hands to its workers and what it gets back, as data and as files of a private directory.

job.pkl        everything but tensors of the model and of the graph
state.pt       initial parameters and buffers
shard-V.pt     part V of the graph; a worker opens only those that it computes (rank R computes part R, unless the job says so)
whole.pt       the whole graph, where a pipeline trains on several parts of it and evaluates on all
graphs.pt      instead of the parts, where every step has other graphs: all graphs; workers map it and read what they need
progress.jsonl what rank 0 reports while it runs
result-R.pt    what rank R measured; rank 0's has the trained parameters and buffers too
"""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autoplan.errors import PlanError
from autoplan.execute.audit import IssuedCollective
from autoplan.execute.batches import BatchOrder
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.stage_program import StageProgram
from autoplan.partition.halo import NodeRows, Shard
from autoplan.partition.ownership import IntArray
from autoplan.plan import Schedule
from autoplan.program.rank_program import InputKey, RankInput, RankProgram

PROGRESS_FILE = "progress.jsonl"
GRAPHS_FILE = "graphs.pt"
_JOB_FILE = "job.pkl"
_STATE_FILE = "state.pt"


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """How a step runs in stages; rank ``d * stages + s`` computes stage s of replica d.

    Attributes:
        programs: of the training step, by stage. The loss is a partial sum where there are several parts.
        schedule: order of the micro-batches; micro_batches: of each replica; replicas: of the whole pipeline. Part
            ``d * micro_batches + j`` of a step is micro-batch j of replica d.
        evaluation: the programs of a forward pass on everything as one part, by stage; replica 0 runs them.
    """

    programs: tuple[StageProgram, ...]
    schedule: Schedule
    micro_batches: int
    replicas: int
    evaluation: tuple[StageProgram, ...] = ()

    @property
    def parts(self) -> int:
        """Number of parts of a step."""
        return self.replicas * self.micro_batches

    def held_by(self, rank: int) -> tuple[int, ...]:
        """The parts that a rank computes."""
        first = rank // len(self.programs) * self.micro_batches
        return tuple(range(first, first + self.micro_batches))

    def evaluates(self, rank: int) -> bool:
        """Whether a rank takes part in evaluations."""
        return bool(self.evaluation) and rank < len(self.programs)


@dataclass(frozen=True, slots=True, eq=False)
class TrainJob:
    """A training run, the same for every rank.

    Attributes:
        program: the training step; its first output is the loss. None where a ``pipeline`` says what each rank runs.
        parameters: initial values by the model's own names, tied ones once; all that a program reads, trained or not.
        buffers: initial values of buffers and tensor attributes by name.
        optimizer: over ``program.trained``.
        epochs: how often everything is seen, at least 1.
        seed: of the random draws in the step.
        evaluation: a forward pass with metrics among its outputs; run after the last epoch.
        metrics: by metric name, the position of its value (one element, equal on all ranks) in the evaluation's outputs
            (of the traced program, where a pipeline evaluates).
        evaluate_every: evaluate after every so many epochs as well.
        device: where a rank's tensors live; ``cuda`` means the card of the rank's own number.
        default_dtype: torch's default dtype while the programs run, as it was when they were recorded.
        order: of the graphs, where a step takes some of many; None: every step takes the whole graph.
        held: by rank, the parts of a step that it computes; None: rank R computes part R of as many as there are ranks.
        pipeline: the step in stages.
    """

    program: RankProgram | None
    parameters: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    optimizer: OptimizerSpec
    epochs: int
    seed: int = 0
    evaluation: RankProgram | None = None
    metrics: Mapping[str, int] = field(default_factory=dict)
    evaluate_every: int | None = None
    device: str = "cpu"
    default_dtype: torch.dtype = torch.float32
    order: BatchOrder | None = None
    held: tuple[tuple[int, ...], ...] | None = None
    pipeline: Pipeline | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise PlanError(f"epochs is {self.epochs}; a training run has at least 1")
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise PlanError(f"evaluate_every is {self.evaluate_every}; it must be at least 1")
        if not any(program.has_loss for program in self._programs):
            raise PlanError(
                "the plan has no loss, so there is nothing to train; plan with loss=..."
            )
        if not any(program.trained for program in self._programs):
            raise PlanError(
                "no parameter gets a gradient from the loss, so there is nothing to train; "
                "check requires_grad and that the loss depends on the model's output"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch: one, unless a step takes some of many graphs."""
        return 1 if self.order is None else self.order.steps_per_epoch

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    def program_of(self, rank: int) -> RankProgram:
        """The training program of a rank."""
        return self._programs[rank % len(self._programs)]

    def evaluation_of(self, rank: int) -> RankProgram | None:
        """The evaluation program of a rank; None where it does not evaluate."""
        if self.pipeline is None:
            return self.evaluation
        return self.pipeline.evaluation[rank].program if self.pipeline.evaluates(rank) else None

    def reads(self, rank: int) -> tuple[RankInput, ...]:
        """What a rank's programs read of the graph."""
        evaluation = self.evaluation_of(rank)
        more = () if evaluation is None else evaluation.inputs
        return tuple(dict.fromkeys((*self.program_of(rank).inputs, *more)))

    @property
    def _programs(self) -> tuple[RankProgram, ...]:
        """By stage; one where there are none."""
        if self.pipeline is not None:
            return tuple(stage.program for stage in self.pipeline.programs)
        assert self.program is not None
        return (self.program,)

    def held_by(self, rank: int) -> tuple[int, ...]:
        """The parts of a step that a rank computes."""
        if self.pipeline is not None:
            return self.pipeline.held_by(rank)
        return (rank,) if self.held is None else self.held[rank]

    def parts(self, workers: int) -> int:
        """Number of parts of a step, over all ranks."""
        if self.pipeline is not None:
            return self.pipeline.parts
        return workers if self.held is None else 1 + max(max(own) for own in self.held)


@dataclass(frozen=True, slots=True, eq=False)
class RankData:
    """One part of a step's graph: of a rank, or one of the several that a rank computes one after the other.

    Attributes:
        shard: the rows it holds.
        inputs: what the programs read, by (attribute, state), sliced for this part.
        gathered: by axis, global positions of all parts' rows, part 0's first, where they are known without asking.
    """

    shard: Shard
    inputs: Mapping[InputKey, Any]
    gathered: Mapping[str, IntArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metrics after an epoch (counted from 1)."""

    epoch: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class RankResult:
    """What one rank did.

    Attributes:
        losses: of every step; of a pipeline, the rank's own share of them.
        evaluations: in order; the last is of the trained model.
        step_seconds: of every step; cutting its graphs out of many comes before and is not part of it.
        threads: that torch used inside an op.
        audited: steps slowed down by being watched; they do not count for the step time.
        collectives: calls that one step made, in order.
        resident_bytes, peak_bytes: tensor memory before one step, and at its highest.
        parameters, buffers: trained values by name, on the CPU.
    """

    losses: tuple[float, ...]
    evaluations: tuple[Evaluation, ...]
    step_seconds: tuple[float, ...]
    threads: int
    audited: tuple[int, ...]
    collectives: tuple[IssuedCollective, ...]
    resident_bytes: int
    peak_bytes: int
    parameters: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]

    @property
    def communication_bytes(self) -> int:
        """Payload of one step's collectives."""
        return sum(call.payload_bytes for call in self.collectives)


@contextlib.contextmanager
def job_directory() -> Iterator[Path]:
    """A private directory, removed when the context ends, however it ends."""
    with tempfile.TemporaryDirectory(prefix="autoplan-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def write_job(directory: Path, job: TrainJob) -> None:
    """Writes what all ranks share."""
    state = {"parameters": _plain(job.parameters), "buffers": _plain(job.buffers)}
    torch.save(state, directory / _STATE_FILE)
    with (directory / _JOB_FILE).open("wb") as file:
        pickle.dump(replace(job, parameters={}, buffers={}), file)


def read_job(directory: Path) -> TrainJob:
    """Reads what `write_job` wrote. The directory is trusted: its owner is the process that started this one."""
    with (directory / _JOB_FILE).open("rb") as file:
        job: TrainJob = pickle.load(file)
    state = torch.load(directory / _STATE_FILE, weights_only=True)
    return replace(job, parameters=state["parameters"], buffers=state["buffers"])


def write_shard(directory: Path, data: RankData, *, whole: bool = False) -> None:
    """Writes one part of the graph, its number is its shard's rank; or the ``whole``, beside the parts."""
    shard = _to_tensors(data.shard)
    file = _shard_file(directory, None if whole else data.shard.rank)
    torch.save({"shard": shard, "inputs": _plain(data.inputs)}, file)


def read_shard(
    directory: Path, part: int | None, wanted: Collection[InputKey] | None = None
) -> RankData:
    """Reads one part of the graph, or the whole (None); with ``wanted``, of its inputs only these."""
    # what is not wanted stays on disk
    saved = torch.load(_shard_file(directory, part), weights_only=True, mmap=wanted is not None)
    shard = {name: _to_arrays(value) for name, value in saved["shard"].items()}
    shard["nodes"] = {axis: NodeRows(**rows) for axis, rows in shard["nodes"].items()}
    inputs = saved["inputs"]
    if wanted is not None:
        inputs = _plain({key: value for key, value in inputs.items() if key in wanted})
    return RankData(Shard(**shard), inputs)


def write_result(directory: Path, rank: int, result: RankResult, *, with_state: bool) -> None:
    """Writes what a rank did; parameters and buffers only ``with_state``: they are equal on all ranks that hold them."""
    kept = {part.name: getattr(result, part.name) for part in fields(RankResult)}
    if not with_state:
        kept.update(parameters={}, buffers={})
    kept["evaluations"] = [(e.epoch, dict(e.metrics)) for e in result.evaluations]
    kept["collectives"] = [(c.name, c.payload_bytes) for c in result.collectives]
    torch.save(kept, directory / f"result-{rank}.pt")


def read_result(directory: Path, rank: int) -> RankResult:
    """Reads what a rank did."""
    kept = torch.load(directory / f"result-{rank}.pt", weights_only=True)
    kept["evaluations"] = tuple(Evaluation(*entry) for entry in kept["evaluations"])
    kept["collectives"] = tuple(IssuedCollective(*entry) for entry in kept["collectives"])
    return RankResult(**kept)


def _shard_file(directory: Path, part: int | None) -> Path:
    return directory / ("whole.pt" if part is None else f"shard-{part}.pt")


def _plain(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Without gradients, and each tensor with no more memory than it shows (`torch.save` writes whole storages)."""
    return {
        key: value.detach().clone(memory_format=torch.contiguous_format)
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
        else value
        for key, value in values.items()
    }


def _to_tensors(value: Any) -> Any:
    """Arrays as tensors, also inside a mapping or a shard: files hold tensors only."""
    if isinstance(value, np.ndarray):
        return torch.tensor(value)
    if isinstance(value, Shard | NodeRows):
        return {part.name: _to_tensors(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {key: _to_tensors(inner) for key, inner in value.items()}
    return value


def _to_arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: _to_arrays(inner) for key, inner in value.items()}
    return value
