"""One rank's training: the same code in a worker process and, for a single rank, in the caller's process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autoplan.execute.audit import CollectiveCounter, PeakMemory, peak_memory, storage_bytes
from autoplan.execute.job import Evaluation, RankData, RankResult, TrainJob
from autoplan.execute.processes import mean_over_ranks
from autoplan.execute.progress import EpochReport, Reporter
from autoplan.execute.steps import StepSource
from autoplan.program.communicator import Communicator
from autoplan.program.context import RankContext
from autoplan.program.rank_program import InputKey, RankProgram


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPart:
    """A part of a step's graph on a rank's device.

    Attributes:
        data: where it comes from; context: its rows; inputs: what the programs read.
    """

    data: RankData
    context: RankContext
    inputs: Mapping[InputKey, Any]

    @classmethod
    def of(
        cls, data: RankData, communicator: Communicator, device: torch.device, seed: int
    ) -> LoadedPart:
        """Moves a part to a device; the communicator's rank and size must be the part's."""
        context = RankContext.from_shard(
            data.shard, communicator, device=device, seed=seed, gathered=data.gathered
        )
        inputs = {
            key: value.to(device) if isinstance(value, torch.Tensor) else value
            for key, value in data.inputs.items()
        }
        return cls(data, context, inputs)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All that it holds in memory."""
        held = [value for value in self.inputs.values() if isinstance(value, torch.Tensor)]
        held += [halo.send_rows for halo in self.context.halos.values()]
        for rows in self.context.axes.values():
            index = (rows.ids, rows.gathered_ids, rows.gathered_positions)
            held += [tensor for tensor in index if tensor is not None]
        return held


class StepModule(nn.Module):
    """The training step as a module: no inputs, returns the scalar loss of the part that it is given.

    Its parameters are those that get a gradient, under the model's own names; everything else it reads is kept out of
    the module's sight, so that DistributedDataParallel neither broadcasts nor waits for it.
    """

    def __init__(
        self,
        program: RankProgram,
        part: LoadedPart,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
    ) -> None:
        """Takes tensors that are on the part's device; ``parameters`` and ``buffers`` are changed by training."""
        super().__init__()
        self.model = nn.Module()
        self._program = program
        self.part = part
        # a plain dict: nn.Module registers neither tensors nor parameters inside it
        self.values = dict(parameters)
        self.buffer_values = buffers
        for name in program.trained:
            parameter = nn.Parameter(parameters[name])
            _register(self.model, name, parameter)
            self.values[name] = parameter

    def forward(self) -> torch.Tensor:
        """Runs the step's forward pass."""
        outputs = self._program.run(
            self.part.context, self.values, self.buffer_values, self.part.inputs
        )
        loss: torch.Tensor = outputs[0]
        return loss


class Trainer(Protocol):
    """One rank of a training run, as `run_epochs` drives it."""

    def start_step(self, number: int) -> None:
        """Clears the gradients and takes a step's data and random draws (from 0, counted over all epochs)."""

    def train_step(self) -> torch.Tensor:
        """Forward, backward and update; returns the loss, of the whole step or this rank's share of it, detached."""

    def whole_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of the whole step, from what `train_step` returned; on rank 0. Every rank calls it once an epoch."""

    def evaluate(self) -> dict[str, float]:
        """The job's metrics now, on rank 0; empty where there are none."""

    def resident_bytes(self) -> int:
        """Memory of the tensors that live from step to step, or are the step's input."""

    def parameters(self) -> dict[str, torch.Tensor]:
        """All parameters that this rank holds, by the model's own names; copies on the CPU."""

    def buffers(self) -> dict[str, torch.Tensor]:
        """All buffers that this rank holds, by name; copies on the CPU."""


