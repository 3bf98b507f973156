"""What each op costs in each part of a batch, forward and backward apart: the prices of stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoplan.cost import WorkSizes
from autoplan.device import Device, DeviceProfile, Link
from autoplan.graphstats import GraphStats, PartitionStats, ShardSizes, axis_rows
from autoplan.opgraph import OpGraph, OpStrategy, State, TensorMeta, Work
from autoplan.pricing.group import Group
from autoplan.pricing.table import Pricer, op_dtype

FloatArray = NDArray[np.float64]
HEADER_BYTES = 8
"""Bytes of a message that tell the receiver the rows of one axis that only the data decide."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A kind of rank: ranks of one kind need the same time for the same work.

    Attributes:
        profile: of its device; threads: of its worker; concurrency: workers that are busy on its host at one time.
    """

    profile: DeviceProfile
    threads: int
    concurrency: int


def workers(group: Group, busy: int) -> tuple[Worker, ...]:
    """The kind of each rank where at most ``busy`` ranks of a host compute at one time."""
    return tuple(
        Worker(device.profile, threads, min(sharing, busy))
        for device, threads, sharing in zip(
            group.devices, group.threads, group.concurrency, strict=True
        )
    )


class PartRows:
    """Rows of every axis in each part of the batch.

    Args:
        graph: the program.
        stats: sizes of the batch.
        partition: closed; None: one part, the whole batch.
    """

    def __init__(self, graph: OpGraph, stats: GraphStats, partition: PartitionStats | None) -> None:
        shards: Sequence[ShardSizes | None] = (None,) if partition is None else partition.shards
        states: tuple[State, ...] = ("R", "O", "H", "S")
        self.rows: Mapping[State, tuple[Mapping[str, float], ...]] = {
            state: tuple(axis_rows(graph.axes, stats, state, shard) for shard in shards)
            for state in states
        }
        self.parts = len(shards)
        self._sizes: dict[tuple[object, ...], FloatArray] = {}

    def bytes(self, tensor: TensorMeta, state: State) -> FloatArray:
        """[V] size of a tensor in a state, in each part."""
        key = (tensor.dims, tensor.dtype, state)
        if key not in self._sizes:
            size = tensor.bytes
            self._sizes[key] = np.array([size.evaluate(rows) for rows in self.rows[state]])
        return self._sizes[key]


@dataclass(frozen=True, slots=True, eq=False)
class PartPrices:
    """Seconds of each op in each part on each kind of worker; the first axis is value, low, high.

    Attributes:
        forward, backward: [3, K, n, V] for K kinds of workers, n ops in program order and V parts.
    """

    forward: FloatArray
    backward: FloatArray


def price_parts(
    graph: OpGraph,
    strategies: Mapping[int, OpStrategy],
    rows: PartRows,
    kinds: Sequence[Worker],
    pricer: Pricer,
    *,
    training: bool,
) -> PartPrices:
    """Price every op under its one strategy.

    Raises:
        DeviceError: no cost model prices an op on one of the devices.
    """
    shape = (3, len(kinds), len(graph.ops), rows.parts)
    forward, backward = np.zeros(shape), np.zeros(shape)
    # layers that are equal have equal work, and are priced once
    known: dict[tuple[object, ...], FloatArray] = {}
    for position, op in enumerate(graph.ops):
        state = strategies[op.index].rows
        dtype = op_dtype(graph, op)
        for into, work in ((forward, op.forward), (backward, op.backward if training else None)):
            if work is None:
                continue
            key = (op.name, dtype, state, work)
            if key not in known:
                known[key] = _seconds(op.name, dtype, work, rows.rows[state], kinds, pricer)
            into[:, :, position, :] = known[key]
    return PartPrices(forward, backward)


def _seconds(
    name: str,
    dtype: str,
    work: Work,
    rows: Sequence[Mapping[str, float]],
    kinds: Sequence[Worker],
    pricer: Pricer,
) -> FloatArray:
    """[3, K, V] value, low and high."""
    found = np.zeros((3, len(kinds), len(rows)))
    for part, local in enumerate(rows):
        flops, read, written = (
            work.flops.evaluate(local),
            work.bytes_read.evaluate(local),
            work.bytes_written.evaluate(local),
        )
        nnz, width = work.nnz.evaluate(local), work.row_width_bytes.evaluate(local)
        for number, kind in enumerate(kinds):
            sizes = WorkSizes(
                name,
                work.kind,
                dtype,
                flops,
                read,
                written,
                nnz,
                width,
                kind.threads,
                kind.concurrency,
            )
            cost, _ = pricer.price(sizes, kind.profile)
            found[:, number, part] = cost.seconds, cost.low, cost.high
    return found


def send_seconds(link: Link, sizes: NDArray[np.int64]) -> FloatArray:
    """One message of each size over a link: its latency, then its bytes; nothing is sent where there is nothing."""
    seconds: FloatArray = np.where(sizes > 0, link.latency_seconds + sizes / link.bytes_per_s, 0.0)
    return seconds


def same_kind(devices: Iterable[Device]) -> bool:
    """Whether all devices have one profile and one memory limit."""
    return len({(device.profile.name, device.memory_bytes) for device in devices}) <= 1
