"""The search's one entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from autoplan.cost import CostModel
from autoplan.device import Cluster
from autoplan.errors import InfeasibleError, PlanError
from autoplan.graphstats import GraphStats
from autoplan.opgraph import OpGraph
from autoplan.pricing.table import Pricer
from autoplan.search.candidates import Task, data_refused, one_group_candidates, ranking, with_needs
from autoplan.search.refusals import nothing_possible
from autoplan.search.result import (
    FAMILIES,
    Candidate,
    ModelTensor,
    SearchOptions,
    SearchResult,
)
from autoplan.search.stages import stage_candidates

ALIASES = {"model:stages": "model"}
"""Other names of a family."""
OBJECTIVES = ("time", "memory")


def check_request(strategy: object, objective: object) -> None:
    """Raises PlanError for a strategy or an objective that this version does not know; lists those that it does."""
    if strategy not in ("auto", *FAMILIES, *ALIASES):
        raise PlanError(
            f"strategy={strategy!r} is not among what this version searches: auto, {', '.join(FAMILIES)}"
        )
    if objective not in OBJECTIVES:
        raise PlanError(f"objective={objective!r} is not one of {', '.join(OBJECTIVES)}")


def solve(
    graph: OpGraph,
    stats: GraphStats,
    cluster: Cluster,
    models: Sequence[CostModel],
    *,
    parameters: Sequence[ModelTensor],
    optimizer: str,
    strategy: str = "auto",
    objective: Literal["time", "memory"] = "time",
    training: bool = True,
    denied: Mapping[int, frozenset[str]] | None = None,
    options: SearchOptions | None = None,
) -> SearchResult:
    """Find the best plan for a program on a cluster.

    Args:
        graph: the traced program.
        stats: the real graph's sizes, with a partition for each number of devices to be tried.
        cluster: the devices.
        models: cost models of the plugins; the built-in roofline is asked where they decline.
        parameters: the model's parameters and buffers.
        optimizer: its name, for its memory and update (``sgd``, ``sgd_momentum``, ``adam``, ...).
        strategy: ``auto``, or the family that must be chosen (``model:stages`` is ``model``), on all devices where that is
            possible.
        objective: what is least: step time, or the largest peak memory of any device.
        training: forward, backward and update; or forward alone.
        denied: op index -> names of strategies that a check has rejected.
        options: limits of the search.

    Returns:
        The chosen candidate and all others, each with its price or the reason it was rejected.

    Raises:
        InfeasibleError: no candidate (of the family asked for) satisfies memory and states.
        PlanError: see `check_request`.
        DeviceError: no cost model prices an op on a device.
    """
    check_request(strategy, objective)
    options = options or SearchOptions()
    strategy = ALIASES.get(strategy, strategy)
    if strategy not in ("auto", *options.families):
        raise InfeasibleError(
            f"strategy={strategy!r} is not among the families to be tried: {', '.join(options.families)}"
        )
    pricer = Pricer(models)
    task = Task(
        graph,
        stats,
        cluster,
        pricer,
        tuple(parameters),
        optimizer,
        objective,
        training,
        denied or {},
        options,
    )
    if strategy == "data":
        # whoever asks for it by name is not given some of the devices because the rows are too few for all
        reason = data_refused(task, len(cluster.devices))
        if reason is not None:
            raise InfeasibleError(reason)
    candidates = (*one_group_candidates(task), *stage_candidates(task))
    allowed = [c for c in candidates if strategy in ("auto", c.strategy)]
    ranked = ranking(_asked_for(allowed, len(cluster.devices), strategy), objective)
    if not ranked:
        raise InfeasibleError(nothing_possible(_measured(task, allowed)))
    best = ranked[0]
    return SearchResult(
        best=best,
        candidates=candidates,
        forced=strategy != "auto",
        objective=objective,
        gap=_gap(best, ranked, objective),
        failures=pricer.failures,
    )


def without(result: SearchResult, name: str, reason: str, devices: int) -> SearchResult:
    """A result where one of the candidates is rejected after all, and the next best is chosen.

    Args:
        result: of `solve`.
        name: of the candidate.
        reason: why.
        devices: how many there are.

    Raises:
        InfeasibleError: none is left.
    """
    candidates = tuple(
        Candidate(c.name, c.strategy, c.ranks, reason=reason) if c.name == name else c
        for c in result.candidates
    )
    strategy = result.best.strategy if result.forced else "auto"
    allowed = [c for c in candidates if strategy in ("auto", c.strategy)]
    ranked = ranking(_asked_for(allowed, devices, strategy), result.objective)
    if not ranked:
        raise InfeasibleError(nothing_possible(allowed))
    gap = _gap(ranked[0], ranked, result.objective)
    return replace(result, best=ranked[0], candidates=candidates, gap=gap)


def _measured(task: Task, rejected: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, of each family the one on most devices with all that it needs."""
    most: dict[str, int] = {}
    for candidate in rejected:
        most[candidate.strategy] = max(most.get(candidate.strategy, 0), len(candidate.ranks))
    return [
        with_needs(task, c) if len(c.ranks) == most[c.strategy] and len(rejected) > 1 else c
        for c in rejected
    ]


def _asked_for(allowed: Sequence[Candidate], devices: int, strategy: str) -> Sequence[Candidate]:
    """Whoever forces a family of several devices means all of them; fewer only where it does not fit on all of them."""
    everyone = [c for c in allowed if len(c.ranks) == devices and c.feasible]
    return everyone if strategy not in ("auto", "single") and everyone else allowed


def _gap(best: Candidate, ranked: Sequence[Candidate], objective: str) -> float:
    """The chosen plan against the least lower bound of all candidates that were allowed and have one.

    Stages have none of their own: what their solver proves is about the closed form of the step, so that a chosen one keeps
    its gap to that.
    """
    assert best.prediction is not None
    if best.stage_of is not None:
        return best.gap
    if objective == "memory":
        return max(candidate.gap for candidate in ranked)
    value = best.prediction.step_seconds.value
    bounds = [c.lower_bound_seconds for c in ranked if c.lower_bound_seconds is not None]
    if not bounds or value <= 0:
        return 0.0
    gap = (value - min(bounds)) / value
    return gap if gap > 1e-9 else 0.0
