"""A plan with the model and the graph it was made for: ready to step, train and be verified (torch)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from autoplan.device import Cluster
from autoplan.errors import InfeasibleError, PlanError
from autoplan.execute.loop import audited_steps
from autoplan.execute.optimizers import OptimizerSpec
from autoplan.execute.payload import step_payload
from autoplan.execute.train import TrainResult
from autoplan.graphspec import GraphSpec
from autoplan.partition.halo import Shard
from autoplan.plan import PlanData
from autoplan.planner.arrangement import Arrangement, RankGroup
from autoplan.planner.check import state_of
from autoplan.planner.choose import choose
from autoplan.planner.double import default_of, in_double, is_widened
from autoplan.planner.eager import eager_step, eager_train
from autoplan.planner.held import check_attributes, check_program, hold_to_graph
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import Source, source_as_planned
from autoplan.planner.stepping import StepOutcome, outcome
from autoplan.planner.steps import (
    check_sizes,
    check_whole,
    measure,
    sent_in_step,
    shards_of_step,
    trace_source,
)
from autoplan.planner.training import Planned, train
from autoplan.planner.verify import Verification, compare, compare_eager, own_error
from autoplan.planner.workload import (
    StepRequest,
    Workload,
    cast,
    check_on_graph,
    free_of_rows,
    make_workload,
)
from autoplan.plugins import registry
from autoplan.presence import require_present
from autoplan.search import SearchOptions
from autoplan.trace.scope import AnyGraph
from autoplan.trace.step import Metrics


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A plan that fits its model and graph.

    Attributes:
        data: the plan; cluster: its devices; request: how the step was made.
        model: the user's; source: the user's graph or graphs.
        workload: the training step, traced again; measured: everything as one graph, cut as the plan cuts.
    """

    data: PlanData
    cluster: Cluster
    request: StepRequest
    model: nn.Module
    source: Source
    workload: Workload
    measured: MeasuredGraph

    @property
    def arrangement(self) -> Arrangement:
        """Who computes what."""
        return Arrangement.of_plan(self.data)

    @property
    def used(self) -> Cluster:
        """The devices that the plan uses, in rank order."""
        devices = tuple(self.cluster.devices[use.position] for use in self.data.devices)
        return replace(self.cluster, devices=devices)

    def step(self, *, training: bool, seed: int) -> StepOutcome:
        """One step without an update; in evaluation mode outputs only."""
        planned = Planned(self.workload, self.arrangement)
        if not training:
            planned = self._evaluation(None)
        if not planned.workload.shardable:
            return eager_step(planned.workload, self.source.whole, seed=seed)
        if training:
            check_whole(self.workload, self.source)
        arrangement = planned.arrangement
        shards = self.measured.shards(arrangement.parts, closed=arrangement.closed)
        group = arrangement.group(planned.workload, shards, self.measured.tensors)
        return outcome(planned.workload, group.step(*state_of(planned.workload), seed=seed))

    def train(
        self,
        *,
        optimizer: OptimizerSpec,
        epochs: int,
        seed: int,
        metrics: Metrics | None,
        evaluate_every: int | None,
        progress: bool,
    ) -> TrainResult:
        """See `autoplan.api.Plan.train`."""
        require_present(self.used)
        evaluation = self._evaluation(metrics) if metrics else None
        recorded = evaluation is None or evaluation.workload.shardable
        arrangement = self.arrangement
        if not recorded and arrangement.workers > 1:
            opgraph = evaluation.workload.opgraph if evaluation is not None else None
            why = opgraph and (opgraph.reason or opgraph.single_only)
            raise PlanError(
                f"metrics {', '.join(metrics or ())} cannot run on {arrangement.workers} workers: {why}; "
                "compute them from plan.predict(model, graph) after training"
            )
        if not (self.workload.shardable and recorded):
            return eager_train(
                self.model,
                self.source,
                self.workload,
                evaluation.workload if evaluation is not None else None,
                optimizer=optimizer,
                epochs=epochs,
                seed=seed,
                evaluate_every=evaluate_every,
                progress=progress,
            )
        return train(
            self.model,
            self.source,
            self.measured,
            Planned(self.workload, arrangement),
            evaluation,
            optimizer=optimizer,
            epochs=epochs,
            seed=seed,
            evaluate_every=evaluate_every,
            planned_bytes=self._counted_bytes(epochs, seed),
            progress=progress,
            device=self.used.devices[0].profile.torch_device or "cpu",
        )

    def _counted_bytes(self, epochs: int, seed: int) -> tuple[int, ...] | None:
        """What each rank is to hand to others in the step of a run that is counted; None where the plan can only estimate it.

        Raises:
            GuardError: a step of the run needs another program.
        """
        if not self.source.streamed:
            estimated = self.data.pipeline is not None and not self._sent_by_stages(
                self.measured.shards(self.arrangement.parts, closed=self.arrangement.closed)
            )
            return None if estimated else self.data.predicted.communication_bytes
        steps = epochs * self.source.order(seed).steps_per_epoch
        check_sizes(self.workload, self.source, seed=seed, steps=steps)
        counted, _ = audited_steps(steps)
        shards = shards_of_step(self.source, counted, seed, self.arrangement.parts)
        if self.data.pipeline is not None:
            return self._sent_by_stages(shards)
        return sent_in_step(self.data, self.workload, self.used, shards)

    def _sent_by_stages(self, shards: Sequence[Shard]) -> tuple[int, ...] | None:
        """What the ranks of stages send in one step; None where only the data decide how large what crosses is."""
        arrangement = self.arrangement
        assert arrangement.pipeline is not None
        parameters, _ = state_of(self.workload)
        return step_payload(
            arrangement.programs(self.workload),
            shards,
            parameters,
            replicas=arrangement.pipeline.replicas,
        )

    def verify(self, *, steps: int, seed: int) -> Verification:
        """See `autoplan.planner.verify`; of many graphs, as many batches of the first epoch one after the other."""
        if not self.workload.shardable:
            return compare_eager(self.workload, self.source.graph(0, seed), seed=seed)
        double = in_double(self.model, self.source.whole, self.workload)
        if self.source.streamed or self.workload.traced.schema.several_types:
            double = free_of_rows(double)
        check_sizes(self.workload, self.source, seed=seed, steps=steps)
        own = self.workload if is_widened(double, self.workload) else None
        with default_of(double):
            result = compare(
                double, self._groups(double, steps, seed), seed=seed, eager=own is None
            )
        if own is None:
            return result
        graph = self.source.graph(0, seed)
        return result.with_eager(own_error(own, graph))

    def _groups(
        self, double: Workload, steps: int, seed: int
    ) -> Iterator[tuple[RankGroup, RankGroup]]:
        """For each step one rank, and the plan's ranks, with the step's graph in float64."""
        schema, arrangement = self.workload.traced.schema, self.arrangement
        for step in range(steps):
            if self.source.streamed or not step:
                graph = self.source.graph(step, seed)
                tensors = {
                    name: cast(tensor.detach(), torch.float64)
                    for name, tensor in zip(schema.names, schema.tensors(graph), strict=True)
                }
                one, many = (
                    shards_of_step(self.source, step, seed, parts)
                    if self.source.streamed
                    else self.measured.shards(parts, closed=closed)
                    for parts, closed in ((1, False), (arrangement.parts, arrangement.closed))
                )
                alone = Arrangement({}).group(double, one, tensors)
                together = arrangement.group(double, many, tensors)
            yield alone, together

    def _evaluation(self, metrics: Metrics | None) -> Planned:
        """The evaluation step, with strategies for the plan's devices; replicated where nothing can be sharded."""
        request = StepRequest(None, False, metrics, self.request.inputs)
        workload = check_on_graph(
            make_workload(self.model, self.source.whole, self.source.request(request)),
            self.source.whole,
        )
        arrangement = self.arrangement
        if arrangement.workers == 1 or not workload.shardable:
            return Planned(workload, Arrangement({}))
        if arrangement.pipeline is not None:
            return Planned(workload, arrangement.evaluating(self.workload, workload))
        with contextlib.suppress(InfeasibleError):
            choice = choose(
                self.model,
                self.source.whole,
                workload,
                self.measured,
                self.used,
                registry().cost_models,
                optimizer="none",
                strategy="data",
                objective="time",
                options=SearchOptions(families=("single", "data")),
            )
            best = choice.result.best
            if len(best.ranks) == arrangement.workers:
                return Planned(workload, Arrangement.of_candidate(best))
        return Planned(workload, Arrangement({}, arrangement.workers))


