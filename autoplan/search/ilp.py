"""The integer programme of one candidate (DESIGN 6, one stage). The only importer of PuLP; the solver is HiGHS.

Variables (names are indices, so that renaming a module changes nothing):
    z[b,k] in {0,1}      block b takes choice k                                          `_choose`
    move[t,m] in {0,1}   transition m of tensor t happens                                `_choose`
    cross[t,m] in [0,1]  a gradient crosses it, so that its adjoint happens too          `_crossings`
    use[u] in [0,1]      unit u (a storage in a state) is present                        `MemoryRows`
    saved[u] in [0,1]    unit u is kept for backward                                     `MemoryRows`
    peak >= 0            the largest usage of any rank (objective ``memory``)            `_objective`

``copy[t,s]``, presence of a tensor in a state, is the expression  sum of z that give it + sum of move that end there;
``need[t,s]`` is the sum of z that read it there.

Constraints:
    one:     sum_k z[b,k] = 1                                                            `_one_choice`
    read:    sum of z[b,k] that read (t,s) <= copy[t,s], per reader                      `_reads`
    source:  move[t,m] <= copy[t, source of m]                                           `_ways`
    way:     only the moves of `states.way`: to R and H only where read there; O -> H and R -> O only where no
             cheaper source is present (copy[t,R] and copy[t,H])                         `_ways`
    cross:   cross[t,m] >= move[t,m] + (sum of z[b,k] that read its result and differentiate it) - 1, per reader;
             likewise for a crossed move that starts from its result                     `_crossings`
    shard:   sum of z that are marked as sharded >= 1  (where asked)                     `_sharded`
    memory:  sum of bytes[u] use[u] + bytes[u] saved[u] + buffers <= limit, at a point of a direction on a rank; use and
             saved >= every expression that makes them         (added when seen)         `MemoryRows`

Objective: microseconds of z, of move, and of adjoints times cross; or the peak in MiB. Memory rows are added when seen: a
solution is checked outside the solver (`search.check`), violated rows join, and it is solved again; the last one violates
none, so it is optimal for the whole programme.

The LP relaxation is solved first and accepted when it is integral. One thread, fixed seed, a limit on nodes: the same input
gives the same answer. Status, bound and gap are HiGHS's own, never PuLP's (which calls a time-out optimal).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import highspy
import pulp

from autoplan.search.check import Evaluation, evaluate
from autoplan.search.interruptible import run_interruptible
from autoplan.search.memory_rows import MIB, MemoryRows
from autoplan.search.problem import Place, Problem
from autoplan.search.quiet import quiet_stdout
from autoplan.search.solution import Solution, SolverError, SolverLimits

MICRO = 1e6
INTEGRAL = 1e-6
ROUNDS = 400
Terms = list[tuple[Any, float]]


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """HiGHS's own words: status, whether there is a solution, its value, a bound, and whether a clock stopped it."""

    status: Literal["optimal", "stopped", "infeasible"]
    has_solution: bool
    value: float
    bound: float
    clock: bool


class LinearProgramme:
    """Variables, rows and an objective of PuLP, solved by HiGHS and read by ourselves.

    Attributes:
        lp: PuLP's problem; values: of the last answer, by the variables' order.
    """

    def __init__(self) -> None:
        self.lp = pulp.LpProblem("plan", pulp.LpMinimize)
        self.values: list[float] = []

    def binary(self, name: str) -> Any:
        """A new variable, 0 or 1."""
        return self.lp.add_variable(name, lowBound=0, upBound=1, cat="Integer")

    def continuous(self, name: str, most: float | None = None) -> Any:
        """A new variable from zero to ``most``."""
        return self.lp.add_variable(name, lowBound=0, upBound=most)

    def minimise(self, terms: Terms) -> None:
        """Set the objective."""
        self.lp.setObjective(pulp.lpSum(factor * variable for variable, factor in terms))

    def add(self, terms: Terms, sense: str, right: float) -> None:
        """Add the row ``sum of terms, sense, right``."""
        senses = {
            "<=": pulp.LpConstraintLE,
            "==": pulp.LpConstraintEQ,
            ">=": pulp.LpConstraintGE,
        }
        left = pulp.lpSum(factor * variable for variable, factor in terms)
        self.lp.addConstraint(pulp.LpConstraint(left, sense=senses[sense], rhs=right))

    def call(self, limits: SolverLimits, *, integer: bool) -> RawAnswer:
        """Call HiGHS, on the relaxation or on the integer programme; its values stay in ``values``."""
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
            return RawAnswer("infeasible", False, math.inf, math.inf, False)
        info = highs.getInfo()
        has_solution = info.primal_solution_status == 2
        if has_solution:
            self.values = list(highs.getSolution().col_value)
        stopped = status != kinds.kOptimal
        if stopped and not integer:
            # numerical trouble in the relaxation proves nothing; the integer programme is tried all the same
            return RawAnswer("stopped", False, math.inf, -math.inf, False)
        return RawAnswer(
            "stopped" if stopped else "optimal",
            has_solution,
            info.objective_function_value,
            info.mip_dual_bound if integer else info.objective_function_value,
            status == kinds.kTimeLimit,
        )

    def value(self, variable: Any) -> float:
        """A variable's value in the last answer."""
        return float(self.values[variable.index])


