"""What a program cut into stages costs: its step played by the simulator, its memory, and the parts that a plan is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoplan.opgraph import State
from autoplan.plan import MemorySheet, PlannedTransfer, PlannedTransition, Schedule
from autoplan.pricing.collectives import all_reduce_seconds
from autoplan.pricing.fixed import fixed_costs
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor, static_memory
from autoplan.pricing.parts import FloatArray, PartPrices, message_bytes, send_seconds, spread
from autoplan.pricing.stage_memory import stage_graph, stage_sheet
from autoplan.pricing.table import Pricer
from autoplan.schedule import in_flight
from autoplan.search.local import local_transitions
from autoplan.search.result import StagePart
from autoplan.search.stage_setting import Layout, StagedProgram
from autoplan.simulate_stages import Arrival, GradientSum, PipelineCosts
from autoplan.stages import Crossing, crossings, reads
from autoplan.states import way


@dataclass(frozen=True, slots=True, eq=False)
class StagedPlan:
    """A program on a layout with an assignment of ops to stages.

    Attributes:
        program, layout, prices (of the layout's kinds of workers), schedule.
        stage_of: op index -> stage.
    """

    program: StagedProgram
    layout: Layout
    prices: PartPrices
    schedule: Schedule
    stage_of: Mapping[int, int]

    def crossings(self) -> tuple[Crossing, ...]:
        """What goes from stage to stage."""
        choices = {op: strategy.name for op, strategy in self.program.strategies.items()}
        return crossings(self.program.graph, choices, self.stage_of)

    def ops(self, stage: int) -> frozenset[int]:
        """Indices of a stage's ops."""
        return frozenset(op for op, where in self.stage_of.items() if where == stage)

    def sources(self, stage: int) -> tuple[str, ...]:
        """Names in the step of what a stage reads of the model: parameters, buffers, plain tensors; in program order."""
        tensors = self.program.graph.tensors
        needed = reads(self.program.graph)
        found: dict[str, None] = {}
        for op in self.program.graph.ops:
            if self.stage_of[op.index] == stage:
                for name in needed[op.index]:
                    meta = tensors.get(name)
                    if meta is not None and meta.origin in ("parameter", "buffer") and meta.source:
                        found[meta.source] = None
        return tuple(found)

    def model_tensors(self, stage: int) -> tuple[ModelTensor, ...]:
        """Parameters and buffers that a stage holds, each once, in the model's order."""
        own = [self.program.model_tensor(source) for source in self.sources(stage)]
        names = {tensor.name for tensor in own if tensor is not None}
        return tuple(t for t in self.program.parameters if t.name in names)

    def message(self, crossing: Crossing) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """[V] bytes of one tensor on its way."""
        meta = self.program.graph.tensors[crossing.tensor]
        return message_bytes(self.program.graph, meta, crossing.state, self.program.rows)

    def costs(self, pricer: Pricer | None) -> PipelineCosts:
        """What the simulator plays; without a pricer only the passes, not the end of the step."""
        layout = self.layout
        forward, backward = self._compute()
        return PipelineCosts(
            schedule=self.schedule,
            training=self.program.training,
            forward=forward,
            backward=backward,
            arrivals=self._arrivals(),
            sums=self._sums() if pricer is not None else (),
            optimizer=self._optimizer(pricer)
            if pricer is not None
            else np.zeros((3, layout.replicas * layout.stages)),
        )

    def _compute(self) -> tuple[FloatArray, FloatArray]:
        """[3, S, D, m] seconds of each stage with each micro-batch."""
        layout = self.layout
        _, kind_of = layout.kinds()
        shape = (3, layout.stages, layout.replicas, layout.micro_batches)
        forward, backward = np.zeros(shape), np.zeros(shape)
        ops = self.program.graph.ops
        for stage in range(layout.stages):
            mine = [i for i, op in enumerate(ops) if self.stage_of[op.index] == stage]
            for replica in range(layout.replicas):
                kind = kind_of[layout.rank(replica, stage)]
                parts = layout.of_replica(replica)
                for table, into in (
                    (self.prices.forward, forward),
                    (self.prices.backward, backward),
                ):
                    into[:, stage, replica] = table[:, kind, mine, parts].sum(axis=1)
        return forward, backward

    def _arrivals(self) -> tuple[Arrival, ...]:
        layout = self.layout
        shape = (3, layout.replicas, layout.micro_batches)
        found: dict[tuple[int, int], Arrival] = {}
        for crossing in self.crossings():
            key = (crossing.source, crossing.target)
            before = found.get(key)
            there = before.seconds if before else np.zeros(shape)
            back = before.back if before else np.zeros(shape)
            gradient = self.program.training and crossing.gradient
            sizes = self.message(crossing)
            times = np.zeros(shape)
            for replica in range(layout.replicas):
                ends = [layout.ranks[layout.rank(replica, stage)] for stage in key]
                link = layout.cluster.link(*ends)
                times[:, replica] = spread(
                    send_seconds(link, sizes[layout.of_replica(replica)].astype(np.float64))
                )
            found[key] = Arrival(
                *key,
                there + times,
                back + times if gradient else back,
                gradient or (before is not None and before.gradient),
            )
        return tuple(found[key] for key in sorted(found))

    def _sums(self) -> tuple[GradientSum, ...]:
        """Gradients by the set of ranks that hold the parameter, in the order of the parameters."""
        if not self.program.training:
            return ()
        layout = self.layout
        holders: dict[tuple[int, ...], int] = {}
        held = [{t.name for t in self.model_tensors(stage)} for stage in range(layout.stages)]
        for tensor in self.program.parameters:
            if tensor.gets_gradient:
                stages = [stage for stage in range(layout.stages) if tensor.name in held[stage]]
                ranks = tuple(
                    layout.rank(replica, stage)
                    for replica in range(layout.replicas)
                    for stage in stages
                )
                holders[ranks] = holders.get(ranks, 0) + tensor.bytes
        return tuple(
            GradientSum(
                ranks,
                size,
                spread(
                    all_reduce_seconds(
                        Group(layout.cluster, tuple(layout.ranks[r] for r in ranks), None), size
                    )
                ),
            )
            for ranks, size in holders.items()
            if len(ranks) > 1
        )

    def _optimizer(self, pricer: Pricer) -> FloatArray:
        """[3, ranks] seconds of each rank's update."""
        layout, program = self.layout, self.program
        found = np.zeros((3, layout.group.size))
        for stage in range(layout.stages):
            price = fixed_costs(
                self.model_tensors(stage),
                program.optimizer,
                layout.group,
                pricer,
                training=program.training,
            ).optimizer
            ratios = np.array([1.0, price.low, price.high])
            if price.seconds:
                ratios[1:] /= price.seconds
            for replica in range(layout.replicas):
                rank = layout.rank(replica, stage)
                found[:, rank] = price.per_rank[rank] * ratios
        return found

    def payload(self, costs: PipelineCosts) -> tuple[int, ...]:
        """Bytes each rank hands to others: activations from where they are made, gradients from where they are read."""
        layout = self.layout
        total = [0] * layout.group.size
        for crossing in self.crossings():
            sizes = self.message(crossing)
            for replica in range(layout.replicas):
                size = int(sizes[layout.of_replica(replica)].sum())
                total[layout.rank(replica, crossing.source)] += size
                if self.program.training and crossing.gradient:
                    total[layout.rank(replica, crossing.target)] += size
        for each in costs.sums:
            for rank in each.ranks:
                total[rank] += each.bytes
        return tuple(total)

    def sheets(self, head_room: float) -> tuple[MemorySheet, ...]:
        """One per rank."""
        layout, program = self.layout, self.program
        found: dict[int, MemorySheet] = {}
        crossing = self.crossings()
        virtual = Group(layout.cluster, (layout.ranks[0],) * program.rows.parts, program.partition)
        for stage in range(layout.stages):
            sent = [c.tensor for c in crossing if c.source == stage]
            received = {
                c.tensor: program.training and c.gradient for c in crossing if c.target == stage
            }
            own = stage_graph(program.graph, self.ops(stage), sent)
            static = static_memory(
                self.model_tensors(stage), program.optimizer, training=program.training
            )
            ahead = in_flight(self.schedule, layout.stages, layout.micro_batches, stage)
            for replica in range(layout.replicas):
                rank = layout.rank(replica, stage)
                parts = range(layout.parts)[layout.of_replica(replica)]
                found[rank] = stage_sheet(
                    own,
                    program.strategies,
                    program.stats,
                    virtual,
                    parts,
                    ahead if program.training else 1,
                    static,
                    received,
                    layout.group.devices[rank].memory_bytes,
                    head_room,
                    training=program.training,
                )
        return tuple(found[rank] for rank in range(layout.group.size))

    def parts(self, sheets: Sequence[MemorySheet]) -> tuple[StagePart, ...]:
        """What a plan says of each stage."""
        layout = self.layout
        crossing = self.crossings()
        makers = made_by(self.program)
        found = []
        for stage in range(layout.stages):
            sends = [self._transfer(c, makers) for c in crossing if c.source == stage]
            ranks = [layout.rank(replica, stage) for replica in range(layout.replicas)]
            found.append(
                StagePart(
                    ops=tuple(sorted(self.ops(stage))),
                    transitions=self._transitions(stage, makers),
                    inputs=self._inputs(stage),
                    sends=tuple(sends),
                    sources=self.sources(stage),
                    memory=tuple(sheets[rank] for rank in ranks),
                )
            )
        return tuple(found)

    def _transfer(self, crossing: Crossing, makers: Mapping[str, str]) -> PlannedTransfer:
        layout = self.layout
        sizes = self.message(crossing)
        sent = tuple(int(sizes[layout.of_replica(d)].sum()) for d in range(layout.replicas))
        back = sent if self.program.training and crossing.gradient else (0,) * layout.replicas
        return PlannedTransfer(
            crossing.tensor,
            makers.get(crossing.tensor, ""),
            crossing.state,
            crossing.target,
            sent,
            back,
        )

    def _transitions(self, stage: int, makers: Mapping[str, str]) -> tuple[PlannedTransition, ...]:
        """Slices within parts; nothing of them is sent."""
        graph, strategies = self.program.graph, self.program.strategies
        made = self.program.state_made()
        needed: dict[str, dict[State, None]] = {}
        for op in graph.ops:
            if self.stage_of[op.index] == stage:
                for name, state in zip(op.inputs, strategies[op.index].inputs, strict=True):
                    needed.setdefault(name, {})[state] = None
        nothing = (0,) * self.layout.replicas
        return tuple(
            PlannedTransition(
                name, step.source, step.target, "none", nothing, nothing, makers.get(name, "")
            )
            for name, states in needed.items()
            if name in made
            for step in way(local_transitions(graph, name), made[name], states) or ()
        )

    def _inputs(self, stage: int) -> tuple[tuple[str, State], ...]:
        """Graph attributes in the states they are loaded in; owned rows are there where owned and halo rows are."""
        tensors = self.program.graph.tensors
        needed: dict[str, dict[State, None]] = {}
        for position, op in enumerate(self.program.graph.ops):
            if self.stage_of[op.index] == stage:
                for name, state in self.program.loads(position):
                    if tensors[name].origin == "input":
                        needed.setdefault(tensors[name].source or name, {})[state] = None
        return tuple(
            (name, state)
            for name, states in sorted(needed.items())
            for state in sorted(states)
            if state != "O" or "H" not in states
        )


def made_by(program: StagedProgram) -> dict[str, str]:
    """Tensor -> where it comes from, ``aten.mm in convs.1.lin``."""
    return {
        name: f"{op.name.rpartition('.')[0]} in {op.module or 'forward'}"
        for op in program.graph.ops
        for name in op.outputs
    }
