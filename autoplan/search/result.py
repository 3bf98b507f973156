"""What the search is asked and what it answers. Data only, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from autoplan.errors import PlanError
from autoplan.opgraph import State
from autoplan.plan import (
    MemorySheet,
    PlannedTransfer,
    PlannedTransition,
    Prediction,
    Schedule,
    Status,
    Strategy,
)
from autoplan.pricing.memory import ModelTensor
from autoplan.pricing.table import ModelFailure
from autoplan.simulate import TimelineEntry
from autoplan.simulate_stages import ActionEntry

__all__ = ["Candidate", "ModelTensor", "SearchOptions", "SearchResult", "StagePart"]

FAMILIES: tuple[Strategy, ...] = ("single", "data", "model", "pipeline", "hybrid")
"""What this version searches."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How hard to search, and what to leave free.

    Attributes:
        head_room: share of a device's capacity that a plan must leave free (of the peak, where no capacity is known).
        gap: relative gap at which a solution counts as optimal.
        node_limit: branch-and-bound nodes of one solve; a stop there is deterministic.
        time_limit_seconds: wall clock of one solve; a stop there is not deterministic. None: no limit.
        fewer_devices: also try fewer devices than the cluster has (``data``: where a partition was measured).
        families: those that are tried.
        micro_batches: numbers of micro-batches of a replica that are tried; None: a few that suit the number of stages.
        schedules: orders of micro-batches that are tried.
        exact: only strategies that give one device's numbers.
        stage_of: op index -> stage, of a plan that is priced anew: its cut is kept, on the devices in their order.
    """

    head_room: float = 0.1
    gap: float = 1e-6
    node_limit: int = 20_000
    time_limit_seconds: float | None = None
    fewer_devices: bool = True
    families: tuple[Strategy, ...] = FAMILIES
    micro_batches: tuple[int, ...] | None = None
    schedules: tuple[Schedule, ...] = ("1f1b", "gpipe")
    exact: bool = True
    stage_of: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        """Raises PlanError for micro-batches and schedules that there cannot be."""
        counts = self.micro_batches
        if counts is not None and (not counts or not all(_is_count(count) for count in counts)):
            raise PlanError(
                f"micro_batches={counts!r} must be one or more whole numbers of at least 1, as (2, 4)"
            )
        known = get_args(Schedule)
        if not self.schedules or not set(self.schedules) <= set(known):
            raise PlanError(
                f"schedules={self.schedules!r} must be one or more of {', '.join(known)}"
            )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True, slots=True)
class StagePart:
    """What one stage does.

    Attributes:
        ops: indices, in program order. transitions, inputs, sends: as in `autoplan.plan.StagePlan`.
        sources: of the parameters, buffers and other tensors of the model that its ops read, by their names in the step.
        memory: one sheet per rank of the stage (replica). busy_seconds: as in the plan.
    """

    ops: tuple[int, ...]
    transitions: tuple[PlannedTransition, ...]
    inputs: tuple[tuple[str, State], ...]
    sends: tuple[PlannedTransfer, ...]
    sources: tuple[str, ...]
    memory: tuple[MemorySheet, ...]
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to spread the work: a family on a set of devices, with its price or the reason it was rejected.

    Attributes:
        name: for people, ``data on 2 of 4 devices``.
        strategy: the family; ranks: positions in ``Cluster.devices``, in rank order of the plan.
        threads: of each rank's worker (CPU; 1 elsewhere): what the prices assume.
        choices: op index -> name of the `OpStrategy` it runs with; None where rejected.
        transitions: exchanges and slices between states, each once per step, in the order of their tensors.
        inputs: graph attributes by tensor name and the states they are loaded in.
        prediction, memory (per rank), timeline: what the simulator expects; None and empty where rejected.
        stage_of: op index -> stage; None where there is one group of devices. stages: each in turn; rank ``d * S + s`` of
            ``ranks`` runs stage s of replica d. schedule, micro_batches (of each replica), replicas, bubble: as in
            `autoplan.plan.PipelineUse`.
        closed: the batch is cut along whole units (``GraphStats.closed``).
        lossy: how its numbers differ from one device's, by op; empty: they do not.
        status: how sure the answer is; gap: relative, of the objective against ``lower_bound_seconds``.
        lower_bound_seconds: no plan of this candidate is faster; None where nothing was proven.
        deterministic: False when a wall clock stopped the solver.
        reason: why it was rejected, or None.
        needs: where memory is why, bytes that each of its devices must have; suffices: with that much it fits, else it takes more.
    """

    name: str
    strategy: Strategy
    ranks: tuple[int, ...]
    threads: tuple[int, ...] = ()
    choices: Mapping[int, str] | None = None
    transitions: tuple[PlannedTransition, ...] = ()
    inputs: tuple[tuple[str, State], ...] = ()
    prediction: Prediction | None = None
    memory: tuple[MemorySheet, ...] = ()
    timeline: tuple[TimelineEntry | ActionEntry, ...] = ()
    stage_of: Mapping[int, int] | None = None
    stages: tuple[StagePart, ...] = ()
    schedule: Schedule = "gpipe"
    micro_batches: int = 1
    replicas: int = 1
    bubble: float = 0.0
    closed: bool = False
    lossy: tuple[str, ...] = ()
    status: Status = "optimal"
    gap: float = 0.0
    lower_bound_seconds: float | None = None
    deterministic: bool = True
    reason: str | None = None
    needs: float | None = None
    suffices: bool = True

    @property
    def feasible(self) -> bool:
        """Whether it has a price."""
        return self.prediction is not None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All candidates, the best first among equals of their order; ``best`` is one of them.

    Attributes:
        best: the chosen candidate. candidates: every one tried, chosen and rejected, in a fixed order.
        forced: the caller named the family; objective: ``time`` or ``memory``.
        gap: of the chosen candidate against the least lower bound of all that were allowed.
        failures: cost models that raised or answered nonsense, once each.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]
    forced: bool
    objective: str
    gap: float
    failures: tuple[ModelFailure, ...] = field(default=())
