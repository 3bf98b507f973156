"""The search, with every strategy checked before it is offered (torch).

A candidate that shards anything is run on a small sample of the graph, two and three ranks in lock-step, and compared with
one rank in float64. What differs is denied to the search, which then chooses again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from autoplan.cost import CostModel
from autoplan.device import Cluster
from autoplan.errors import InfeasibleError, TraceError
from autoplan.planner.arrangement import Arrangement
from autoplan.planner.check import Checker, Mismatch
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.workload import Workload, model_tensors
from autoplan.search import Candidate, SearchOptions, SearchResult, solve, without
from autoplan.trace.scope import AnyGraph

_ROUNDS = 8
"""How often the search may be sent back; each round denies at least one strategy."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen.

    Attributes:
        result: of the last search.
        mismatches: strategies that were rejected because their numbers differ from one device's.
    """

    result: SearchResult
    mismatches: tuple[Mismatch, ...]


def choose(
    model: nn.Module,
    graph: AnyGraph,
    workload: Workload,
    measured: MeasuredGraph,
    cluster: Cluster,
    models: Sequence[CostModel],
    *,
    optimizer: str,
    strategy: str,
    objective: Literal["time", "memory"],
    options: SearchOptions | None = None,
) -> Choice:
    """Searches until what it offers has passed the check.

    Args:
        model: the user's.
        graph: the user's.
        workload: the traced step.
        measured: the graph's sizes and partitions.
        cluster: the devices.
        models: cost models of the plugins.
        optimizer: its name.
        strategy: ``auto`` or a family.
        objective: what is least.
        options: limits of the search.

    Raises:
        InfeasibleError: nothing fits, or nothing of the family asked for is left.
    """
    checker = Checker(model, graph, workload)
    denied: dict[int, frozenset[str]] = {}
    mismatches: list[Mismatch] = []
    unchecked = ""

    def search(denied: Mapping[int, frozenset[str]]) -> SearchResult:
        try:
            return solve(
                workload.opgraph,
                measured.stats,
                cluster,
                models,
                parameters=model_tensors(workload),
                optimizer=optimizer,
                strategy=strategy,
                objective=objective,
                training=workload.traced.training,
                denied=denied,
                options=options,
            )
        except InfeasibleError as error:
            if unchecked:
                raise InfeasibleError(
                    f"{strategy} needs strategies that could not be checked: {unchecked}"
                ) from error
            if not mismatches:
                raise
            raise InfeasibleError(
                f"{error}; the lock-step check rejected the strategies that there were: {mismatches[-1]}"
            ) from error

    for _ in range(_ROUNDS):
        result = search(denied)
        try:
            found = _first_mismatch(checker, result.candidates)
        except TraceError as error:
            unchecked = str(error)
            break
        if found is None:
            result = _stages_checked(checker, result, len(cluster.devices))
            return Choice(result, tuple(mismatches))
        mismatches.append(found)
        denied = _merged(denied, found.denied)
    result = search(
        {
            op.index: frozenset(s.name for s in op.strategies if s.name != "R")
            for op in workload.opgraph.ops
        }
    )
    reason = (
        f"it could not be checked: {unchecked}"
        if unchecked
        else f"its numbers differ from one device's: {mismatches[-1]}"
    )
    candidates = tuple(
        c if c.feasible or c.strategy == "single" else replace(c, reason=reason)
        for c in result.candidates
    )
    result = _stages_checked(checker, replace(result, candidates=candidates), len(cluster.devices))
    return Choice(result, tuple(mismatches))


def _first_mismatch(checker: Checker, candidates: Sequence[Candidate]) -> Mismatch | None:
    """Candidates often agree in their choices; each set of choices is run once."""
    seen: list[tuple[Mapping[int, str], bool]] = []
    for candidate in candidates:
        choices = candidate.choices
        if choices is None or all(name == "R" for name in choices.values()):
            continue
        # the numbers of these are others by design
        if candidate.lossy:
            continue
        if (choices, candidate.closed) in seen:
            continue
        seen.append((choices, candidate.closed))
        mismatch = checker.check(choices, closed=candidate.closed)
        if mismatch is not None:
            return mismatch
    return None


def _stages_checked(checker: Checker, result: SearchResult, devices: int) -> SearchResult:
    """The result, with the chosen candidate's stages run on a sample before it is offered."""
    while result.best.stage_of is not None and not result.best.lossy:
        reason = checker.check_stages(Arrangement.of_candidate(result.best))
        if reason is None:
            break
        result = without(result, result.best.name, reason, devices)
    return result


def _merged(
    first: Mapping[int, frozenset[str]], second: Mapping[int, frozenset[str]]
) -> dict[int, frozenset[str]]:
    return {
        op: first.get(op, frozenset()) | second.get(op, frozenset()) for op in {*first, *second}
    }
