"""The integer programme of one candidate (DESIGN 6, one stage). The only importer of PuLP; the solver is HiGHS.

Variables (names are indices, so that renaming a module changes nothing):
    z[b,k] in {0,1}      block b takes choice k                                    `_choose`
    move[t,m] in {0,1}   transition m of tensor t happens                          `_choose`
    load[t,s] in [0,1]   tensor t is loaded in state s                             `MemoryRows`
    use[u] in [0,1]      unit u (storage in a state) is present                    `MemoryRows`
    saved[u] in [0,1]    unit u is kept for backward                               `MemoryRows`
    peak >= 0            the largest usage of any rank (objective ``memory``)      `_objective`

``copy[t,s]``, presence of a tensor in a state, is the expression  sum of z that give it + sum of move that end there.

Constraints:
    one:     sum_k z[b,k] = 1                                                      `_one_choice`
    need:    sum of z[b,k] that need (t,s) <= copy[t,s], per reader                `_needs`
    source:  move[t,m] <= copy[t, source of m]                                     `_sources`
    cycle:   the moves of a cycle of states are not all taken  (added when seen)   `_cycles`
    shard:   the costliest op that can be sharded is sharded   (where asked)       `_sharded`
    memory:  sum of bytes[u] use[u] + bytes[u] saved[u] + buffers <= limit, at a point of a direction on a rank;
             use and saved >= every expression that makes them                     (added when seen) `MemoryRows`

Objective, microseconds: sum of seconds z + sum of seconds move; or the peak, MiB. Rows that are added when seen: a solution is
checked outside the solver (`search.check`), violated rows join, and it is solved again; the last one violates none, so it
is optimal for the whole programme.

The LP relaxation is solved first and accepted when it is integral. One thread, fixed seed, a limit on nodes: the same input gives
the same answer. Status, bound and gap are HiGHS's own, never PuLP's (which calls a time-out optimal).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import highspy
import pulp

from autoplan.search.check import Evaluation, evaluate
from autoplan.search.memory_rows import MIB, MemoryRows
from autoplan.search.problem import Assignment, Need, Problem
from autoplan.search.quiet import quiet_stdout
from autoplan.search.solution import Solution, SolverError, SolverLimits

MICRO = 1e6
INTEGRAL = 1e-6
ROUNDS = 400


def solve(
    problem: Problem,
    *,
    objective: Literal["time", "memory"] = "time",
    sharded: bool = False,
    limits: SolverLimits = SolverLimits(),  # noqa: B008  (frozen)
) -> Solution:
    """Solve one problem to the limits' gap.

    Args:
        problem: blocks of one op where memory is limited or the objective.
        objective: seconds, or the largest peak of any rank.
        sharded: require that the costliest op that can be sharded is.
        limits: where to stop.
    """
    model = _Model(problem, objective, sharded)
    bound = -float("inf")
    for _ in range(ROUNDS):
        answer = model.run(limits, integer=False)
        if answer.status == "infeasible":
            return Solution(None, None, "infeasible", float("inf"), 0.0, True)
        if not model.integral():
            answer = model.run(limits, integer=True)
            if answer.status == "infeasible":
                return Solution(None, None, "infeasible", float("inf"), 0.0, True)
        bound = max(bound, answer.bound)
        if not answer.has_solution:
            return Solution(None, None, "unknown", bound, float("inf"), not answer.clock)
        assignment = model.assignment()
        evaluation = evaluate(problem, assignment)
        if model.tighten(assignment, evaluation):
            continue
        if evaluation.faults:
            raise SolverError(f"the solver's answer is no solution: {evaluation.faults[0]}")
        if objective == "time" and not evaluation.fits:
            raise SolverError(f"the solver's answer exceeds memory by {max(evaluation.excess)} B")
        value = evaluation.seconds if objective == "time" else max(evaluation.peak)
        gap = max(0.0, value - bound) / value if value else 0.0
        proven = answer.status == "optimal" and gap <= max(limits.gap, INTEGRAL)
        status: Literal["optimal", "feasible"] = "optimal" if proven else "feasible"
        return Solution(assignment, evaluation, status, bound, gap, not answer.clock)
    raise SolverError(f"no end after {ROUNDS} rounds of added rows")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: Literal["optimal", "stopped", "infeasible"]
    has_solution: bool
    bound: float
    clock: bool


class _Model:
    """The programme while it grows."""

    def __init__(self, problem: Problem, objective: str, sharded: bool) -> None:
        self.problem = problem
        self.lp = pulp.LpProblem("plan", pulp.LpMinimize)
        self.z: list[list[Any]] = []
        self.move: dict[tuple[int, int], Any] = {}
        self.peak: Any = None
        self.values: list[float] = []
        self.cycles_of: dict[int, None] = {}
        self._choose()
        self._objective(objective)
        self._one_choice()
        self._needs()
        self._sources()
        if sharded:
            self._sharded()
        self.memory = MemoryRows(self) if problem.memory is not None else None

    def _choose(self) -> None:
        """Z for every choice, move for every transition that can lead to a state somebody may need."""
        for b, choices in enumerate(self.problem.blocks):
            row = [self._binary(f"z{b:06d}_{k:03d}") for k in range(len(choices))]
            self.z.append(row)
        wanted: dict[Need, None] = dict.fromkeys(self.problem.required)
        for choices in self.problem.blocks:
            for choice in choices:
                wanted.update(dict.fromkeys(choice.needs))
        for t, tensor in enumerate(self.problem.tensors):
            grown = True
            while grown:
                grown = False
                for m, move in enumerate(tensor.moves):
                    if (t, move.target) in wanted and (t, m) not in self.move:
                        self.move[t, m] = self._binary(f"m{t:06d}_{m:03d}")
                        wanted[t, move.source] = None
                        grown = True
        self.wanted = wanted

    def _binary(self, name: str) -> Any:
        return self.lp.add_variable(name, lowBound=0, upBound=1, cat="Integer")

    def _objective(self, objective: str) -> None:
        """Microseconds of all choices and moves, or the peak in MiB."""
        if objective == "memory":
            self.peak = self.lp.add_variable("peak", lowBound=0)
            self.lp.setObjective(1.0 * self.peak)
            return
        terms = [
            (variable, choice.seconds * MICRO)
            for row, choices in zip(self.z, self.problem.blocks, strict=True)
            for variable, choice in zip(row, choices, strict=True)
        ]
        terms += [
            (variable, self.problem.tensors[t].moves[m].seconds * MICRO)
            for (t, m), variable in self.move.items()
        ]
        self.lp.setObjective(pulp.LpAffineExpression(terms))

    def _one_choice(self) -> None:
        """one: every block takes one choice."""
        for row in self.z:
            self.add([(variable, 1.0) for variable in row], "==", 1.0)

    def _needs(self) -> None:
        """need: who needs a tensor in a state finds it there."""
        self.given: dict[Need, list[Any]] = {}
        self.always: dict[Need, None] = {}
        for row, choices in zip(self.z, self.problem.blocks, strict=True):
            counts: dict[Need, int] = {}
            for variable, choice in zip(row, choices, strict=True):
                for need in choice.gives:
                    self.given.setdefault(need, []).append(variable)
                    counts[need] = counts.get(need, 0) + 1
            self.always.update({n: None for n, count in counts.items() if count == len(choices)})
        for row, choices in zip(self.z, self.problem.blocks, strict=True):
            readers: dict[Need, list[Any]] = {}
            for variable, choice in zip(row, choices, strict=True):
                for need in choice.needs:
                    readers.setdefault(need, []).append(variable)
            for need, variables in readers.items():
                if not self._free(need):
                    terms = [(v, 1.0) for v in variables] + self._copy(need, -1.0)
                    self.add(terms, "<=", 0.0)
        for need in self.problem.required:
            if not self._free(need):
                self.add(self._copy(need, 1.0), ">=", 1.0)

    def _free(self, need: Need) -> bool:
        return need[1] in self.problem.tensors[need[0]].loadable or need in self.always

    def _copy(self, need: Need, factor: float) -> list[tuple[Any, float]]:
        """The expression copy[t,s], times a factor."""
        tensor, state = need
        terms = [(variable, factor) for variable in self.given.get(need, [])]
        for m, move in enumerate(self.problem.tensors[tensor].moves):
            if move.target == state and (tensor, m) in self.move:
                terms.append((self.move[tensor, m], factor))
        return terms

    def _sources(self) -> None:
        """source: a move starts where the tensor is."""
        for (t, m), variable in self.move.items():
            need = (t, self.problem.tensors[t].moves[m].source)
            if not self._free(need):
                self.add([(variable, 1.0), *self._copy(need, -1.0)], "<=", 0.0)

    def _sharded(self) -> None:
        """shard: of the ops that can run on less than all rows, the costliest does."""
        costliest = max(
            (b for b, choices in enumerate(self.problem.blocks) if any(c.sharded for c in choices)),
            key=lambda b: (max(c.seconds for c in self.problem.blocks[b]), -b),
        )
        choices = self.problem.blocks[costliest]
        terms = [(self.z[costliest][k], 1.0) for k, c in enumerate(choices) if c.sharded]
        self.add(terms, ">=", 1.0)

    def _cycles(self, tensor: int) -> None:
        """cycle: states that only support each other are no source."""
        moves = self.problem.tensors[tensor].moves
        mine = [m for m in range(len(moves)) if (tensor, m) in self.move]
        for length in range(2, len(mine) + 1):
            for order in itertools.permutations(mine, length):
                closed = all(
                    moves[order[i]].target == moves[order[(i + 1) % length]].source
                    for i in range(length)
                )
                simple = len({moves[m].source for m in order}) == length
                if closed and simple and order[0] == min(order):
                    terms = [(self.move[tensor, m], 1.0) for m in order]
                    self.add(terms, "<=", length - 1.0)

    def add(self, terms: list[tuple[Any, float]], sense: str, right: float) -> None:
        senses = {
            "<=": pulp.LpConstraintLE,
            "==": pulp.LpConstraintEQ,
            ">=": pulp.LpConstraintGE,
        }
        self.lp.addConstraint(
            pulp.LpConstraint(pulp.LpAffineExpression(terms), sense=senses[sense], rhs=right)
        )

    def tighten(self, assignment: Assignment, evaluation: Evaluation) -> bool:
        """Add the rows that this assignment violates; False where it violates none that is missing."""
        added = False
        if evaluation.faults:
            for tensor in dict.fromkeys(t for t, _ in assignment.moves):
                if tensor not in self.cycles_of:
                    self.cycles_of[tensor] = None
                    self._cycles(tensor)
                    added = True
            return added
        if self.memory is None:
            return False
        return self.memory.tighten(evaluation)

    def run(self, limits: SolverLimits, *, integer: bool) -> _Answer:
        """Call HiGHS, on the relaxation or on the integer programme."""
        options: dict[str, Any] = {"random_seed": 0, "mip_max_nodes": limits.nodes}
        solver = _Highs(
            mip=integer,
            msg=False,
            threads=1,
            gapRel=limits.gap,
            gapAbs=0.0,
            timeLimit=limits.seconds if integer else None,
            **options,
        )
        with quiet_stdout():
            self.lp.solve(solver)
        highs = self.lp.solverModel
        status = highs.getModelStatus()
        kinds = highspy.HighsModelStatus
        if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
            return _Answer("infeasible", False, float("inf"), False)
        info = highs.getInfo()
        has_solution = info.primal_solution_status == 2
        if has_solution:
            self.values = list(highs.getSolution().col_value)
        raw = info.mip_dual_bound if integer else info.objective_function_value
        bound = raw * MIB if self.peak is not None else raw / MICRO + self.problem.fixed_seconds
        stopped = status != kinds.kOptimal
        if stopped and not has_solution and not integer:
            raise SolverError(f"HiGHS stopped in the relaxation: {status}")
        clock = status == kinds.kTimeLimit
        return _Answer("stopped" if stopped else "optimal", has_solution, bound, clock)

    def integral(self) -> bool:
        """Whether the last values of all z and move are whole numbers."""
        variables = (*itertools.chain.from_iterable(self.z), *self.move.values())
        return all(abs(x - round(x)) < INTEGRAL for x in map(self._value, variables))

    def _value(self, variable: Any) -> float:
        return float(self.values[variable.index])

    def assignment(self) -> Assignment:
        """The last values as an assignment, without moves that nobody needs."""
        choices = tuple(max(range(len(row)), key=lambda k: self._value(row[k])) for row in self.z)
        taken = [key for key, variable in self.move.items() if self._value(variable) > 0.5]
        return Assignment(choices, _needed_moves(self.problem, choices, taken))


def _needed_moves(
    problem: Problem, choices: tuple[int, ...], taken: list[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """The taken moves without those whose target nobody reads (a solver leaves them where they cost nothing)."""
    needed: dict[Need, None] = dict.fromkeys(problem.required)
    given: dict[Need, None] = {}
    for block, number in enumerate(choices):
        needed.update(dict.fromkeys(problem.blocks[block][number].needs))
        given.update(dict.fromkeys(problem.blocks[block][number].gives))
    kept = list(taken)
    while True:
        sources = {(t, problem.tensors[t].moves[m].source) for t, m in kept}
        useful = [
            (t, m)
            for t, m in kept
            if (t, problem.tensors[t].moves[m].target) not in given
            and (
                (t, problem.tensors[t].moves[m].target) in needed
                or (t, problem.tensors[t].moves[m].target) in sources
            )
        ]
        if useful == kept:
            return tuple(sorted(kept))
        kept = useful


class _Highs(pulp.HiGHS):  # type: ignore[misc]  # pulp is untyped
    """HiGHS through PuLP, read by ourselves: PuLP has no word for some of HiGHS's states, and a wrong one for others."""

    def actualSolve(self, lp: Any) -> int:  # noqa: N802  (PuLP's name)
        self.createAndConfigureSolver(lp)
        self.buildSolverModel(lp)
        lp.solverModel.run()
        return 0
