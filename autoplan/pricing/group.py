"""The devices that run one candidate together, and how many rows each of them holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoplan.device import Cluster, Device
from autoplan.graphstats import GraphStats, PartitionStats, ShardSizes, axis_rows
from autoplan.opgraph import Axis, OpGraph, State, TensorMeta
from autoplan.states import Transition, sharded_axis, transitions

RowTable = Mapping[State, tuple[Mapping[str, float], ...]]
"""Rows of every axis, by state and rank."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of a cluster that share a plan.

    Attributes:
        cluster: where they are; ranks: positions in ``cluster.devices``, in rank order.
        partition: how the graph is cut between them; None on one device.
        devices: of the ranks, in their order.
        concurrency: per rank, how many CPU workers of the group share its host; 1 for a device of another kind.
        threads: per rank, of its worker: the host's cores shared equally, at least one; 1 for a device of another kind.
    """

    cluster: Cluster
    ranks: tuple[int, ...]
    partition: PartitionStats | None
    devices: tuple[Device, ...] = field(init=False)
    concurrency: tuple[int, ...] = field(init=False)
    threads: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.partition is not None and self.partition.parts != len(self.ranks):
            raise ValueError(f"{len(self.ranks)} ranks but {self.partition.parts} parts")
        devices = tuple(self.cluster.devices[rank] for rank in self.ranks)
        hosts = [device.host for device in devices if device.profile.kind == "cpu"]
        sharing = tuple(hosts.count(d.host) if d.profile.kind == "cpu" else 1 for d in devices)
        threads = tuple(
            max(1, (d.profile.cores or 1) // workers) if d.profile.kind == "cpu" else 1
            for d, workers in zip(devices, sharing, strict=True)
        )
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "concurrency", sharing)
        object.__setattr__(self, "threads", threads)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def closed(self) -> bool:
        """Whether the partition cuts no edge and no graph."""
        return self.partition is not None and self.partition.closed

    def shard(self, position: int) -> ShardSizes | None:
        """Rows of one rank's shard; None where nothing is cut."""
        return None if self.partition is None else self.partition.shards[position]

    def transitions(self, tensor: TensorMeta, axes: Mapping[str, Axis]) -> tuple[Transition, ...]:
        """The transitions that an op's output may take here: only whole graphs have owners, so only closed parts own any."""
        found = transitions(tensor, axes)
        axis = sharded_axis(tensor, axes)
        if axis is None or self.closed or axes[axis].role != "graph":
            return found
        return tuple(each for each in found if {each.source, each.target} <= {"R", "S"})

    def row_table(self, graph: OpGraph, stats: GraphStats) -> RowTable:
        """Rows of every axis in every state, on every rank."""
        states: tuple[State, ...] = ("R", "O", "H", "S")
        return {state: self.rows(graph, stats, state) for state in states}

    def rows(self, graph: OpGraph, stats: GraphStats, state: State) -> tuple[dict[str, float], ...]:
        """Rows of every axis in a state, per rank."""
        return tuple(
            axis_rows(graph.axes, stats, state, self.shard(position))
            for position in range(self.size)
        )
