"""Candidates of one group: ``single`` on each kind of device, ``data`` on all devices and on fewer. Each gets a price or a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from autoplan.device import Cluster
from autoplan.graphstats import GraphStats, PartitionStats
from autoplan.opgraph import GRAPH, OpGraph
from autoplan.plan import PlannedTransition, Strategy
from autoplan.pricing.fixed import fixed_costs
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor, memory_model, static_memory
from autoplan.pricing.moves import PricedMove
from autoplan.pricing.table import Pricer, price_table
from autoplan.search.blocks import heaviest_inputs
from autoplan.search.check import buffers, presence
from autoplan.search.ilp import solve as solve_programme
from autoplan.search.infeasible import MIB, Shortage, model_too_large, short_of_memory, too_large
from autoplan.search.local import HEAVY
from autoplan.search.optimise import optimise
from autoplan.search.problem import NoChoice, Problem, build_problem
from autoplan.search.result import Candidate, SearchOptions
from autoplan.search.solution import Solution, SolverError, SolverLimits
from autoplan.simulate import simulate

MOST_TRIES = 20
"""So many ops are tried as the one whose rows must be shared out, the costliest first."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be planned; see `autoplan.search.solve` for each."""

    graph: OpGraph
    stats: GraphStats
    cluster: Cluster
    pricer: Pricer
    parameters: tuple[ModelTensor, ...]
    optimizer: str
    objective: Literal["time", "memory"]
    training: bool
    denied: Mapping[int, frozenset[str]]
    options: SearchOptions

    @property
    def whole_units(self) -> bool:
        """Whether ``data`` shares out whole graphs: where a step has several."""
        return self.stats.unit == "graph" and self.stats.units > 1

    @property
    def cuts(self) -> Mapping[int, PartitionStats]:
        """The partitions that ``data`` uses, by number of parts: along whole graphs where there are several."""
        return self.stats.closed if self.whole_units else self.stats.partitions


def one_group_candidates(task: Task) -> tuple[Candidate, ...]:
    """``single`` and ``data``, in a fixed order: single devices first, then data on ever fewer devices."""
    families = task.options.families
    found = []
    if "single" in families:
        found += [single(task, rank) for rank in _distinct(task.cluster)]
    if "data" in families:
        everyone = len(task.cluster.devices)
        counts = [everyone]
        if task.options.fewer_devices:
            # closed partitions are measured for pipelines, too
            measured = task.stats.partitions or task.stats.closed
            fewer = [count for count in measured if 1 < count < everyone]
            counts += sorted(fewer, reverse=True)
        found += [data(task, count) for count in counts]
    return tuple(found)


def _distinct(cluster: Cluster) -> tuple[int, ...]:
    """The first device of each kind and size."""
    seen: dict[tuple[str, int | None], int] = {}
    for rank, device in enumerate(cluster.devices):
        seen.setdefault((device.profile.name, device.memory_bytes), rank)
    return tuple(seen.values())


def single(task: Task, rank: int) -> Candidate:
    """The whole program on one device."""
    device = task.cluster.devices[rank]
    name = f"single on {device.name}" if len(task.cluster.devices) > 1 else "single"
    return _search(task, name, "single", Group(task.cluster, (rank,), None))


def data(task: Task, count: int) -> Candidate:
    """Nodes and edges shared out over the first ``count`` devices."""
    everyone = len(task.cluster.devices)
    name = (
        f"data on {count} devices"
        if count == everyone
        else f"data on {count} of {everyone} devices"
    )
    ranks = tuple(range(count))
    reason = data_refused(task, count)
    if reason is not None:
        return Candidate(name, "data", ranks, reason=reason)
    found = _search(task, name, "data", Group(task.cluster, ranks, task.cuts[count]))
    return replace(found, closed=task.cuts[count].closed)


def data_refused(task: Task, count: int) -> str | None:
    """Why the rows cannot be shared out between so many devices, before anything is priced."""
    if count < 2:
        return "data needs at least two devices, there is one"
    nodes = task.stats.nodes
    if nodes < count:
        return _too_few(nodes, "node", count)
    reason = not_shareable(task)
    if reason is not None:
        return reason
    if count in task.cuts:
        return None
    if GRAPH in task.stats.rows and task.stats.units < count:
        return _too_few(task.stats.units, "graph", count)
    return f"the graph has not been cut into {count} parts"


def _too_few(units: int, unit: str, devices: int) -> str:
    """Fewer than there are devices: what to do."""
    there = f"there is 1 {unit}" if units == 1 else f"there are {units} {unit}s"
    step, larger = (" in a step", " or more graphs a step") if unit == "graph" else ("", "")
    remedy = "strategy='single'" if units == 1 else f"at most {units} devices"
    verb = "use" if units == 1 else "give"
    return f"{there}{step} to share out over {devices} devices; {verb} {remedy}{larger}"


def not_shareable(task: Task) -> str | None:
    """Why no op can run on a part of the rows."""
    graph = task.graph
    if graph.single_only is not None:
        return f"the program must run on one device: {graph.single_only}"
    if graph.generality == "concrete":
        return f"no op can run on a part of the rows: the trace is concrete ({graph.reason})"
    if not any(s.rows != "R" for op in graph.ops for s in op.strategies):
        return f"no op can run on a part of the rows{_culprits(task)}"
    return None


