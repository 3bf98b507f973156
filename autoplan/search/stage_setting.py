"""How replicas, stages and micro-batches lie on devices, and what the program costs there: the numbers of a stage problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autoplan.device import Cluster, Device, DeviceProfile, Link
from autoplan.graphstats import GraphStats, PartitionStats
from autoplan.opgraph import OpGraph, OpStrategy, State
from autoplan.optimizermemory import optimizer_states, optimizer_update, updates_together
from autoplan.plan import Schedule
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor, memory_model, storage_roots
from autoplan.pricing.parts import FloatArray, PartPrices, PartRows, Worker, price_parts
from autoplan.pricing.stage_memory import NO_STATIC, presence
from autoplan.pricing.table import Pricer
from autoplan.schedule import in_flight
from autoplan.search.layouts import Layout
from autoplan.search.stage_blocks import Blocks, messages_of, number_reads
from autoplan.search.stage_problem import Held, Slot, StageProblem, Unit
from autoplan.stages import reads


@dataclass(frozen=True, eq=False)
class StagedProgram:
    """A program with one strategy an op, on the parts of a batch; what follows from these alone is worked out once.

    Attributes:
        graph: the program. stats: sizes. partition: closed, None for one part. strategies: by op index.
        parameters: the model's tensors; optimizer: its name; training: forward, backward and update.
    """

    graph: OpGraph
    stats: GraphStats
    partition: PartitionStats | None
    strategies: Mapping[int, OpStrategy]
    parameters: tuple[ModelTensor, ...]
    optimizer: str
    training: bool

    @cached_property
    def rows(self) -> PartRows:
        """Rows of each part."""
        return PartRows(self.graph, self.stats, self.partition)

    @cached_property
    def there(self) -> NDArray[np.int64]:
        """[V] 1 for a part that has rows of any axis; 0 for one that has none: nobody computes or sends it."""
        if self.partition is None:
            return np.ones(1, dtype=np.int64)
        return np.array([int(any(s.owned_rows.values())) for s in self.partition.shards])

    @cached_property
    def reads(self) -> Mapping[int, tuple[str, ...]]:
        """By op index, the tensors that it needs where it runs."""
        return reads(self.graph)

    @cached_property
    def transient(self) -> FloatArray:
        """[n] the most bytes of any part that are alive while an op runs, forward or backward, and neither kept nor loaded."""
        most = np.zeros(len(self.graph.ops))
        model = memory_model(
            self.graph, self.stats, self.virtual, NO_STATIC, training=self.training
        )
        if not model.units:
            return most
        present, saved = presence(self.graph, self.strategies, model)
        for direction in model.directions:
            live, _ = model.counts(direction)
            here = live & present & ~model.resident
            if direction == "forward":
                here &= ~saved
            most = np.maximum(most, (here @ model.bytes).max(axis=1))
        return most

    @cached_property
    def virtual(self) -> Group:
        """A group with a rank for each part, of which only the rows matter."""
        nowhere = Device("", DeviceProfile("", "cpu", ""), 0, 0, None)
        alone = Cluster((nowhere,), Link(0.0, 1.0))
        return Group(alone, (0,) * self.rows.parts, self.partition)

    def price(self, kinds: Sequence[Worker], pricer: Pricer) -> PartPrices:
        """Seconds of every op in every part."""
        return price_parts(
            self.graph, self.strategies, self.rows, kinds, pricer, training=self.training
        )

    def state_made(self) -> dict[str, State]:
        """The state in which each op's output is made."""
        return {
            name: state
            for op in self.graph.ops
            for name, state in zip(op.outputs, self.strategies[op.index].outputs, strict=True)
        }

    def loads(self, op: int) -> tuple[tuple[str, State], ...]:
        """What an op reads that no op makes, and in which state."""
        found = self.graph.ops[op]
        pairs = zip(found.inputs, self.strategies[found.index].inputs, strict=True)
        tensors = self.graph.tensors
        return tuple((n, s) for n, s in pairs if n in tensors and tensors[n].origin != "op")

    def model_tensor(self, source: str | None) -> ModelTensor | None:
        """The parameter or buffer that a tensor of the program is."""
        return own_tensor({tensor.name: tensor for tensor in self.parameters}, source)


