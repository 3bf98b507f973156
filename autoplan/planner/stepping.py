"""One step of a plan in this process, its ranks as threads, on the real graph (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.execute.lockstep import StepResult, run_lockstep
from autoplan.execute.rewrite import rank_program
from autoplan.partition.halo import Shard
from autoplan.planner.workload import Workload
from autoplan.program.rank_program import RankProgram
from autoplan.program.torch_internals import tree_unflatten
from autoplan.trace.step_module import own_values


@dataclass(frozen=True, slots=True, eq=False)
class StepOutcome:
    """What one step gave.

    Attributes:
        loss: scalar; None where the step has no loss.
        outputs: the model's, rows in the user's node order.
        gradients: by the model's own parameter names; only those that the loss reaches. Empty without a loss.
        buffers: by the model's own names, after the step.
        metrics: by name, where metrics were asked for.
    """

    loss: torch.Tensor | None
    outputs: Any
    gradients: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ThreadGroup:
    """A rank program on threads.

    Attributes:
        program: of one rank; shards: one per rank; tensors: of the whole graph by attribute.
    """

    program: RankProgram
    shards: tuple[Shard, ...]
    tensors: Mapping[str, torch.Tensor]

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return len(self.shards)

    @classmethod
    def of(
        cls,
        workload: Workload,
        choices: Mapping[int, str],
        shards: tuple[Shard, ...],
        tensors: Mapping[str, torch.Tensor],
    ) -> ThreadGroup:
        """Writes the rank program. Arguments as in `rank_program`. Raises PlanError."""
        assert workload.traced.program is not None
        written = rank_program(workload.traced.program, workload.opgraph, choices)
        return cls(written, shards, tensors)

    def step(
        self,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        *,
        seed: int,
        step: int = 0,
    ) -> StepResult:
        """One forward and, with a loss, backward pass. Parameters and buffers by path; neither is changed."""
        with torch.set_grad_enabled(self.program.has_loss):
            return run_lockstep(
                self.program,
                self.shards,
                self.tensors,
                parameters,
                buffers,
                seed=seed,
                step=step,
            )


def outcome(workload: Workload, result: StepResult) -> StepOutcome:
    """A result in the shape and names of the user's model."""
    traced = workload.traced
    assert traced.program is not None
    flat = [result.loss, *result.outputs] if traced.has_loss else list(result.outputs)
    parts = tree_unflatten(flat, traced.program.out_spec)
    if not (traced.has_loss or traced.metrics):
        parts = (parts,)
    parts = list(parts)
    loss = parts.pop(0) if traced.has_loss else None
    return StepOutcome(
        loss=loss,
        outputs=parts[0],
        gradients=own_values({p: g for p, g in result.gradients.items() if g is not None}),
        buffers=own_values(result.buffers),
        metrics=parts[1] if traced.metrics else {},
    )