class _Highs(pulp.HiGHS):  # type: ignore[misc]  # pulp is untyped
    """HiGHS through PuLP, read by ourselves: PuLP has no word for some of HiGHS's states, and a wrong one for others."""

    def actualSolve(self, lp: Any) -> int:  # noqa: N802  (PuLP's name)
        self.createAndConfigureSolver(lp)
        self.buildSolverModel(lp)
        if self.mip:
            run_interruptible(lp.solverModel)
        else:
            lp.solverModel.run()
        return 0


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
        sharded: require that a choice which is marked as sharded is taken.
        limits: where to stop.
    """
    programme = _Programme(problem, objective, sharded)
    bound = -math.inf
    for _ in range(ROUNDS):
        answer = programme.run(limits, integer=False)
        if answer.status == "stopped" or (answer.status == "optimal" and not programme.integral()):
            answer = programme.run(limits, integer=True)
        if answer.status == "infeasible":
            return Solution(None, None, "infeasible", math.inf, 0.0, True)
        bound = max(bound, answer.bound)
        if not answer.has_solution:
            return Solution(None, None, "unknown", bound, math.inf, not answer.clock)
        assignment = programme.assignment()
        evaluation = evaluate(problem, assignment)
        if evaluation.faults:
            raise SolverError(f"the solver's answer is no solution: {evaluation.faults[0]}")
        if programme.tighten(evaluation):
            continue
        value = evaluation.seconds if objective == "time" else max(evaluation.peak)
        if objective == "time" and not evaluation.fits:
            raise SolverError(f"the solver's answer exceeds memory by {max(evaluation.excess)} B")
        if value > answer.value * (1 + 1e-5) + 1e-9 + (objective == "memory") * 64:
            raise SolverError(f"the solver counts {answer.value}, the check {value}")
        gap = max(0.0, value - bound) / value if value else 0.0
        proven = answer.status == "optimal" and gap <= max(limits.gap, 1e-5)
        return Solution(
            assignment,
            evaluation,
            "optimal" if proven else "feasible",
            min(bound, value),
            0.0 if gap < 1e-9 else gap,
            not answer.clock,
        )
    raise SolverError(f"no end after {ROUNDS} rounds of added rows")


class _Programme(LinearProgramme):
    """The programme while it grows."""

    def __init__(self, problem: Problem, objective: str, sharded: bool) -> None:
        super().__init__()
        self.problem = problem
        self.z: list[list[Any]] = []
        self.move: dict[tuple[int, int], Any] = {}
        self.cross: dict[tuple[int, int], Any] = {}
        self.given: dict[Place, list[Any]] = {}
        self.always: dict[Place, None] = {}
        self.readers: dict[Place, list[tuple[int, int, bool]]] = {}
        self.required = {read.place: read.crosses for read in problem.required}
        self.peak: Any = None
        self._choose()
        self._one_choice()
        self._reads()
        self._ways()
        adjoints = self._crossings()
        self._objective(objective, adjoints)
        if sharded:
            self._sharded()
        self.memory = MemoryRows(self) if problem.memory is not None else None

    def _choose(self) -> None:
        """Z for every choice, move for every transition that can lead to where somebody may read."""
        for b, choices in enumerate(self.problem.blocks):
            row = [self.binary(f"z{b:06d}_{k:03d}") for k in range(len(choices))]
            self.z.append(row)
            counts: dict[Place, int] = {}
            for k, (variable, choice) in enumerate(zip(row, choices, strict=True)):
                for place in choice.gives:
                    self.given.setdefault(place, []).append(variable)
                    counts[place] = counts.get(place, 0) + 1
                for read in choice.reads:
                    self.readers.setdefault(read.place, []).append((b, k, read.crosses))
            self.always.update({p: None for p, count in counts.items() if count == len(choices)})
        wanted = dict.fromkeys((*self.readers, *self.required))
        for t, tensor in enumerate(self.problem.tensors):
            grown = True
            while grown:
                grown = False
                for m, move in enumerate(tensor.moves):
                    goal = Place(t, move.transition.target)
                    if goal in wanted and (t, m) not in self.move:
                        self.move[t, m] = self.binary(f"m{t:06d}_{m:03d}")
                        wanted[Place(t, move.transition.source)] = None
                        grown = True

    def _objective(self, objective: str, adjoints: Terms) -> None:
        """Microseconds of all choices, moves and adjoints, or the peak in MiB."""
        if objective == "memory":
            self.peak = self.continuous("peak")
            self.minimise([(self.peak, 1.0)])
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
        self.minimise(terms + adjoints)

    def _one_choice(self) -> None:
        """one: every block takes one choice."""
        for row in self.z:
            self.add([(variable, 1.0) for variable in row], "==", 1.0)

    def _reads(self) -> None:
        """read: who reads a tensor in a state finds it there."""
        for place, readers in self.readers.items():
            if self._free(place):
                continue
            copy = self._copy(place, -1.0)
            for _, group in itertools.groupby(readers, key=lambda reader: reader[0]):
                self.add([(self.z[b][k], 1.0) for b, k, _ in group] + copy, "<=", 0.0)
        for place in self.required:
            if not self._free(place):
                self.add(self._copy(place, 1.0), ">=", 1.0)

    def _free(self, place: Place) -> bool:
        return place.state in self.problem.tensors[place.tensor].loadable or place in self.always

    def _copy(self, place: Place, factor: float) -> Terms:
        """The expression copy[t,s], times a factor."""
        terms = [(variable, factor) for variable in self.given.get(place, [])]
        for m, move in enumerate(self.problem.tensors[place.tensor].moves):
            if move.transition.target == place.state and (place.tensor, m) in self.move:
                terms.append((self.move[place.tensor, m], factor))
        return terms

    def _ways(self) -> None:
        """Source and way: a move starts where the tensor is, and is one that `states.way` takes."""
        for (t, m), variable in self.move.items():
            step = self.problem.tensors[t].moves[m].transition
            source, target = Place(t, step.source), Place(t, step.target)
            if not self._free(source):
                self.add([(variable, 1.0), *self._copy(source, -1.0)], "<=", 0.0)
            if step.target in ("R", "H") and target not in self.required:
                need = [(self.z[b][k], -1.0) for b, k, _ in self.readers.get(target, [])]
                self.add([(variable, 1.0), *need], "<=", 0.0)
            better = {("O", "H"): Place(t, "R"), ("R", "O"): Place(t, "H")}
            other = (
                self._copy(better[step.source, step.target], 1.0)
                if ((step.source, step.target) in better)
                else []
            )
            if other:
                self.add([(variable, 1.0), *other], "<=", 1.0)

    def _crossings(self) -> Terms:
        """cross: an adjoint happens where a gradient crosses. Returns the adjoints' terms of the objective.

        Where all readers of a tensor differentiate it, or none does, no variable is needed.
        """
        kinds: dict[int, dict[bool, None]] = {}
        for place, readers in self.readers.items():
            kinds.setdefault(place.tensor, {}).update({crosses: None for _, _, crosses in readers})
        for place, crosses in self.required.items():
            kinds.setdefault(place.tensor, {})[crosses] = None
        terms: Terms = []
        for (t, m), variable in self.move.items():
            seconds = self.problem.tensors[t].moves[m].adjoint_seconds * MICRO
            if list(kinds[t]) == [True]:
                terms.append((variable, seconds))
            elif True in kinds[t]:
                self.cross[t, m] = self.continuous(f"c{t:06d}_{m:03d}")
                terms.append((self.cross[t, m], seconds))
        for (t, m), crossed in self.cross.items():
            variable = self.move[t, m]
            target = self.problem.tensors[t].moves[m].transition.target
            readers = [reader for reader in self.readers.get(Place(t, target), []) if reader[2]]
            for _, group in itertools.groupby(readers, key=lambda reader: reader[0]):
                reads = [(self.z[b][k], 1.0) for b, k, _ in group]
                self.add([(variable, 1.0), *reads, (crossed, -1.0)], "<=", 1.0)
            if self.required.get(Place(t, target)):
                self.add([(variable, 1.0), (crossed, -1.0)], "<=", 0.0)
            for n, onward in enumerate(self.problem.tensors[t].moves):
                if onward.transition.source == target and (t, n) in self.cross:
                    later = self.cross[t, n]
                    self.add([(variable, 1.0), (later, 1.0), (crossed, -1.0)], "<=", 1.0)
        return terms

    def _sharded(self) -> None:
        """shard: at least one choice that is marked as sharded is taken."""
        terms = [
            (variable, 1.0)
            for row, choices in zip(self.z, self.problem.blocks, strict=True)
            for variable, choice in zip(row, choices, strict=True)
            if choice.sharded
        ]
        self.add(terms, ">=", 1.0)

    def tighten(self, evaluation: Evaluation) -> bool:
        """Add the memory rows that a solution violates; False where it violates none that is missing."""
        return self.memory is not None and self.memory.tighten(evaluation)

    def run(self, limits: SolverLimits, *, integer: bool) -> RawAnswer:
        """Call HiGHS; values and bounds in seconds, or in bytes."""
        raw = self.call(limits, integer=integer)
        return replace(raw, value=self._scaled(raw.value), bound=self._scaled(raw.bound))

    def _scaled(self, value: float) -> float:
        """An objective value in seconds, or in bytes."""
        return value * MIB if self.peak is not None else value / MICRO + self.problem.fixed_seconds

    def integral(self) -> bool:
        """Whether the last values of all z and move are whole numbers."""
        variables = (*itertools.chain.from_iterable(self.z), *self.move.values())
        return all(abs(x - round(x)) < INTEGRAL for x in map(self.value, variables))

    def assignment(self) -> tuple[int, ...]:
        """The choice of each block in the last values."""
        return tuple(max(range(len(row)), key=lambda k: self.value(row[k])) for row in self.z)