def _culprits(task: Task) -> str:
    unknown = list(dict.fromkeys(op.name for op in task.graph.unknown_ops))
    parts = []
    if unknown:
        more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        parts.append(f"no rule covers {', '.join(unknown[:4])}{more}")
    rejected = [op for op in task.graph.ops if task.denied.get(op.index)]
    if rejected:
        names = ", ".join(dict.fromkeys(op.name for op in rejected))
        parts.append(f"the lock-step check rejected strategies of {names}")
    return f": {'; '.join(parts)}" if parts else ""


def with_needs(task: Task, candidate: Candidate) -> Candidate:
    """A candidate that was rejected before its activations were counted, with the memory that it takes in all."""
    if candidate.suffices or candidate.strategy not in ("single", "data"):
        return candidate
    cut = task.cuts[len(candidate.ranks)] if candidate.strategy == "data" else None
    group = Group(task.cluster, candidate.ranks, cut)
    found = _search(task, candidate.name, candidate.strategy, group, early=False)
    if found.needs is None:
        return candidate
    reason = f"{candidate.reason}; with activations {found.needs / MIB:.1f} MiB"
    return replace(candidate, reason=reason, needs=found.needs, suffices=found.suffices)


def _search(
    task: Task, name: str, strategy: Strategy, group: Group, *, early: bool = True
) -> Candidate:
    """Price the group, choose strategies, simulate; ``early``: not where the model alone does not fit."""
    room = task.options.head_room
    kinds = {device.profile.kind for device in group.devices}
    static = static_memory(task.parameters, task.optimizer, training=task.training, kinds=kinds)
    short = too_large(task.parameters, task.cluster.devices, room) or model_too_large(
        static, task.optimizer, group.devices, room
    )
    if short is not None and early:
        return rejected(name, strategy, group.ranks, short)
    table = price_table(task.graph, task.stats, group, task.pricer, training=task.training)
    memory = memory_model(task.graph, task.stats, group, static, training=task.training)
    fixed = fixed_costs(task.parameters, task.optimizer, group, task.pricer, training=task.training)
    capacities = [device.memory_bytes for device in group.devices]
    limits = [None if c is None else c * (1 - room) for c in capacities]
    try:
        problem = build_problem(
            task.graph,
            task.stats,
            group,
            table,
            task.pricer,
            memory,
            training=task.training,
            denied=task.denied,
            limits=limits,
            fixed_seconds=fixed.seconds,
        )
    except NoChoice as none_left:
        return Candidate(name, strategy, group.ranks, reason=str(none_left))
    share = strategy == "data"
    if share and not any(c.sharded for choices in problem.blocks for c in choices):
        reason = f"nothing can run on a part of the rows{_culprits(task)}"
        return Candidate(name, strategy, group.ranks, reason=reason)
    solution = _optimise(task, group, problem, share=share)
    if solution.assignment is None or solution.evaluation is None:
        short = _why_not(task, group, problem, solution, share=share)
        return rejected(name, strategy, group.ranks, short)
    choices = dict(
        pick
        for block, number in enumerate(solution.assignment)
        for pick in problem.blocks[block][number].picks
    )
    found = solution.evaluation
    moves = [(problem.priced[m.tensor][m.move], m.crossed) for m in found.moves]
    sheets = memory.sheets(
        *presence(problem, solution.assignment, found.moves, found.loads),
        buffers(problem, found.moves),
        capacities,
        room,
    )
    simulation = simulate(task.graph, table, choices, moves, fixed, sheets)
    expected, simulated = solution.evaluation.seconds, simulation.prediction.step_seconds.value
    if abs(expected - simulated) > 1e-9 + 1e-6 * simulated:
        raise SolverError(f"{name}: the search counts {expected} s, the simulator {simulated} s")
    return Candidate(
        name,
        strategy,
        group.ranks,
        threads=group.threads,
        choices=choices,
        transitions=_planned(task.graph, moves),
        inputs=_inputs(task, problem, solution),
        prediction=simulation.prediction,
        memory=sheets,
        timeline=simulation.timeline,
        status=solution.plan_status,
        gap=solution.gap,
        lower_bound_seconds=solution.bound if task.objective == "time" else None,
        deterministic=solution.deterministic,
    )


def rejected(name: str, strategy: Strategy, ranks: tuple[int, ...], short: Shortage) -> Candidate:
    """A candidate that does not fit."""
    return Candidate(
        name,
        strategy,
        ranks,
        reason=short.reason,
        needs=short.capacity,
        suffices=short.exact,
    )


