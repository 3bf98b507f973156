"""The devices that run one candidate together, and how many rows each of them holds."""

from __future__ import annotations

from dataclasses import dataclass

from autoplan.device import Cluster, Device
from autoplan.graphstats import GraphStats, PartitionStats, ShardSizes, axis_rows
from autoplan.opgraph import OpGraph, State


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of a cluster that share a plan.

    Attributes:
        cluster: where they are; ranks: positions in ``cluster.devices``, in rank order.
        partition: how the graph is cut between them; None on one device.
    """

    cluster: Cluster
    ranks: tuple[int, ...]
    partition: PartitionStats | None

    def __post_init__(self) -> None:
        if self.partition is not None and self.partition.parts != len(self.ranks):
            raise ValueError(f"{len(self.ranks)} ranks but {self.partition.parts} parts")

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in rank order."""
        return tuple(self.cluster.devices[rank] for rank in self.ranks)

    def shard(self, position: int) -> ShardSizes | None:
        """Rows of one rank's shard; None where nothing is cut."""
        return None if self.partition is None else self.partition.shards[position]

    def concurrency(self, position: int) -> int:
        """How many CPU workers of the group share this rank's host; 1 for a device of another kind."""
        own = self.devices[position]
        if own.profile.kind != "cpu":
            return 1
        return sum(d.profile.kind == "cpu" and d.host == own.host for d in self.devices)

    def threads(self, position: int) -> int:
        """Threads of one rank's worker: the host's cores shared equally, at least one."""
        cores = self.devices[position].profile.cores
        if self.devices[position].profile.kind != "cpu" or cores is None:
            return 1
        return max(1, cores // self.concurrency(position))

    def rows(self, graph: OpGraph, stats: GraphStats, state: State) -> tuple[dict[str, float], ...]:
        """Rows of every axis in a state, per rank."""
        return tuple(
            axis_rows(graph.axes, stats, state, self.shard(position))
            for position in range(self.size)
        )
