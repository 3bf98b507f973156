"""The proof that a plan trains to one device's numbers (DESIGN 8) (torch).

One rank and all ranks step side by side in float64 with SGD from equal weights, and with equal random draws; the one-rank
program itself is compared with the user's model as plain PyTorch runs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from autoplan.execute.lockstep import StepResult
from autoplan.execute.loop import default_dtype
from autoplan.planner.arrangement import RankGroup
from autoplan.planner.check import state_of
from autoplan.planner.eager import eager_step
from autoplan.planner.equality import gradient_error, mapping_error, values_error
from autoplan.planner.workload import TOLERANCE, Workload
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.trace.scope import AnyGraph
from autoplan.trace.step_module import user_name
from autoplan.trace.validation import validate

BOUND = 1e-10
"""Of every relative error; a gradient is measured against its parameter's or 1e-3 of the largest gradient."""
LEARNING_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Verification:
    """How far a plan's numbers are from one device's; all errors are relative and are compared with `bound`.

    Attributes:
        ok: every error is within the bound.
        workers, steps: what was compared.
        loss_error, output_error, gradient_error, weight_error, buffer_error: the largest of all steps.
        worst_parameter: the parameter with the largest gradient error; None where no gradient differs.
        eager_error: one rank's program against the user's model in plain PyTorch: outputs, gradients, buffers.
        bound: of all errors; eager_bound: of the last one, larger where the user's code names a dtype, so that plain PyTorch
            does not run it in float64 and its own dtype is compared (`planner.double`).
    """

    ok: bool
    workers: int
    steps: int
    loss_error: float
    output_error: float
    gradient_error: float
    weight_error: float
    buffer_error: float
    worst_parameter: str | None
    eager_error: float
    bound: float = BOUND
    eager_bound: float = BOUND

    def with_eager(self, error: float) -> Verification:
        """With one device's program compared with plain PyTorch in the model's own dtype, which the user's code names."""
        ok = self.ok and error <= TOLERANCE
        return replace(self, ok=ok, eager_error=error, eager_bound=TOLERANCE)

    def __str__(self) -> str:
        verdict = "equals" if self.ok else "DIFFERS from"
        worst = f" (worst: {self.worst_parameter})" if self.worst_parameter else ""
        own = ""
        if self.eager_bound != self.bound:
            own = f" (in the model's own dtype, which its code names: bound {self.eager_bound:.0e})"
        against = "" if self.workers == 1 else f"{self.workers} workers against one, "
        return (
            f"the plan {verdict} one device: {against}{self.steps} steps in float64, relative errors: "
            f"loss {self.loss_error:.1e}, outputs {self.output_error:.1e}, gradients {self.gradient_error:.1e}{worst}, "
            f"weights {self.weight_error:.1e}, buffers {self.buffer_error:.1e}; "
            f"one device against plain PyTorch {self.eager_error:.1e}{own}; bound {self.bound:.0e}"
        )


def compare(
    workload: Workload,
    groups: Iterable[tuple[RankGroup, RankGroup]],
    *,
    seed: int,
    eager: bool = True,
) -> Verification:
    """Steps two groups and compares them.

    Args:
        workload: the step in float64.
        groups: for each SGD step one rank alone, and the plan's ranks together on equal float64 tensors.
        seed: of the random draws.
        eager: compare one rank with plain PyTorch, too.
    """
    eager_error, steps, workers = 0.0, 0, 1
    errors = {"loss": 0.0, "outputs": 0.0, "gradients": 0.0, "weights": 0.0, "buffers": 0.0}
    worst: str | None = None
    first, second = state_of(workload), state_of(workload)
    for step, (alone, together) in enumerate(groups):
        if eager and not step:
            with EXCLUSIVE, default_dtype(torch.float64):
                eager_error = _against_eager(workload, alone)
        steps, workers = step + 1, together.workers
        one = alone.step(*first, seed=seed, step=step)
        many = together.step(*second, seed=seed, step=step)
        _raise_to(errors, "loss", values_error([one.loss], [many.loss]))
        _raise_to(errors, "outputs", values_error(one.outputs, many.outputs))
        error, name = gradient_error(one, many)
        if error > errors["gradients"]:
            worst = user_name(name) if name is not None else None
        _raise_to(errors, "gradients", error)
        first, second = _updated(first, one), _updated(second, many)
        _raise_to(errors, "weights", mapping_error(first[0], second[0]))
        _raise_to(errors, "buffers", mapping_error(first[1], second[1]))
    return Verification(
        ok=all(error <= BOUND for error in (*errors.values(), eager_error)),
        workers=workers,
        steps=steps,
        loss_error=errors["loss"],
        output_error=errors["outputs"],
        gradient_error=errors["gradients"],
        weight_error=errors["weights"],
        buffer_error=errors["buffers"],
        worst_parameter=worst,
        eager_error=eager_error,
    )


def compare_eager(workload: Workload, graph: AnyGraph, *, seed: int) -> Verification:
    """For plans that plain PyTorch runs: two runs from one seed must agree in outputs and gradients."""
    first = eager_step(workload, graph, seed=seed)
    again = eager_step(workload, graph, seed=seed)
    loss = values_error([first.loss], [again.loss])
    outputs = values_error([first.outputs], [again.outputs])
    gradients = mapping_error(first.gradients, again.gradients)
    return Verification(
        ok=max(loss, outputs, gradients) <= BOUND,
        workers=1,
        steps=1,
        loss_error=loss,
        output_error=outputs,
        gradient_error=gradients,
        weight_error=0.0,
        buffer_error=0.0,
        worst_parameter=None,
        eager_error=0.0,
    )


def own_error(workload: Workload, graph: AnyGraph) -> float:
    """One rank's program against the user's model on a graph, in the model's own dtype."""
    assert workload.traced.program is not None
    tensors = workload.traced.schema.tensors(graph)
    return max(validate(workload.traced.program, workload.traced.module, tensors).values())


def _against_eager(workload: Workload, alone: RankGroup) -> float:
    assert workload.traced.program is not None
    inputs = tuple(alone.tensors[name] for name in workload.traced.schema.names)
    return max(validate(workload.traced.program, workload.traced.module, inputs).values())


def _updated(
    state: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]], result: StepResult
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """One step of SGD; buffers as the step left them."""
    parameters = dict(state[0])
    for path, gradient in result.gradients.items():
        if gradient is not None:
            parameters[path] = parameters[path] - LEARNING_RATE * gradient
    return parameters, {**state[1], **result.buffers}


def _raise_to(errors: dict[str, float], what: str, value: float) -> None:
    errors[what] = max(errors[what], value)
