"""What one rank knows while it runs a program: its place in the group, its rows of every axis, seed and step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from autoplan.errors import PlanError
from autoplan.opgraph import GRAPH, State, is_node_axis
from autoplan.partition.halo import NodeRows, Shard
from autoplan.program.communicator import Communicator, LocalCommunicator, SilentCommunicator


@dataclass(frozen=True, slots=True, eq=False)
class HaloMap:
    """Who sends which rows of one node axis to whom. Counts are in rank order, zero for the rank itself.

    Attributes:
        send_rows: [s] local positions of owned rows, those for rank 0 first.
        send_counts: rows for each rank; recv_counts: halo rows from each rank, in the order of the halo.
    """

    send_rows: torch.Tensor
    send_counts: tuple[int, ...]
    recv_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AxisRows:
    """This rank's rows of a base or index axis.

    Attributes:
        name: the axis; total: its global rows; owned: how many of them are this rank's. Of an axis that the partition does
            not cut, all of them are every rank's.
        ids: [local] int64 global ids: owned rows ascending, then (nodes only) halo rows.
        owned_counts: owned rows of every rank, in rank order.
        gathered_ids: [total] global ids of all ranks' owned rows, rank 0's first; None until `RankContext.prepare` (or when
            it was not asked for): only an all-gather along this axis needs it.
        gathered_positions: [total] its inverse: where global row i lies in the rows gathered in rank order.
    """

    name: str
    total: int
    owned: int
    ids: torch.Tensor
    owned_counts: tuple[int, ...]
    gathered_ids: torch.Tensor | None = None
    gathered_positions: torch.Tensor | None = None

    def rows(self, state: State) -> int:
        """Rows that a tensor along this axis has in a state."""
        if state in ("R", "S"):
            return self.total
        return self.owned if state == "O" else int(self.ids.numel())


@dataclass(slots=True, eq=False)
class RankContext:
    """One rank's view of a running program.

    Attributes:
        communicator: the group; device: where its tensors live.
        axes: by name, base and index axes.
        halos: by node axis, its exchange lists.
        seed: of every random draw; step: number of the training step, which the caller advances: another step, other
            draws.
        closed: the partition cuts no edge and no graph: owned and halo rows are the owned ones, and nothing is exchanged
            for them.
        shares: what a whole number is divided by where every part adds its share of it: the ranks, or of parts that never
            talk those that have rows, as the others are not run.
    """

    communicator: Communicator
    axes: Mapping[str, AxisRows]
    halos: Mapping[str, HaloMap]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0
    step: int = 0
    closed: bool = False
    shares: int = 1

    @classmethod
    def from_shard(
        cls,
        shard: Shard,
        communicator: Communicator,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        step: int = 0,
        gathered: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> RankContext:
        """Builds the context of a shard's rank.

        Args:
            shard: the rows this rank holds.
            communicator: the group it belongs to; its rank and size must be the shard's.
            device: where the index tensors go.
            seed: of every draw.
            step: number of the first step.
            gathered: by axis, `partition.halo.gather_order` of all shards, where it is at hand; `prepare` gets what is
                missing from the group.

        Raises:
            PlanError: rank or size of the shard and of the communicator differ.
        """
        if (shard.rank, shard.parts) != (communicator.rank, communicator.size):
            raise PlanError(
                f"the shard is rank {shard.rank} of {shard.parts} but this process is rank {communicator.rank} of "
                f"{communicator.size}; start as many workers as the partition has parts"
            )
        target = torch.device(device)
        axes = {}
        for name, counts in shard.owned_counts.items():
            order = None if gathered is None else gathered.get(name)
            axes[name] = _with_order(
                AxisRows(
                    name=name,
                    total=int(counts.sum()),
                    owned=int(counts[shard.rank]),
                    ids=_tensor(shard.local_rows(name), target),
                    owned_counts=tuple(int(count) for count in counts),
                ),
                None if order is None else _tensor(order, target),
            )
        if shard.graphs and GRAPH not in axes:
            axes[GRAPH] = _uncut(GRAPH, shard.graphs, shard.parts, target)
        halos = {name: _halo_map(rows, target) for name, rows in shard.nodes.items()}
        shares = communicator.size
        if isinstance(communicator, SilentCommunicator):
            shares = sum(not shard.is_empty(part) for part in range(shard.parts))
        return cls(communicator, axes, halos, target, seed, step, shard.closed, shares)

    @classmethod
    def whole(
        cls,
        rows: Mapping[str, int],
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        step: int = 0,
    ) -> RankContext:
        """The context of a single rank that owns everything.

        Args:
            rows: by base or index axis, its rows.
            device: where the index tensors go.
            seed: of every draw.
            step: number of the first step.
        """
        target = torch.device(device)
        axes = {}
        for name, total in rows.items():
            ids = torch.arange(total, device=target)
            axes[name] = AxisRows(name, total, total, ids, (total,), ids, ids)
        none = torch.empty(0, dtype=torch.int64, device=target)
        halos = {name: HaloMap(none, (0,), (0,)) for name in axes if is_node_axis(name)}
        return cls(LocalCommunicator(), axes, halos, target, seed, step)

    def prepare(self, axes: Collection[str]) -> None:
        """Learns the order of all ranks' rows along the axes that will be all-gathered.

        A set-up exchange of 8 bytes a row, once, before the first step. Every rank must call it with the same axes.
        """
        ready = dict(self.axes)
        for name in sorted(axes):
            rows = ready[name]
            if rows.gathered_ids is not None:
                continue
            others = self.communicator.size
            order = self.communicator.all_to_all(
                rows.ids[: rows.owned].repeat(others), (rows.owned,) * others, rows.owned_counts
            )
            ready[name] = _with_order(rows, order)
        self.axes = ready

    def rows(self, axis: str, state: State) -> int:
        """Rows of a base or index axis on this rank in a state."""
        return self.axes[axis].rows(state)

    def keys(self, axis: str, state: State) -> torch.Tensor:
        """[rows] int64 global ids of the rows of a base or index axis in a state: what random draws are keyed by."""
        rows = self.axes[axis]
        if state in ("R", "S"):
            return torch.arange(rows.total, device=self.device)
        return rows.ids[: rows.rows(state)]


def _tensor(array: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """A copy: shards may be read-only memory maps, which torch would warn about."""
    return torch.tensor(np.asarray(array, dtype=np.int64), device=device)


def _halo_map(rows: NodeRows, device: torch.device) -> HaloMap:
    return HaloMap(
        send_rows=_tensor(rows.send_rows, device),
        send_counts=tuple(int(count) for count in rows.send_counts),
        recv_counts=tuple(int(count) for count in rows.recv_counts),
    )


def _uncut(name: str, total: int, parts: int, device: torch.device) -> AxisRows:
    ids = torch.arange(total, device=device)
    return AxisRows(name, total, total, ids, (total,) * parts, ids, ids)


def _with_order(rows: AxisRows, order: torch.Tensor | None) -> AxisRows:
    if order is None:
        return rows
    positions = torch.empty_like(order)
    positions[order] = torch.arange(order.numel(), device=order.device)
    return AxisRows(
        rows.name, rows.total, rows.owned, rows.ids, rows.owned_counts, order, positions
    )
