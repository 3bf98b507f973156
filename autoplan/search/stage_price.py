"""What a program cut into stages costs: the times that the simulator plays, bytes that are sent, and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autoplan.plan import MemorySheet, Schedule
from autoplan.pricing.collectives import COMMUNICATION_RANGE, all_reduce_seconds
from autoplan.pricing.fixed import fixed_costs
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor, static_memory
from autoplan.pricing.parts import HEADER_BYTES, FloatArray, PartPrices, send_seconds
from autoplan.pricing.stage_memory import stage_graph, stage_sheet
from autoplan.pricing.table import Pricer
from autoplan.schedule import in_flight
from autoplan.search.layouts import Layout
from autoplan.search.stage_setting import StagedProgram
from autoplan.simulate_stages import Arrival, GradientSum, PipelineCosts
from autoplan.stages import Crossing, crossings, unknown_axes

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StageMessage:
    """What a stage sends another for one micro-batch.

    Attributes:
        source, target: stages.
        header: [V] bytes that go ahead, of sizes that only the data decide.
        bytes, back: [V] of the tensors and of the gradients that come back, in each part.
        gradient: gradients do come back.
    """

    source: int
    target: int
    header: Counts
    bytes: Counts
    back: Counts
    gradient: bool


@dataclass(frozen=True, eq=False)
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

    @cached_property
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
        needed = self.program.reads
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

    def tensor_bytes(self, crossing: Crossing) -> Counts:
        """[V] bytes of one tensor on its way, in each part."""
        meta = self.program.graph.tensors[crossing.tensor]
        size = self.program.rows.bytes(meta, crossing.state) * self.program.there
        return np.rint(size).astype(np.int64)

    def messages(self) -> tuple[StageMessage, ...]:
        """What goes from one stage to another for each micro-batch: all tensors in one buffer."""
        graph = self.program.graph
        found: dict[tuple[int, int], list[Crossing]] = {}
        for crossing in self.crossings:
            found.setdefault((crossing.source, crossing.target), []).append(crossing)
        messages = []
        for (source, target), carried in sorted(found.items()):
            metas = [graph.tensors[crossing.tensor] for crossing in carried]
            sizes = [self.tensor_bytes(crossing) for crossing in carried]
            back = [
                size
                for size, crossing in zip(sizes, carried, strict=True)
                if self.program.training and crossing.gradient
            ]
            header = HEADER_BYTES * len(unknown_axes(metas, graph.axes)) * self.program.there
            nothing = np.zeros(self.program.rows.parts, dtype=np.int64)
            messages.append(
                StageMessage(
                    source, target, header, sum(sizes, nothing), sum(back, nothing), bool(back)
                )
            )
        return tuple(messages)

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
                    into[:, stage, replica] *= self.program.there[parts]
        return forward, backward

    def _arrivals(self) -> tuple[Arrival, ...]:
        layout = self.layout
        found = []
        for message in self.messages():
            there = np.zeros((3, layout.replicas, layout.micro_batches))
            back = np.zeros_like(there)
            for replica in range(layout.replicas):
                ranks = (layout.rank(replica, stage) for stage in (message.source, message.target))
                link = layout.cluster.link(*(layout.ranks[rank] for rank in ranks))
                parts = layout.of_replica(replica)
                there[:, replica] = send_seconds(link, message.bytes[parts])
                there[:, replica] += send_seconds(link, message.header[parts])
                back[:, replica] = send_seconds(link, message.back[parts])
            ranges = np.array([1.0, *COMMUNICATION_RANGE])[:, None, None]
            found.append(
                Arrival(
                    message.source, message.target, there * ranges, back * ranges, message.gradient
                )
            )
        return tuple(found)

    def _sums(self) -> tuple[GradientSum, ...]:
        """Gradients by the set of ranks that hold the parameter, in the order in which they are summed."""
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
                holders[ranks] = holders.get(ranks, 0) + tensor.summed_bytes
        return tuple(
            GradientSum(
                ranks,
                size,
                all_reduce_seconds(
                    Group(layout.cluster, tuple(layout.ranks[r] for r in ranks), None), size
                )
                * np.array([1.0, *COMMUNICATION_RANGE]),
            )
            for ranks, size in sorted(holders.items())
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
        for message in self.messages():
            for replica in range(layout.replicas):
                parts = layout.of_replica(replica)
                headers = int(message.header[parts].sum())
                total[layout.rank(replica, message.source)] += (
                    int(message.bytes[parts].sum()) + headers
                )
                total[layout.rank(replica, message.target)] += int(message.back[parts].sum())
        for each in costs.sums:
            for rank in each.ranks:
                total[rank] += each.bytes
        return tuple(total)

    def sheets(self, head_room: float) -> tuple[MemorySheet, ...]:
        """One per rank."""
        layout, program = self.layout, self.program
        found: dict[int, MemorySheet] = {}
        crossing = self.crossings
        for stage in range(layout.stages):
            sent = [c.tensor for c in crossing if c.source == stage]
            received = {
                c.tensor: program.training and c.gradient for c in crossing if c.target == stage
            }
            own = stage_graph(program.graph, self.ops(stage), sent)
            ahead = in_flight(self.schedule, layout.stages, layout.micro_batches, stage)
            for replica in range(layout.replicas):
                rank = layout.rank(replica, stage)
                parts = range(layout.parts)[layout.of_replica(replica)]
                device = layout.group.devices[rank]
                static = static_memory(
                    self.model_tensors(stage),
                    program.optimizer,
                    training=program.training,
                    kinds=(device.profile.kind,),
                )
                found[rank] = stage_sheet(
                    own,
                    program.strategies,
                    program.stats,
                    program.virtual,
                    parts,
                    ahead if program.training else 1,
                    static,
                    received,
                    self._under_way(stage, parts),
                    device.memory_bytes,
                    head_room,
                    training=program.training,
                )
        return tuple(found[rank] for rank in range(layout.group.size))

    def _under_way(self, stage: int, parts: range) -> float:
        """Bytes of the largest message that a stage sends; with one micro-batch nothing is computed while it is under way."""
        if len(parts) == 1:
            return 0.0
        sent = [message.bytes for message in self.messages() if message.source == stage]
        sent += [message.back for message in self.messages() if message.target == stage]
        return max((float(sizes[parts].max()) for sizes in sent), default=0.0)
