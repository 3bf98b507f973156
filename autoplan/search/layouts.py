"""Shapes of candidates with stages, and where their ranks lie on a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoplan.device import Cluster
from autoplan.plan import Strategy
from autoplan.pricing.group import Group
from autoplan.pricing.parts import FloatArray, Worker, same_kind, workers

MOST_ORDERS = 6
"""Orders of the kinds of devices that are tried."""
MOST_MICRO_BATCHES = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """D replicas of S stages with m micro-batches each. Rank of replica d and stage s is ``d * S + s``.

    Attributes:
        cluster: where; ranks: positions in its devices, in rank order.
        replicas, stages, micro_batches: D, S, m.
        group: the ranks together.
    """

    cluster: Cluster
    ranks: tuple[int, ...]
    replicas: int
    stages: int
    micro_batches: int
    group: Group = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", Group(self.cluster, self.ranks, None))

    @property
    def parts(self) -> int:
        """V: part ``d * m + j`` is micro-batch j of replica d."""
        return self.replicas * self.micro_batches

    def rank(self, replica: int, stage: int) -> int:
        """Rank of the plan."""
        return replica * self.stages + stage

    def of_replica(self, replica: int) -> slice:
        """The parts of a replica."""
        return slice(replica * self.micro_batches, (replica + 1) * self.micro_batches)

    def kinds(self) -> tuple[tuple[Worker, ...], tuple[int, ...]]:
        """The kinds of workers, and the kind of each rank; with few micro-batches only few stages compute at one time."""
        each = workers(self.group, self.replicas * min(self.stages, self.micro_batches))
        keys = [(w.profile.name, w.threads, w.concurrency) for w in each]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        distinct = tuple(each[keys.index(key)] for key in numbers)
        return distinct, tuple(numbers[key] for key in keys)

    def most(self, values: FloatArray) -> float:
        """The greatest sum over a replica's parts of [V] values."""
        return max(float(values[self.of_replica(d)].sum()) for d in range(self.replicas))


@dataclass(frozen=True, slots=True)
class Shape:
    """One candidate: its family, D replicas of S stages."""

    strategy: Strategy
    replicas: int
    stages: int

    @property
    def devices(self) -> int:
        """How many it uses."""
        return self.replicas * self.stages

    def name(self, devices: int) -> str:
        """For people: ``pipeline of 2 stages on 2 of 4 devices``."""
        stages = f"{self.stages} stage{'' if self.stages == 1 else 's'}"
        of = f"{self.replicas} replicas of {stages}" if self.replicas > 1 else f"{stages}"
        where = f" on {self.devices} of {devices} devices" if self.devices < devices else ""
        return f"{self.strategy} of {of}{where}"


def shapes(devices: int) -> tuple[Shape, ...]:
    """Every candidate with stages; at least one of each family, so that it is listed with its reason."""
    counts = stage_counts(devices)
    found = [Shape("model", 1, count) for count in counts or (2,)]
    found += [Shape("pipeline", 1, count) for count in counts or (1,)]
    found += [Shape("hybrid", *shape) for shape in hybrid_shapes(devices) or ((2, 2),)]
    return tuple(found)


def stage_counts(devices: int) -> tuple[int, ...]:
    """Numbers of stages on one replica: every one up to 8, then doublings, and all devices."""
    found = [count for count in (2, 3, 4, 5, 6, 7, 8, 16, 32, 64) if count <= devices]
    return tuple(sorted({*found, devices} - {0, 1}))


def hybrid_shapes(devices: int) -> tuple[tuple[int, int], ...]:
    """(replicas, stages): for each number of replicas as many stages as there are devices for."""
    counts = stage_counts(devices)
    pairs = [(replicas, devices // replicas) for replicas in range(2, devices // 2 + 1)]
    return tuple(pair for pair in pairs if pair[1] in counts)


def micro_batch_counts(
    stages: int, units: int, replicas: int, asked: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Micro-batches of each replica; it has at least as many units as micro-batches. ``asked``: the only ones to try."""
    wanted = {2, 3, 4, 8, 2 * stages} | ({1} if replicas > 1 else set())
    most = min(units // replicas, MOST_MICRO_BATCHES)
    if asked is not None:
        wanted, most = set(asked), units // replicas
    return tuple(sorted(count for count in wanted if count <= most))


def closed_parts(units: int, devices: int, asked: Sequence[int] | None = None) -> tuple[int, ...]:
    """Numbers of parts along whole units that the search may ask for: ``GraphStats.closed`` should have them all.

    Args:
        units: in a step.
        devices: how many there are.
        asked: `SearchOptions.micro_batches`.
    """
    found = set(range(2, devices + 1))
    for shape in shapes(devices):
        counts = micro_batch_counts(shape.stages, units, shape.replicas, asked)
        found.update(shape.replicas * count for count in counts)
    return tuple(sorted(count for count in found if 1 < count <= units))


def layouts(cluster: Cluster, shape: Shape, counts: Sequence[int]) -> tuple[Layout, ...]:
    """Every order of the kinds of devices with every number of micro-batches."""
    return tuple(
        Layout(cluster, ranks, shape.replicas, shape.stages, count)
        for ranks in rank_orders(cluster, shape)
        for count in counts
    )


def rank_orders(cluster: Cluster, shape: Shape) -> tuple[tuple[int, ...], ...]:
    """Positions of devices in rank order. Equal devices: replicas one after the other, so that stages are neighbours.

    Devices of several kinds: whole stages on one kind, in every order of the kinds.
    """
    everyone = cluster.devices
    if same_kind(everyone):
        return (tuple(range(shape.devices)),)
    kinds: dict[tuple[str, int | None], list[int]] = {}
    for position, device in enumerate(everyone):
        kinds.setdefault((device.profile.name, device.memory_bytes), []).append(position)
    found: dict[tuple[int, ...], None] = {}
    for order in itertools.islice(itertools.permutations(kinds.values()), MOST_ORDERS):
        positions = [position for kind in order for position in kind][: shape.devices]
        # stage s of replica d takes the d-th of the s-th run of D devices
        ranks = (
            positions[stage * shape.replicas + replica]
            for replica in range(shape.replicas)
            for stage in range(shape.stages)
        )
        found[tuple(ranks)] = None
    return tuple(found)