def bind_plan(
    data: PlanData,
    cluster: Cluster,
    request: StepRequest,
    model: nn.Module,
    graph: object,
) -> Bound:
    """Traces the model again and holds it to the plan.

    Raises:
        PlanError: the model's program or the graph is not the plan's.
        TraceError: the model or loss fails on the graph.
    """
    check_runs(data, graph)
    source = source_as_planned(graph, data.batch, request.inputs)
    workload = trace_source(model, source, request)
    seed = 0 if data.partition is None else data.partition.seed
    measured = cut_for(source.whole, workload, Arrangement.of_plan(data), seed=seed)
    if measured.fingerprint != data.fingerprints.graph:
        check_attributes(data, measured)
        raise PlanError(
            f"the plan was made for another graph: {_graph_difference(data, measured)}; "
            "plan.rebind(graph) keeps its strategies and measures and prices them for this graph, "
            "autoplan.optimize plans again"
        )
    check_program(data, workload)
    priced = measured
    if source.streamed and data.partition is not None:
        priced = cut_for(source.typical, workload, Arrangement.of_plan(data), seed=seed)
    hold_to_graph(data, source, priced)
    return Bound(data, cluster, request, model, source, workload, measured)


def check_runs(data: PlanData, graph: object) -> None:
    """Raises PlanError where plan or graph is of sizes alone: neither runs."""
    if isinstance(graph, GraphSpec):
        raise PlanError(
            f"{graph.name} is a GraphSpec, sizes without a graph, on which nothing runs; load the graph, and "
            "plan.rebind(graph) makes a plan that runs"
        )
    if data.planning_only:
        raise PlanError(
            "the plan is for planning only: it was made for a GraphSpec, sizes without a graph; "
            "plan.rebind(graph) keeps its strategies and measures, cuts and prices this graph"
        )


def cut_for(
    graph: AnyGraph, workload: Workload, arrangement: Arrangement, *, seed: int
) -> MeasuredGraph:
    """A graph, cut into the parts that an arrangement has."""
    if not arrangement.closed:
        return measure(graph, workload, (arrangement.parts,), seed=seed)
    return measure(graph, workload, (), seed=seed, closed_parts=lambda units: (arrangement.parts,))


def _graph_difference(data: PlanData, measured: MeasuredGraph) -> str:
    """What of a graph with the plan's attributes is not the plan's: its sizes, or where its edges lie."""
    planned, rows = dict(data.graph_rows), measured.schema.rows
    sizes = [
        f"{planned.get(axis)} rows of axis {axis!r}, here {rows.get(axis)}"
        for axis in sorted({*planned, *rows})
        if planned.get(axis) != rows.get(axis)
    ]
    if sizes:
        return "it had " + ", ".join(sizes)
    return "its sizes are the same, its edges or listed nodes are not"