def _optimise(task: Task, group: Group, problem: Problem, *, share: bool) -> Solution:
    """The optimum; for ``data`` among the plans that share out every heavy op that a rule admits on a part of the rows.

    Where the states of those ops cannot be had together, among the plans that share out the costliest of them.
    """
    whole = group.rows(task.graph, task.stats, "R")[0]
    sizes = {name: t.bytes.evaluate(whole) for name, t in task.graph.tensors.items()}
    followers = heaviest_inputs(task.graph, problem, sizes)
    limits = _limits(task.options)

    def run(marked: Problem, *, sharded: bool) -> Solution:
        return optimise(
            marked,
            followers=followers,
            objective=task.objective,
            sharded=sharded,
            limits=limits,
        )

    if not share:
        return run(marked_only(problem, None), sharded=False)
    solution = run(marked_only(shared_out(problem, task.graph), None), sharded=False)
    if solution.assignment is not None:
        return in_terms_of(problem, shared_out(problem, task.graph), solution)
    for block in costliest_sharded(problem)[:MOST_TRIES]:
        other = run(marked_only(problem, block), sharded=True)
        if other.assignment is not None:
            return other
    return replace(solution, assignment=None, evaluation=None, status="infeasible")


def shared_out(problem: Problem, graph: OpGraph) -> Problem:
    """The problem where heavy ops run on a part of the rows, as far as they have such a choice."""
    heavy = {op.index for op in graph.ops if op.forward.kind in HEAVY}
    blocks = []
    for choices in problem.blocks:
        sharded = tuple(choice for choice in choices if choice.sharded)
        works = any(op in heavy for choice in choices for op, _ in choice.picks)
        blocks.append(sharded if works and sharded else choices)
    return replace(problem, blocks=tuple(blocks))


def in_terms_of(problem: Problem, narrowed: Problem, solution: Solution) -> Solution:
    """A solution of a problem with fewer choices, by the numbers of the whole problem's choices."""
    assert solution.assignment is not None
    assignment = tuple(
        next(i for i, c in enumerate(choices) if c.picks == narrowed.blocks[block][number].picks)
        for (block, choices), number in zip(
            enumerate(problem.blocks), solution.assignment, strict=True
        )
    )
    return replace(solution, assignment=assignment)


def marked_only(problem: Problem, block: int | None) -> Problem:
    """The problem where no choice is marked as sharded but those of one block."""
    blocks = tuple(
        choices if number == block else tuple(replace(c, sharded=False) for c in choices)
        for number, choices in enumerate(problem.blocks)
    )
    return replace(problem, blocks=blocks)


def costliest_sharded(problem: Problem) -> list[int]:
    """The blocks that can run on a part of the rows, the costliest first."""
    cost = {
        block: max(choice.seconds for choice in choices)
        for block, choices in enumerate(problem.blocks)
        if any(choice.sharded for choice in choices)
    }
    return sorted(cost, key=lambda block: (-cost[block], block))


def _limits(options: SearchOptions) -> SolverLimits:
    return SolverLimits(options.gap, options.node_limit, options.time_limit_seconds)


def _why_not(
    task: Task, group: Group, problem: Problem, solution: Solution, *, share: bool
) -> Shortage:
    if solution.status == "unknown":
        return Shortage(
            f"no solution within {task.options.node_limit} nodes of the search; raise node_limit"
        )
    if problem.limited:
        least = solve_programme(problem, objective="memory", limits=_limits(task.options))
        if least.evaluation is None or not least.evaluation.fits:
            return short_of_memory(
                task.graph, problem, least, group.devices, task.options.head_room
            )
    if share:
        return Shortage(f"sharing rows out leaves no consistent choice of states{_culprits(task)}")
    return Shortage("no choice of strategies satisfies all the states that ops need")


def _planned(
    graph: OpGraph, moves: Sequence[tuple[PricedMove, bool]]
) -> tuple[PlannedTransition, ...]:
    makers = {
        name: f"{op.name.rpartition('.')[0]} in {op.module or 'forward'}"
        for op in graph.ops
        for name in op.outputs
    }
    return tuple(
        PlannedTransition(
            move.tensor,
            move.transition.source,
            move.transition.target,
            move.transition.exchange,
            move.forward_bytes,
            move.backward_bytes if crossed else (0,) * len(move.backward_bytes),
            makers.get(move.tensor, ""),
        )
        for move, crossed in moves
    )


def _inputs(
    task: Task, problem: Problem, solution: Solution
) -> tuple[tuple[str, Literal["R", "O", "H", "S"]], ...]:
    """Graph attributes and the states they are loaded in."""
    assert solution.evaluation is not None
    found = []
    for tensor, state in sorted(solution.evaluation.loads):
        meta = task.graph.tensors[problem.tensors[tensor].name]
        if meta.origin == "input":
            found.append((meta.source or meta.name, state))
    return tuple(found)


def ranking(candidates: Sequence[Candidate], objective: str) -> list[Candidate]:
    """Those with a price, the best first; of equals the one on fewer devices.

    ``model`` computes on one device at a time. It is there for memory: for time it comes after all that fits, however little
    its parallel update makes it cost.
    """

    def key(candidate: Candidate) -> tuple[bool, float, int]:
        assert candidate.prediction is not None
        if objective == "memory":
            value = max(peak.value for peak in candidate.prediction.peak_bytes)
        else:
            value = candidate.prediction.step_seconds.value
        last = objective != "memory" and candidate.strategy == "model"
        return last, value, len(candidate.ranks)

    return sorted((c for c in candidates if c.feasible), key=key)
