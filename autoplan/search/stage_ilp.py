"""The integer programme of stages (DESIGN 6): which block runs on which stage, all monotone assignments.

B blocks, S stages, m micro-batches; numbers as in `search.stage_problem`. Names are indices.

Variables:
    z[b,s] in {0,1}      block b runs on stage s                                         `_choose`
    recv[t,s] in [0,1]   tensor t arrives on stage s: once, however many read it there   `_crossings`
    back[t,s] in [0,1]   and its gradient goes back                                      `_crossings`
    T >= 0               seconds of the slowest stage                                    `_times`
    use[w,s] in [0,1]    parameter or graph attribute w is held on stage s: once, tied or not     `_memory`
    kept[u,s] in [0,1]   storage u is kept for backward on stage s                       `_memory`
    brief[s] >= 0        the largest transient of a block of stage s                     `_memory`
    renew[s] >= 0        the largest temporaries of the update of a parameter of stage s `_update`
    peak >= 0            bytes of the fullest stage (objective ``memory``)               `_objective`

``y[b,s]``, the block runs on stage s or before, is the expression  z[b,0] + ... + z[b,s].

Constraints:
    one:     sum_s z[b,s] = 1;  sum_b z[b,s] >= 1                                        `_choose`
    order:   y[a,s] >= y[b,s] for every b that reads what a makes; this also removes the symmetry of equal devices    `_order`
    arrive:  recv[t,s] >= z[b,s] - z[a,s] for every reader b of t, made by a; back[t,s] likewise for those that pass a
             gradient back                                                               `_crossings`
    tau:     T >= tau[s] = overhead[s] + sum_b seconds[b] z[b,s] + sum_t message[t,s] (recv[t,s] + back[t,s])    `_times`
    hold:    use[w,s] >= z[b,s] for every reader; kept[u,s] >= z[b,s] for every saver, >= back[t,s] where it arrived with a
             gradient, >= z[a,s] - z[b,s] where it left with one; brief[s] >= transient[b] z[b,s]    `_memory`
    memory:  sum_w bytes use + sum_t bytes recv + sum_u flying[s] kept + brief[s] <= capacity - head-room    `_memory`
    update:  sum_w (bytes + together) use + renew[s] <= capacity - head-room;  renew[s] >= update[w] use[w,s]    `_update`
    better:  the objective is at most that of the given assignment                       `_objective`

Objective: microseconds of  sum_s tau[s] + weight T  (m - 1, see `StageProblem.weight`),  or the peak in MiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autoplan.search.ilp import MICRO, LinearProgramme, Terms
from autoplan.search.memory_rows import MIB
from autoplan.search.solution import SolverError, SolverLimits
from autoplan.search.stage_problem import StageEvaluation, StageProblem, evaluate_stages


@dataclass(frozen=True, slots=True)
class StageSolution:
    """What a solve came to.

    Attributes:
        stage_of: the stage of each block; evaluation: what it comes to. None where there is none (better than asked).
        status: ``optimal``; ``feasible``: stopped with one; ``infeasible``: proven; ``unknown``: stopped without one.
        bound: no assignment is better: seconds, or bytes. deterministic: no clock was involved.
    """

    stage_of: tuple[int, ...] | None
    evaluation: StageEvaluation | None
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    bound: float
    deterministic: bool


def solve_stages(
    problem: StageProblem,
    *,
    objective: Literal["time", "memory"] = "time",
    limits: SolverLimits = SolverLimits(),  # noqa: B008  (frozen)
    at_most: float | None = None,
) -> StageSolution:
    """The best assignment.

    Args:
        problem: blocks in order.
        objective: step time, or bytes of the fullest stage.
        limits: where to stop.
        at_most: an objective's value that is known to be possible; nothing worse is looked at.

    Raises:
        SolverError: the solver's answer contradicts the problem.
    """
    if len(problem.blocks) < len(problem.slots):
        return StageSolution(None, None, "infeasible", math.inf, True)
    programme = _Stages(problem, objective, at_most)
    answer = programme.call(limits, integer=True)

    def scaled(value: float) -> float:
        return value * MIB if objective == "memory" else value / MICRO + programme.constant

    if answer.status == "infeasible":
        return StageSolution(None, None, "infeasible", math.inf, True)
    bound = scaled(answer.bound)
    if not answer.has_solution:
        return StageSolution(None, None, "unknown", bound, not answer.clock)
    stage_of = programme.assignment()
    found = evaluate_stages(problem, stage_of)
    if found.faults:
        raise SolverError(f"the solver's stages are no solution: {found.faults[0]}")
    value = found.seconds if objective == "time" else max(found.bytes)
    told = scaled(answer.value)
    if abs(value - told) > 1e-5 * max(value, told) + 1e-9 + (objective == "memory") * 64:
        raise SolverError(f"the solver counts {told}, the check {value}")
    if not found.fits:
        raise SolverError(f"the solver's stages exceed memory by {max(found.excess)} B")
    status: Literal["optimal", "feasible"] = "optimal" if answer.status == "optimal" else "feasible"
    return StageSolution(stage_of, found, status, min(bound, value), not answer.clock)


class _Stages(LinearProgramme):
    """The programme of one problem."""

    def __init__(self, problem: StageProblem, objective: str, at_most: float | None) -> None:
        super().__init__()
        self.problem = problem
        self.stages = range(len(problem.slots))
        self.constant = sum(slot.overhead for slot in problem.slots)
        self.z: list[list[Any]] = []
        self.recv: dict[tuple[int, int], Any] = {}
        self.back: dict[tuple[int, int], Any] = {}
        self._choose()
        self._order()
        self._crossings()
        tau = self._times()
        used = self._memory() if objective == "memory" or problem.limited else []
        self._objective(objective, tau, used, at_most)

    def _choose(self) -> None:
        """one: every block has a stage, every stage a block."""
        for block in range(len(self.problem.blocks)):
            row = [self.binary(f"z{block:04d}_{stage:03d}") for stage in self.stages]
            self.z.append(row)
            self.add([(variable, 1.0) for variable in row], "==", 1.0)
        for stage in self.stages:
            self.add([(row[stage], 1.0) for row in self.z], ">=", 1.0)

    def _order(self) -> None:
        """order: who reads comes no earlier than who makes."""
        pairs = {(m.maker, reader): None for m in self.problem.messages for reader in m.readers}
        for first, second in (*pairs, *self.problem.after):
            for stage in self.stages[:-1]:
                terms = [(self.z[first][s], 1.0) for s in range(stage + 1)]
                terms += [(self.z[second][s], -1.0) for s in range(stage + 1)]
                self.add(terms, ">=", 0.0)

    def _crossings(self) -> None:
        """arrive: a tensor arrives where it is read and not made."""
        for number, message in enumerate(self.problem.messages):
            made = self.z[message.maker]
            same = message.readers == message.gradient
            for stage in self.stages[1:]:
                recv = self.continuous(f"r{number:05d}_{stage:03d}", 1.0)
                self.recv[number, stage] = recv
                for reader in message.readers:
                    terms = [(recv, 1.0), (self.z[reader][stage], -1.0), (made[stage], 1.0)]
                    self.add(terms, ">=", 0.0)
                if not message.gradient:
                    continue
                back = recv if same else self.continuous(f"g{number:05d}_{stage:03d}", 1.0)
                self.back[number, stage] = back
                for reader in () if same else message.gradient:
                    terms = [(back, 1.0), (self.z[reader][stage], -1.0), (made[stage], 1.0)]
                    self.add(terms, ">=", 0.0)

    def _times(self) -> list[Terms]:
        """tau: the microseconds of each stage, without its overhead."""
        problem = self.problem
        tau: list[Terms] = []
        for stage in self.stages:
            slot = problem.slots[stage]
            row = problem.seconds[slot.kind]
            terms: Terms = [
                (self.z[block][stage], float(row[block]) * MICRO)
                for block in range(len(problem.blocks))
            ]
            for number, message in enumerate(problem.messages):
                once = message.bytes / slot.bytes_per_s * MICRO
                for table in (self.recv, self.back):
                    if (number, stage) in table:
                        terms.append((table[number, stage], once))
            tau.append(terms)
        return tau

    def _memory(self) -> list[Terms]:
        """hold, and memory and update where it is limited. Returns the MiB of each stage, before and in the update."""
        problem = self.problem
        used: list[Terms] = []
        for stage in self.stages:
            terms: Terms = []
            held = []
            for number, each in enumerate(problem.held):
                use = self.continuous(f"u{number:05d}_{stage:03d}", 1.0)
                for block in each.readers:
                    self.add([(use, 1.0), (self.z[block][stage], -1.0)], ">=", 0.0)
                terms.append((use, each.bytes / MIB))
                held.append(use)
            for number, message in enumerate(problem.messages):
                if (number, stage) in self.recv:
                    terms.append((self.recv[number, stage], message.bytes / MIB))
            terms += self._kept(stage)
            brief = self.continuous(f"b{stage:03d}")
            for block, size in enumerate(problem.transient):
                if size:
                    self.add([(brief, 1.0), (self.z[block][stage], -float(size) / MIB)], ">=", 0.0)
            terms.append((brief, 1.0))
            limit = problem.slots[stage].limit
            for found in (terms, self._update(stage, held)):
                if limit is not None and found:
                    self.add(found, "<=", limit / MIB)
                if found:
                    used.append(found)
        return used

    def _update(self, stage: int, uses: Sequence[Any]) -> Terms:
        """The MiB of a stage in the optimizer's update; none where it makes no temporaries."""
        held = self.problem.held
        if not any(each.update or each.together for each in held):
            return []
        renew = self.continuous(f"n{stage:03d}")
        terms: Terms = [(renew, 1.0)]
        for use, each in zip(uses, held, strict=True):
            terms.append((use, (each.bytes + each.together) / MIB))
            if each.update:
                self.add([(renew, 1.0), (use, -each.update / MIB)], ">=", 0.0)
        return terms

    def _kept(self, stage: int) -> Terms:
        """The storages that a stage keeps for backward."""
        problem = self.problem
        crossing: dict[int, list[int]] = {}
        for number, message in enumerate(problem.messages):
            if message.gradient and message.unit is not None:
                crossing.setdefault(message.unit, []).append(number)
        terms: Terms = []
        for unit, each in enumerate(problem.units):
            size = float(problem.kept[stage, unit])
            if not size or not (each.savers or unit in crossing):
                continue
            kept = self.continuous(f"k{unit:05d}_{stage:03d}", 1.0)
            for block in each.savers:
                self.add([(kept, 1.0), (self.z[block][stage], -1.0)], ">=", 0.0)
            for number in crossing.get(unit, ()):
                message = problem.messages[number]
                if (number, stage) in self.back:
                    self.add([(kept, 1.0), (self.back[number, stage], -1.0)], ">=", 0.0)
                made = self.z[message.maker][stage]
                for reader in message.gradient:
                    left = [(kept, 1.0), (made, -1.0), (self.z[reader][stage], 1.0)]
                    self.add(left, ">=", 0.0)
            terms.append((kept, size / MIB))
        return terms

    def _objective(
        self, objective: str, tau: Sequence[Terms], used: Sequence[Terms], at_most: float | None
    ) -> None:
        """Sum of all stages and the slowest by its weight; or the fullest. better: at most what is known."""
        if objective == "memory":
            peak = self.continuous("peak", None if at_most is None else at_most * (1 + 1e-9) / MIB)
            for terms in used:
                self.add([*terms, (peak, -1.0)], "<=", 0.0)
            self.minimise([(peak, 1.0)])
            return
        goal: Terms = [term for terms in tau for term in terms]
        slowest = self.continuous("T")
        for slot, terms in zip(self.problem.slots, tau, strict=True):
            self.add([*terms, (slowest, -1.0)], "<=", -slot.overhead * MICRO)
        goal.append((slowest, self.problem.weight))
        if at_most is not None:
            self.add(goal, "<=", (at_most * (1 + 1e-9) - self.constant) * MICRO)
        self.minimise(goal)

    def assignment(self) -> tuple[int, ...]:
        """The stage of each block in the last values."""
        return tuple(max(self.stages, key=lambda s: self.value(row[s])) for row in self.z)
