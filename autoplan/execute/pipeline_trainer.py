"""One rank of a training run in stages: see `loop` for what drives it and `pipeline` for what a step is."""

from __future__ import annotations

import torch
from torch import nn

from autoplan.execute.audit import storage_bytes
from autoplan.execute.job import Pipeline, RankData, RankResult, TrainJob
from autoplan.execute.loop import LoadedPart, device_of, run_epochs
from autoplan.execute.pipeline import (
    MicroBatch,
    StageRunner,
    groups,
    holders,
    share_written,
    sum_gradients,
)
from autoplan.execute.point_to_point import Peers, Ranks
from autoplan.execute.progress import Reporter
from autoplan.execute.steps import StepSource
from autoplan.program.communicator import part_communicator


class PipelineTrainer:
    """One rank of a job whose step runs in stages. Holds what its stage reads of the model, and nothing else of it."""

    def __init__(
        self, job: TrainJob, steps: StepSource, evaluated: StepSource, peers: Peers
    ) -> None:
        """Moves the rank's state to its device (copies: the job's tensors are left alone).

        Args:
            job: with a `Pipeline`.
            steps: this rank's micro-batches of every step.
            evaluated: everything as one part, where this rank evaluates.
            peers: the other ranks.
        """
        assert job.pipeline is not None
        self._job, self._pipeline = job, job.pipeline
        self._steps, self._evaluated = steps, evaluated
        self._peers = peers
        self.device = device_of(job, peers.rank)
        self._stages = len(self._pipeline.programs)
        replica, stage = divmod(peers.rank, self._stages)
        self._program = self._pipeline.programs[stage]
        self._runner = StageRunner(self._program, self._pipeline.schedule, replica, peers)
        self._holders = holders(self._pipeline.programs, self._pipeline.replicas)
        read = [self._program.program]
        if evaluation := job.evaluation_of(peers.rank):
            read.append(evaluation)
        self._values: dict[str, torch.Tensor] = {
            name: self._copied(job.parameters[name])
            for name in dict.fromkeys(name for program in read for name in program.parameters)
        }
        self._buffer_values = {
            name: self._copied(job.buffers[name])
            for name in dict.fromkeys(name for program in read for name in program.buffers)
        }
        self._trained: list[nn.Parameter] = []
        for name in self._program.program.trained:
            parameter = nn.Parameter(self._values[name])
            self._values[name] = parameter
            self._trained.append(parameter)
        # a stage may have no weights of its own
        self._optimizer = job.optimizer.build(self._trained) if self._trained else None
        self._parts: tuple[RankData, ...] = ()
        self._loaded: list[LoadedPart | None] = []
        self._number = 0

    def start_step(self, number: int) -> None:
        """Clears the gradients, loads the step's micro-batches and advances the random draws to it (from 0)."""
        for parameter in self._trained:
            parameter.grad = None
        self._number = number
        parts = self._steps.parts(number)
        same = len(parts) == len(self._parts) and all(map(_is, parts, self._parts))
        if not same:
            self._parts = parts
            self._loaded = [None if part.shard.is_empty() else self._load(part) for part in parts]

    def train_step(self) -> torch.Tensor:
        """Forward, backward, sums over the ranks, and update; returns this rank's share of the loss, detached."""
        returned = self._runner.step(
            [self._micro_batch(part) for part in self._loaded],
            self._values,
            self._buffer_values,
            backward=True,
            only_loss=True,
        )
        share_written(
            self._peers,
            self._program,
            self._pipeline.replicas,
            self._parts[0].shard,
            self._buffer_values,
        )
        sum_gradients(self._peers, self._holders, self._values)
        if self._optimizer is not None:
            self._optimizer.step()
        loss = torch.zeros((), device=self.device)
        if self._program.program.has_loss:
            for outputs in returned:
                loss = loss + outputs[0] if outputs is not None else loss
        return loss

    def whole_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """On rank 0 the sum of all shares; the ranks that have one send it."""
        (last,) = (each.stage for each in self._pipeline.programs if each.program.has_loss)
        ranks = range(last, self._peers.size, self._stages)
        shares = self._gathered(ranks, loss, "the loss")
        return torch.cat(shares).sum() if shares else loss

    def evaluate(self) -> dict[str, float]:
        """The job's metrics now, on rank 0; the other ranks of replica 0 compute theirs and send them."""
        if not self._pipeline.evaluates(self._peers.rank):
            return {}
        stage = self._pipeline.evaluation[self._peers.rank]
        (data,) = self._evaluated.parts(0)
        part = self._whole(data)
        runner = StageRunner(stage, self._pipeline.schedule, 0, self._peers)
        with torch.no_grad():
            (outputs,) = runner.step(
                [self._micro_batch(part)], self._values, self._buffer_values, backward=False
            )
        assert outputs is not None
        found: dict[str, float] = {}
        for name, position in self._job.metrics.items():
            (where,) = (s.stage for s in self._pipeline.evaluation if position in s.positions)
            value = torch.zeros(())
            if where == stage.stage:
                value = torch.as_tensor(outputs[stage.positions.index(position)])
            for received in self._gathered((where,), value, f"metric {name!r}"):
                found[name] = float(received)
        self._peers.finish()
        return found

    def resident_bytes(self) -> int:
        """Memory of the tensors that live from step to step, or are the step's input."""
        held = [*self._values.values(), *self._buffer_values.values()]
        for part in self._loaded:
            held += part.tensors if part is not None else []
        if self._optimizer is not None:
            for state in self._optimizer.state.values():
                held += [value for value in state.values() if isinstance(value, torch.Tensor)]
        return storage_bytes(held)

    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters that this rank holds, by the model's own names; copies on the CPU."""
        return {name: value.detach().to("cpu", copy=True) for name, value in self._values.items()}

    def buffers(self) -> dict[str, torch.Tensor]:
        """The buffers that this rank holds, by name; copies on the CPU."""
        return {
            name: value.detach().to("cpu", copy=True) for name, value in self._buffer_values.items()
        }

    def _gathered(
        self, sources: Ranks | range, mine: torch.Tensor, what: str
    ) -> list[torch.Tensor]:
        """On rank 0 the one number that each of ``sources`` has, [1] float64, in their order; empty elsewhere."""
        rank = self._peers.rank
        number = mine.detach().to("cpu", torch.float64).reshape(1)
        if rank in sources and rank != 0:
            self._peers.send(0, number, what)
        if rank != 0:
            return []
        return [
            number if source == 0 else self._peers.receive(source, 1, torch.float64, what)
            for source in sources
        ]

    def _micro_batch(self, part: LoadedPart | None) -> MicroBatch | None:
        if part is None:
            return None
        part.context.step = self._number
        return MicroBatch(part.context, part.inputs)

    def _load(self, data: RankData) -> LoadedPart:
        communicator = part_communicator(data.shard.rank, data.shard.parts)
        return LoadedPart.of(data, communicator, self.device, self._job.seed)

    def _whole(self, data: RankData) -> LoadedPart:
        """The part that is evaluated: a training part's tensors where it is one."""
        for part in self._loaded:
            if part is not None and part.data is data:
                return part
        return self._load(data)

    def _copied(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach().to(self.device, copy=True)


def summing(pipeline: Pipeline) -> tuple[Ranks, ...]:
    """The sets of ranks that sum with each other in a job."""
    stages, replicas = len(pipeline.programs), pipeline.replicas
    alike = {
        tuple(range(each.stage, stages * replicas, stages))
        for each in pipeline.programs
        if each.program.written and replicas > 1
    }
    return tuple(sorted({*groups(holders(pipeline.programs, replicas)), *alike}))


def train_stage_rank(
    job: TrainJob, steps: StepSource, evaluated: StepSource, peers: Peers, reporter: Reporter
) -> RankResult:
    """Trains one rank of a pipeline; arguments as in `PipelineTrainer`."""
    trainer = PipelineTrainer(job, steps, evaluated, peers)
    return run_epochs(trainer, job, peers.rank, reporter)


def _is(first: object, second: object) -> bool:
    return first is second
