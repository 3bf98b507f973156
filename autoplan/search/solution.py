"""What a solver answers, and where it may stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoplan.plan import Status
from autoplan.search.check import Evaluation


class SolverError(RuntimeError):
    """The solver's answer contradicts the problem: a bug here or there, never a property of the input."""


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """Where a solve stops: relative gap, nodes, and (not deterministic) seconds."""

    gap: float = 1e-6
    nodes: int = 20_000
    seconds: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What a solve came to.

    Attributes:
        assignment: the number of each block's choice; evaluation: what it comes to. None where there is none.
        status: ``optimal`` and ``feasible`` have one; ``infeasible`` is proven; ``unknown`` is a stop without one.
        bound: no solution is better: seconds, or bytes for the objective ``memory``. gap: relative.
        deterministic: no wall clock was involved.
    """

    assignment: tuple[int, ...] | None
    evaluation: Evaluation | None
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    bound: float
    gap: float
    deterministic: bool

    @property
    def plan_status(self) -> Status:
        """The status of a plan with this solution."""
        return "optimal" if self.status == "optimal" else "feasible"