def own_tensor(known: Mapping[str, ModelTensor], source: str | None) -> ModelTensor | None:
    """By the model's own name, or by its name in a step, which wraps the model under one more name."""
    if source is None:
        return None
    return known.get(source) or known.get(source.partition(".")[2])


def stage_problem(
    program: StagedProgram,
    layout: Layout,
    blocks: Blocks,
    prices: PartPrices,
    schedule: Schedule,
    head_room: float,
) -> StageProblem:
    """The numbers of one layout and schedule.

    Args:
        program: on the layout's parts.
        layout: where it runs.
        blocks: in an order where makers come before readers.
        prices: of the layout's workers, one row a kind.
        schedule: decides how many micro-batches are in flight.
        head_room: share of each device's memory that stays free.
    """
    place = {op.index: position for position, op in enumerate(program.graph.ops)}
    members = [[place[op] for op in ops] for ops in blocks]
    per_op = _seconds(layout, prices)
    seconds = np.array([[row[ops].sum() for ops in members] for row in per_op])
    made = program.state_made()
    sizes = {
        name: layout.most(program.rows.bytes(program.graph.tensors[name], state))
        / layout.micro_batches
        for name, state in made.items()
    }
    units, unit_of, parts = _units(program, blocks)
    ahead = [
        in_flight(schedule, layout.stages, layout.micro_batches, s) if program.training else 0
        for s in range(layout.stages)
    ]
    kept = np.array([[_flying(layout, each, count) for each in parts] for count in ahead])
    problem = StageProblem(
        blocks=blocks,
        seconds=seconds,
        messages=messages_of(program.graph, blocks, sizes, unit_of, training=program.training),
        units=units,
        held=_held(program, layout, blocks),
        after=number_reads(program.graph, blocks),
        kept=kept.reshape(layout.stages, len(units)),
        transient=np.array([program.transient[ops].max(initial=0.0) for ops in members]),
        slots=tuple(
            _slot(layout, stage, head_room, 2 if program.training else 1)
            for stage in range(layout.stages)
        ),
        micro_batches=layout.micro_batches,
    )
    return replace(problem, slots=tuple(_loose(problem, stage) for stage in range(layout.stages)))


def _loose(problem: StageProblem, stage: int) -> Slot:
    """The stage without its limit where everything together would stay within it."""
    slot = problem.slots[stage]
    everything = (
        sum(each.bytes for each in problem.held)
        + sum(message.bytes for message in problem.messages)
        + float(problem.kept[stage].sum() + problem.transient.max(initial=0.0))
        + max((each.update for each in problem.held), default=0.0)
        + sum(each.together for each in problem.held)
    )
    return slot if slot.limit is None or everything > slot.limit else replace(slot, limit=None)


def _seconds(layout: Layout, prices: PartPrices) -> FloatArray:
    """[S, n] forward and backward of a mean micro-batch of the slowest replica."""
    _, kind_of = layout.kinds()
    both = prices.forward[0] + prices.backward[0]
    rows = []
    for stage in range(layout.stages):
        each = [
            both[kind_of[layout.rank(d, stage)], :, layout.of_replica(d)].mean(axis=-1)
            for d in range(layout.replicas)
        ]
        rows.append(np.max(each, axis=0))
    return np.array(rows)