class RankTrainer:
    """One rank of a job in which every rank computes one part of each step."""

    def __init__(
        self, job: TrainJob, steps: StepSource, evaluated: StepSource, communicator: Communicator
    ) -> None:
        """Moves state and the first step's part to the device (copies: the job's tensors are left alone) and sets up the group.

        Every rank must do this at the same time: learning the order of gathered rows and wrapping the step are collective.

        Args:
            job: what to run.
            steps: this rank's part of every step.
            evaluated: this rank's part of everything, for the evaluation.
            communicator: the group.
        """
        self._job = job
        self._program = job.program_of(communicator.rank)
        self._steps, self._evaluated = steps, evaluated
        self._communicator = communicator
        self.device = device_of(job, communicator.rank)
        self._step = StepModule(
            self._program,
            self._loaded(steps.parts(0), self._program),
            {name: self._copied(value) for name, value in job.parameters.items()},
            {name: self._copied(value) for name, value in job.buffers.items()},
        )
        self._distributed = communicator.size > 1
        self._module: nn.Module = _data_parallel(self._step) if self._distributed else self._step
        self._trained = list(self._step.parameters())
        self._optimizer = job.optimizer.build(self._trained)

    def train_step(self) -> torch.Tensor:
        """Forward, backward and update; returns the loss, detached. `start_step` comes before it."""
        loss: torch.Tensor = self._module()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def start_step(self, number: int) -> None:
        """Clears the gradients, loads the step's part and advances the random draws to it (from 0)."""
        self._optimizer.zero_grad(set_to_none=True)
        parts = self._steps.parts(number)
        if parts[0] is not self._step.part.data:
            self._step.part = self._loaded(parts, self._program)
        self._step.part.context.step = number

    def whole_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss itself: it is equal on all ranks."""
        return loss

    def evaluate(self) -> dict[str, float]:
        """The job's metrics now."""
        program = self._job.evaluation
        if program is None:
            return {}
        parts = self._evaluated.parts(0)
        part = self._step.part
        if parts[0] is not part.data:
            part = self._loaded(parts, program)
        part.context.prepare(program.gathered)
        with torch.no_grad():
            outputs = program.run(
                part.context, self._step.values, self._step.buffer_values, part.inputs
            )
        # a metric may be recorded with gradients
        return {
            name: float(torch.as_tensor(outputs[position]).detach())
            for name, position in self._job.metrics.items()
        }

    def resident_bytes(self) -> int:
        """Memory of the tensors that live from step to step, or are the step's input.

        Gradients belong to it where DistributedDataParallel keeps buckets for them (gradients are views of these); one rank
        alone frees them before each step.
        """
        held = [*self._step.values.values(), *self._step.buffer_values.values()]
        held += self._step.part.tensors
        for state in self._optimizer.state.values():
            held += [value for value in state.values() if isinstance(value, torch.Tensor)]
        buckets = storage_bytes(self._trained) if self._distributed else 0
        return storage_bytes(held) + buckets

    def parameters(self) -> dict[str, torch.Tensor]:
        """All parameters now, by the model's own names; copies on the CPU."""
        return {
            name: value.detach().to("cpu", copy=True) for name, value in self._step.values.items()
        }

    def buffers(self) -> dict[str, torch.Tensor]:
        """All buffers now, by name; copies on the CPU."""
        return {
            name: value.detach().to("cpu", copy=True)
            for name, value in self._step.buffer_values.items()
        }

    def _copied(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach().to(self.device, copy=True)

    def _loaded(self, parts: tuple[RankData, ...], program: RankProgram) -> LoadedPart:
        """This rank's one part, ready for a program. Collective where the program gathers rows of a fixed graph."""
        (part,) = parts
        loaded = LoadedPart.of(part, self._communicator, self.device, self._job.seed)
        loaded.context.prepare(program.gathered)
        return loaded


def train_rank(
    job: TrainJob,
    steps: StepSource,
    evaluated: StepSource,
    communicator: Communicator,
    reporter: Reporter,
) -> RankResult:
    """Trains one rank; arguments as in `RankTrainer`."""
    trainer = RankTrainer(job, steps, evaluated, communicator)
    return run_epochs(trainer, job, communicator.rank, reporter)


def run_epochs(trainer: Trainer, job: TrainJob, rank: int, reporter: Reporter) -> RankResult:
    """Runs all epochs of one rank and watches two of the steps (see `audit`)."""
    counted, measured = audited_steps(job.steps)
    counter = CollectiveCounter(rank)
    memory: PeakMemory | None = None
    losses: list[torch.Tensor] = []
    seconds: list[float] = []
    evaluations: list[Evaluation] = []
    for number in range(job.steps):
        trainer.start_step(number)
        with contextlib.ExitStack() as watched:
            if number == measured:
                memory = watched.enter_context(peak_memory(trainer.resident_bytes()))
            if number == counted:
                watched.enter_context(counter)
            started = time.perf_counter()
            loss = trainer.train_step()
            seconds.append(time.perf_counter() - started)
        losses.append(loss)
        epoch, within = divmod(number + 1, job.steps_per_epoch)
        if within:
            continue
        last = epoch == job.epochs
        whole = trainer.whole_loss(loss)
        if last or (job.evaluate_every is not None and epoch % job.evaluate_every == 0):
            evaluations.append(Evaluation(epoch, trainer.evaluate()))
        if reporter.wants(last=last):
            metrics = evaluations[-1].metrics if evaluations else {}
            reporter.report(EpochReport(epoch, float(whole), metrics))
    assert memory is not None
    return RankResult(
        losses=tuple(float(value) for value in losses),
        evaluations=tuple(evaluations),
        step_seconds=tuple(seconds),
        threads=torch.get_num_threads(),
        audited=tuple(sorted({counted, measured})),
        collectives=tuple(counter.issued),
        resident_bytes=memory.resident,
        peak_bytes=memory.peak,
        parameters=trainer.parameters(),
        buffers=trainer.buffers(),
    )


def audited_steps(steps: int) -> tuple[int, int]:
    """Which step's collectives are counted, and which step's memory is measured, in a run of so many.

    Never collectives of step 1: DistributedDataParallel sorts its buckets anew before it, with broadcasts of its own.
    """
    counted = 2 if steps > 2 else 0
    return counted, min(3, steps - 1)


def _data_parallel(step: StepModule) -> nn.Module:
    """Averages gradients over the ranks, bucket by bucket while backward runs.

    Parameters are equal on all ranks (read from one file), so the first broadcast is left out. Gradients are views of the
    buckets: they take no memory of their own.
    """
    wrapped = DistributedDataParallel(step, init_sync=False, gradient_as_bucket_view=True)
    wrapped.register_comm_hook(dist.get_world_size(), mean_over_ranks)
    return wrapped


def device_of(job: TrainJob, rank: int) -> torch.device:
    """A rank's own card where the job names none."""
    device = torch.device(job.device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", rank)
    return device


def _register(root: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Registers a parameter under a dotted name, with the modules on the way."""
    *path, key = name.split(".")
    module = root
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        child = module._modules[part]
        assert child is not None
        module = child
    module.register_parameter(key, parameter)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Torch's default dtype while the context lasts."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
