"""How the ranks of a plan share a step, and such ranks as threads of this process (torch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from autoplan.execute.lockstep import StepResult
from autoplan.execute.stage_program import StageProgram, homes, stage_programs
from autoplan.execute.stages_in_threads import run_stages
from autoplan.partition.halo import Shard
from autoplan.plan import PipelineUse, PlanData
from autoplan.planner.stepping import ThreadGroup
from autoplan.planner.workload import Workload
from autoplan.search import Candidate
from autoplan.stages import following, module_stages


class RankGroup(Protocol):
    """The ranks of a plan in this process."""

    @property
    def workers(self) -> int:
        """Number of ranks."""

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Of the whole graph by attribute."""

    def step(
        self,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        *,
        seed: int,
        step: int = 0,
    ) -> StepResult:
        """One forward and, with a loss, backward pass. Parameters and buffers by path; neither is changed."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """Who computes what.

    Attributes:
        choices: op index -> strategy.
        workers: number of ranks.
        stage_of: op index -> stage; None where all ranks run the same program.
        pipeline: how the stages work together.
        stages: how many there are.
    """

    choices: Mapping[int, str]
    workers: int = 1
    stage_of: Mapping[int, int] | None = None
    pipeline: PipelineUse | None = None
    stages: int = 1

    @classmethod
    def of_plan(cls, data: PlanData) -> Arrangement:
        """A plan's."""
        choices = {c.op: c.strategy for stage in data.stages for c in stage.choices}
        if data.pipeline is None:
            return cls(choices, len(data.devices))
        stage_of = {c.op: number for number, s in enumerate(data.stages) for c in s.choices}
        return cls(choices, len(data.devices), stage_of, data.pipeline, len(data.stages))

    @classmethod
    def of_candidate(cls, candidate: Candidate) -> Arrangement:
        """Of a candidate that has a price."""
        assert candidate.choices is not None
        if candidate.stage_of is None:
            return cls(candidate.choices, len(candidate.ranks))
        pipeline = PipelineUse(
            candidate.schedule, candidate.micro_batches, candidate.replicas, candidate.bubble
        )
        return cls(
            candidate.choices,
            len(candidate.ranks),
            candidate.stage_of,
            pipeline,
            len(candidate.stages),
        )

    @property
    def parts(self) -> int:
        """Parts that a step's graph is cut into."""
        if self.pipeline is None:
            return self.workers
        return self.pipeline.replicas * self.pipeline.micro_batches

    @property
    def closed(self) -> bool:
        """Whether the parts must be whole graphs or components."""
        return self.pipeline is not None and self.parts > 1

    def programs(self, workload: Workload, *, capture: bool = False) -> tuple[StageProgram, ...]:
        """The programs of the stages. Raises PlanError as `stage_programs` does."""
        assert workload.traced.program is not None
        assert self.stage_of is not None
        return stage_programs(
            workload.traced.program,
            workload.opgraph,
            self.choices,
            self.stage_of,
            partial_loss=self.parts > 1,
            capture=capture,
            stages=self.stages,
        )

    def group(
        self, workload: Workload, shards: Sequence[Shard], tensors: Mapping[str, torch.Tensor]
    ) -> RankGroup:
        """The ranks as threads.

        Args:
            workload: the step.
            shards: one for each part.
            tensors: of the whole graph by attribute.
        """
        if self.pipeline is None:
            return ThreadGroup.of(workload, self.choices, tuple(shards), tensors)
        return StageGroup(self.programs(workload), self.pipeline, tuple(shards), tensors)

    def evaluating(self, workload: Workload, evaluation: Workload) -> Arrangement:
        """How an evaluation is cut where training is cut into stages: by what each stage holds, everything as one part.

        Args:
            workload: the training step.
            evaluation: the evaluation step.

        Raises:
            PlanError: an op that no stage can run.
        """
        assert self.stage_of is not None
        assert self.pipeline is not None
        stage_of = following(
            evaluation.opgraph,
            homes(self.programs(workload)),
            module_stages(workload.opgraph, self.stage_of),
        )
        return Arrangement(
            {}, self.stages, stage_of, PipelineUse("gpipe", 1, 1, 0.0), stages=self.stages
        )


@dataclass(frozen=True, slots=True, eq=False)
class StageGroup:
    """Stage programs on threads.

    Attributes:
        programs: by stage; pipeline: how they work together.
        shards: one for each part; tensors: of the whole graph by attribute.
    """

    programs: tuple[StageProgram, ...]
    pipeline: PipelineUse
    shards: tuple[Shard, ...]
    tensors: Mapping[str, torch.Tensor]

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return len(self.programs) * self.pipeline.replicas

    def step(
        self,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        *,
        seed: int,
        step: int = 0,
    ) -> StepResult:
        """One forward and, with a loss, backward pass. Parameters and buffers by path; neither is changed."""
        has_loss = any(stage.program.has_loss for stage in self.programs)
        with torch.set_grad_enabled(has_loss):
            return run_stages(
                self.programs,
                self.pipeline.schedule,
                self.shards,
                self.tensors,
                parameters,
                buffers,
                replicas=self.pipeline.replicas,
                micro_batches=self.pipeline.micro_batches,
                seed=seed,
                step=step,
            )