def _slot(layout: Layout, stage: int, head_room: float, directions: int) -> Slot:
    """Messages are taken to come from the stage before; the simulator knows better where stages are skipped."""
    devices = [layout.group.devices[layout.rank(d, stage)] for d in range(layout.replicas)]
    capacities = [device.memory_bytes for device in devices if device.memory_bytes is not None]
    links = [
        layout.cluster.link(
            layout.ranks[layout.rank(d, max(stage - 1, 0))], layout.ranks[layout.rank(d, stage)]
        )
        for d in range(layout.replicas)
    ]
    return Slot(
        stage,
        directions * max(link.latency_seconds for link in links) if stage else 0.0,
        min(link.bytes_per_s for link in links),
        min(capacities) * (1 - head_room) if capacities else None,
    )


def _units(
    program: StagedProgram, blocks: Blocks
) -> tuple[tuple[Unit, ...], dict[str, int], list[FloatArray]]:
    """Storages that ops make, who keeps them, by tensor their number, and their sizes in each part."""
    roots = storage_roots(program.graph)
    tensors = program.graph.tensors
    home = {op: number for number, ops in enumerate(blocks) for op in ops}
    made = program.state_made()
    savers: dict[str, dict[int, None]] = {
        root: {} for root in roots.values() if tensors[root].origin == "op"
    }
    states: dict[str, State] = {root: made[root] for root in savers}
    for op in program.graph.ops:
        strategy = program.strategies[op.index]
        state_of = dict(zip(op.inputs, strategy.inputs, strict=True))
        state_of.update(zip(op.outputs, strategy.outputs, strict=True))
        for name in op.saved:
            root = roots.get(name)
            if root in savers and name in state_of:
                savers[root][home[op.index]] = None
                if state_of[name] == "R":
                    states[root] = "R"
    numbers = {root: number for number, root in enumerate(savers)}
    units = tuple(Unit(root, tuple(sorted(found))) for root, found in savers.items())
    unit_of = {name: numbers[root] for name, root in roots.items() if root in numbers}
    sizes = [program.rows.bytes(tensors[root], states[root]) for root in savers]
    return units, unit_of, sizes


def _flying(layout: Layout, sizes: FloatArray, count: int) -> float:
    """Bytes of the ``count`` largest parts of a replica."""
    if count == 0:
        return 0.0
    return max(
        float(np.sort(sizes[layout.of_replica(d)])[-count:].sum()) for d in range(layout.replicas)
    )


def _held(program: StagedProgram, layout: Layout, blocks: Blocks) -> tuple[Held, ...]:
    """Parameters and buffers with what the optimizer adds, graph attributes of all micro-batches, constants.

    Of an update in a loop the largest parameter counts, without what is left of the one before: a sheet has that, too.
    """
    home = {op: number for number, ops in enumerate(blocks) for op in ops}
    tensors = program.graph.tensors
    readers: dict[str, dict[int, None]] = {}
    states: dict[str, dict[State, None]] = {}
    needed = program.reads
    for position, op in enumerate(program.graph.ops):
        for name in needed[op.index]:
            if name in tensors and tensors[name].origin != "op":
                readers.setdefault(name, {})[home[op.index]] = None
                states.setdefault(name, {})
        for name, state in program.loads(position):
            states[name][state] = None
    copies = 2 + optimizer_states(program.optimizer) if program.training else 1
    temporaries = optimizer_update(program.optimizer if program.training else "none")
    at_once = {updates_together(device.profile.kind) for device in layout.group.devices}
    found = []
    for name, blocks_of in readers.items():
        meta = tensors[name]
        own = program.model_tensor(meta.source)
        update = together = 0.0
        if own is not None and meta.origin in ("parameter", "buffer"):
            size = own.bytes * (copies if own.gets_gradient else 1)
            if own.gets_gradient:
                update = float(own.bytes * temporaries.current) if False in at_once else 0.0
                together = float(own.bytes * temporaries.together) if True in at_once else 0.0
        else:
            size = sum(
                layout.most(program.rows.bytes(meta, state))
                / (layout.micro_batches if state == "R" else 1)
                for state in states[name]
                if state != "O" or "H" not in states[name]
            )
        found.append(
            Held(meta.source or name, float(size), tuple(sorted(blocks_of)), update, together)
        )
    return tuple(found)
