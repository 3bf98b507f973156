"""The candidates with stages: ``model``, ``pipeline`` and ``hybrid``. Each gets a price or a reason.

One candidate per number of replicas and stages. Inside, orders of the kinds of devices, numbers of micro-batches and
schedules are tried with the dynamic programme; the integer programme then looks for better cuts of the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoplan.opgraph import OpStrategy
from autoplan.plan import Schedule, Strategy
from autoplan.search.candidates import Task, not_shareable, rejected
from autoplan.search.infeasible import Shortage, stages_too_small, too_large
from autoplan.search.layouts import Layout, Shape, layouts, micro_batch_counts, shapes
from autoplan.search.local import NotLocal, local_strategies, lossy_notes
from autoplan.search.result import Candidate
from autoplan.search.stage_blocks import Blocks, atoms, merged
from autoplan.search.stage_cuts import best_cuts
from autoplan.search.stage_parts import stage_parts
from autoplan.search.stage_price import StagedPlan
from autoplan.search.stage_problem import BALANCE, StageProblem, evaluate_stages, op_stages
from autoplan.search.stage_refine import Cuts, least_possible, refine
from autoplan.search.stage_setting import StagedProgram, stage_problem
from autoplan.simulate_stages import predict_pipeline, run_pipeline
from autoplan.stages import strategies_of, unknown_axes, written_parameters

MOST_BLOCKS = 128
"""Blocks that the dynamic programme cuts between."""
ESTIMATED = 1.1
"""A cut through tensors whose rows only the data decide (edges behind a mask) is worth it where one that avoids them takes so
many times as long, or needs so many times the memory: what the former sends cannot be told before it runs."""

SMALLER = 0.95
"""More micro-batches are tried where the largest one shrinks to this share."""


def stage_candidates(task: Task) -> tuple[Candidate, ...]:
    """Every candidate with stages, in a fixed order."""
    search = _Search(task)
    devices = len(task.cluster.devices)
    wanted = [shape for shape in shapes(devices) if shape.strategy in task.options.families]
    if not task.options.fewer_devices:
        wanted = [shape for shape in wanted if shape.devices >= devices]
    kept = task.options.stage_of
    if kept is not None:
        stages = 1 + max(kept.values())
        wanted = [s for s in wanted if s.stages == stages and s.devices == devices]
    return tuple(search.candidate(shape) for shape in wanted)


@dataclass(frozen=True, slots=True, eq=False)
class _Setting:
    """One way to run a candidate: where and how, the problem, the best contiguous cuts and what they come to (`_measured`)."""

    plan: StagedPlan
    problem: StageProblem
    stage_of: tuple[int, ...]
    seconds: float
    bytes: float

    @property
    def estimated(self) -> bool:
        """Whether only the data decide how much is sent."""
        graph = self.plan.program.graph
        sent = [graph.tensors[crossing.tensor] for crossing in self.plan.crossings]
        return bool(unknown_axes(sent, graph.axes))

    def value(self, objective: str) -> float:
        """What settings are ordered by."""
        worth = self.bytes if objective == "memory" else self.seconds
        return worth * ESTIMATED if self.estimated else worth


class _Search:
    """What the candidates share: blocks, strategies without exchanges, programs by number of parts."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._programs: dict[int, StagedProgram] = {}
        self._local: dict[int, OpStrategy] | str | None = None
        self._atoms: tuple[Blocks, ...] = ()

    def candidate(self, shape: Shape) -> Candidate:
        """The best of its settings, or why there is none."""
        task = self.task
        devices = len(task.cluster.devices)
        name = shape.name(devices)
        ranks = tuple(range(min(shape.devices, devices)))
        reason = self._refused(shape)
        if isinstance(reason, Shortage):
            return rejected(name, shape.strategy, ranks, reason)
        if reason is not None:
            return Candidate(name, shape.strategy, ranks, reason=reason)
        settings: list[_Setting] = []
        short: list[tuple[Layout, StageProblem]] = []
        for layout in self._layouts(shape):
            settings += self._settings(layout, short)
        settings.sort(key=lambda setting: setting.value(task.objective))
        for position, setting in enumerate(settings):
            improve = position == 0 and task.options.stage_of is None
            found = self._candidate(name, shape.strategy, setting, improve=improve)
            if found is not None:
                return found
        first = self._layouts(shape)[0]
        problems = short or [(s.plan.layout, s.problem) for s in settings]
        why = (
            stages_too_small(task.graph, problems, task.options.head_room)
            if problems
            else Shortage(
                f"the program has fewer parts that a cut may separate than {shape.stages} stages"
            )
        )
        return rejected(name, shape.strategy, first.ranks, why)

    def _layouts(self, shape: Shape) -> tuple[Layout, ...]:
        """Where its ranks lie, with every number of micro-batches."""
        cluster = self.task.cluster
        if self.task.options.stage_of is None:
            return layouts(cluster, shape, self._counts(shape))
        ranks = tuple(range(shape.devices))
        return tuple(
            Layout(cluster, ranks, shape.replicas, shape.stages, count)
            for count in self._counts(shape)
        )

    def _counts(self, shape: Shape) -> Sequence[int]:
        """Numbers of micro-batches to try."""
        if shape.strategy == "model":
            return (1,)
        stats = self.task.stats
        asked = self.task.options.micro_batches
        counts = micro_batch_counts(shape.stages, stats.units, shape.replicas, asked)
        there = [count for count in counts if shape.replicas * count in stats.closed]
        if asked is not None:
            return there
        # more micro-batches without a smaller largest one (one component has nearly all nodes) only add to the work
        found: list[int] = []
        least = math.inf
        for count in sorted(there):
            shards = stats.closed[shape.replicas * count].shards
            largest = max(shard.nodes + shard.edges for shard in shards)
            if largest < least * SMALLER:
                found.append(count)
                least = largest
        return found

    def _refused(self, shape: Shape) -> str | Shortage | None:
        """Why there can be no such plan, before anything is priced."""
        task = self.task
        if task.graph.single_only is not None:
            return f"the program must run on one device: {task.graph.single_only}"
        if written := written_parameters(task.graph):
            return (
                f"forward writes the parameter {written[0].removeprefix('model.')} in place, which one stage would have to hand to others; "
                "use strategy='data', or write it between steps"
            )
        if task.graph.generality == "concrete":
            return f"the trace is concrete ({task.graph.reason}), so that only plain PyTorch on one device runs it"
        devices = len(task.cluster.devices)
        if shape.devices > devices or (shape.strategy == "model" and devices < 2):
            least = {"model": "two", "pipeline": "two", "hybrid": "four"}[shape.strategy]
            there = "there is one" if devices == 1 else f"there are {devices}"
            return f"{shape.strategy} needs at least {least} devices, {there}"
        large = too_large(task.parameters, task.cluster.devices, task.options.head_room)
        if large is not None:
            return large
        if shape.strategy == "model":
            return None
        if task.stats.units < 2 and task.stats.unit == "graph":
            return (
                "a step takes one graph, which cannot be cut into micro-batches without losing edges; "
                "give more graphs a step, or use strategy='model' (stages, one micro-batch)"
            )
        if task.stats.units < 2:
            return (
                "one connected graph cannot be cut into micro-batches without losing edges; "
                "use strategy='model' (stages, one micro-batch) or 'data'"
            )
        if not self._counts(shape):
            return self._too_few_units(shape)
        local = self._local_strategies()
        return local if isinstance(local, str) else None

    def _too_few_units(self, shape: Shape) -> str:
        """Why none of the numbers of micro-batches can be had."""
        stats, asked = self.task.stats, self.task.options.micro_batches
        if len(self.task.cluster.devices) == 1:
            return "pipeline needs at least two devices, there is one"
        if asked is not None and max(asked) == 1 and shape.replicas == 1:
            return "a pipeline of one micro-batch is strategy='model'; ask for two micro-batches or more"
        each = f" for each of {shape.replicas} replicas" if shape.replicas > 1 else ""
        wanted = f"{min(asked)} micro-batches{each}" if asked else f"{shape.replicas} replicas"
        fewer = "fewer micro-batches, " if asked else ""
        return (
            f"{stats.units} {stats.unit}s in a step are too few for {wanted}; "
            f"give {fewer}more {stats.unit}s a step, or use strategy='model' (stages, one micro-batch)"
        )

    def _local_strategies(self) -> dict[int, OpStrategy] | str:
        if self._local is None:
            reason = not_shareable(self.task)
            try:
                self._local = reason or local_strategies(self.task.graph, self.task.denied)
            except NotLocal as found:
                self._local = self._lossy_strategies() or str(found)
        return self._local

    def _lossy_strategies(self) -> dict[int, OpStrategy] | None:
        """With ``exact=False``, strategies some of which have numbers of their own."""
        if self.task.options.exact:
            return None
        try:
            return local_strategies(self.task.graph, self.task.denied, lossy=True)
        except NotLocal:
            return None

    def _program(self, parts: int) -> StagedProgram:
        if parts not in self._programs:
            task = self.task
            if parts == 1:
                strategies = strategies_of(task.graph, {})
            else:
                local = self._local_strategies()
                assert not isinstance(local, str)
                strategies = local
            self._programs[parts] = StagedProgram(
                task.graph,
                task.stats,
                task.stats.closed[parts] if parts > 1 else None,
                strategies,
                task.parameters,
                task.optimizer,
                task.training,
            )
        return self._programs[parts]

    def _settings(
        self, layout: Layout, short: list[tuple[Layout, StageProblem]]
    ) -> Iterator[_Setting]:
        """Settings of each schedule; where memory does not suffice, the problem joins ``short``."""
        task = self.task
        program = self._program(layout.parts)
        prices = program.price(layout.kinds()[0], task.pricer)
        seconds = prices.forward[0].mean(axis=(0, 2)) + prices.backward[0].mean(axis=(0, 2))
        schedules: tuple[Schedule, ...] = (
            task.options.schedules if layout.micro_batches > 1 else ("gpipe",)
        )
        choices = [b for b in self._blocks(seconds) if len(b) >= layout.stages]
        for schedule in schedules:
            best = math.inf
            for number, blocks in enumerate(choices):
                problem = stage_problem(
                    program, layout, blocks, prices, schedule, task.options.head_room
                )
                # what crosses freely must make up for what cannot be told of it
                if least_possible(problem, task.objective) * ESTIMATED >= best:
                    continue
                cuts = self._kept(blocks) or best_cuts(problem, objective=task.objective)
                if cuts is None:
                    if number == len(choices) - 1 and best == math.inf:
                        short.append((layout, problem))
                    continue
                found = evaluate_stages(problem, cuts)
                best = max(found.bytes) if task.objective == "memory" else found.seconds
                plan = StagedPlan(program, layout, prices, schedule, op_stages(problem, cuts))
                yield _Setting(plan, problem, cuts, *_measured(plan, problem, cuts))

    def _kept(self, blocks: Blocks) -> tuple[int, ...] | None:
        """The stage of each block, where the plan's cut is kept."""
        kept = self.task.options.stage_of
        return None if kept is None else tuple(kept[ops[0]] for ops in blocks)

    def _blocks(self, seconds: Sequence[float]) -> tuple[Blocks, ...]:
        """Blocks between which only tensors of known sizes pass, and those between which any may, where these are others."""
        graph = self.task.graph
        if not self._atoms:
            free = atoms(graph)
            kept = self.task.options.stage_of is not None
            self._atoms = (
                (free,) if kept else tuple(dict.fromkeys((atoms(graph, known=True), free)))
            )
        if self.task.options.stage_of is not None:
            return self._atoms
        cost = {op.index: float(s) for op, s in zip(graph.ops, seconds, strict=True)}
        modules = {op.index: op.module for op in graph.ops}
        return tuple(merged(blocks, cost, modules, MOST_BLOCKS) for blocks in self._atoms)

    def _candidate(
        self, name: str, strategy: Strategy, setting: _Setting, *, improve: bool
    ) -> Candidate | None:
        """The candidate of one setting, or None where its memory does not suffice after all."""
        task, plan = self.task, setting.plan
        cuts = Cuts(setting.problem, setting.stage_of)
        exact = setting.problem.blocks in self._atoms
        if improve:
            graph = task.graph
            cuts = refine(
                cuts,
                {op.index: op.module for op in graph.ops},
                objective=task.objective,
                options=task.options,
                exact=exact,
            )
            other = replace(plan, stage_of=op_stages(cuts.problem, cuts.stage_of))
            if _better(replace(setting, plan=other), cuts, setting, task.objective):
                plan = other
        costs = plan.costs(task.pricer)
        sheets = plan.sheets(task.options.head_room)
        room = 1 - task.options.head_room
        if any(s.capacity is not None and s.peak > s.capacity * room * (1 + 1e-6) for s in sheets):
            return None
        prediction, run = predict_pipeline(costs, sheets, plan.payload(costs))
        parts = stage_parts(plan, sheets, run)
        return Candidate(
            name,
            strategy,
            plan.layout.ranks,
            threads=plan.layout.group.threads,
            choices={op: chosen.name for op, chosen in plan.program.strategies.items()},
            transitions=tuple(step for part in parts for step in part.transitions),
            inputs=tuple(dict.fromkeys(each for part in parts for each in part.inputs)),
            prediction=prediction,
            memory=sheets,
            timeline=run.entries,
            stage_of=plan.stage_of,
            stages=parts,
            schedule=plan.schedule,
            micro_batches=plan.layout.micro_batches,
            replicas=plan.layout.replicas,
            bubble=run.bubble,
            closed=plan.layout.parts > 1,
            lossy=lossy_notes(task.graph, plan.program.strategies),
            status=cuts.status,
            gap=cuts.gap,
        )


def _measured(
    plan: StagedPlan, problem: StageProblem, stage_of: Sequence[int]
) -> tuple[float, float]:
    """Simulated seconds of the passes, and bytes of the fullest stage.

    With one micro-batch the slowest stage counts once more (`BALANCE`).
    """
    found = evaluate_stages(problem, stage_of)
    seconds = run_pipeline(plan.costs(None)).seconds
    if plan.layout.micro_batches == 1:
        seconds += BALANCE * max(found.tau)
    return seconds, max(found.bytes)


def _better(found: _Setting, cuts: Cuts, than: _Setting, objective: str) -> bool:
    """Whether other cuts of the same setting are better."""
    seconds, used = _measured(found.plan, cuts.problem, cuts.stage_of)
    value = replace(found, seconds=seconds, bytes=used).value(objective)
    return value < than.value(objective) * (1 - 1e-9)
