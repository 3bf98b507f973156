"""Where a rank's parts of each step come from: the same for every step, or cut out of many graphs step by step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from autoplan.execute.batches import BatchOrder
from autoplan.execute.collection import GraphCollection, load_collection, ranges
from autoplan.execute.job import GRAPHS_FILE, RankData, TrainJob, read_shard
from autoplan.opgraph import GRAPH, is_edge_axis, is_index_axis, is_node_axis
from autoplan.partition.closed import pack
from autoplan.partition.halo import NodeRows, Shard
from autoplan.partition.ownership import IntArray
from autoplan.program.rank_program import RankInput


class StepSource(Protocol):
    """What a rank computes in each step."""

    def parts(self, step: int) -> tuple[RankData, ...]:
        """This rank's parts of a step (from 0, counted over all epochs), ascending.

        The very same objects where a step has the parts of the one before, so that what follows from them may be kept.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FixedSteps:
    """Every step has the same parts."""

    held: tuple[RankData, ...]

    def parts(self, step: int) -> tuple[RankData, ...]:
        """See `StepSource`."""
        del step
        return self.held


@dataclass(frozen=True, slots=True, eq=False)
class CollectionSteps:
    """Each step has some of many graphs, packed into parts of whole graphs.

    Attributes:
        collection: all graphs; order: which of them each step takes.
        total: number of parts V of a step, over all ranks.
        mine: the parts that this rank computes, ascending.
        inputs: what its programs read.
        gathered: axes along which its programs all-gather.
    """

    collection: GraphCollection
    order: BatchOrder
    total: int
    mine: tuple[int, ...]
    inputs: tuple[RankInput, ...]
    gathered: tuple[str, ...] = ()

    def parts(self, step: int) -> tuple[RankData, ...]:
        """See `StepSource`. Reads no rows of other graphs than the step's, and of those in other parts only what is read whole."""
        batch = self.order.batch(step)
        return cut_parts(
            self.collection, batch, self.total, self.mine, self.inputs, gathered=self.gathered
        )


def sources_of(
    job: TrainJob, collection: GraphCollection, rank: int, workers: int
) -> tuple[CollectionSteps, CollectionSteps]:
    """What a rank trains on, and what it evaluates on: all graphs as one batch.

    Args:
        job: whose steps take some of many graphs.
        collection: all graphs.
        rank: of ``workers``.
        workers: number of ranks.
    """
    assert job.order is not None
    total, mine = job.parts(workers), job.held_by(rank)
    program = job.program_of(rank)
    training = CollectionSteps(collection, job.order, total, mine, program.inputs, program.gathered)
    program = job.evaluation_of(rank) or program
    everything = BatchOrder(len(collection), len(collection))
    if job.pipeline is not None:
        total, mine = 1, (0,)
    return training, CollectionSteps(
        collection, everything, total, mine, program.inputs, program.gathered
    )


def read_sources(
    directory: Path, job: TrainJob, rank: int, workers: int
) -> tuple[StepSource, StepSource]:
    """What a rank of a job in a directory trains on, and what it evaluates on; arguments as in `sources_of`."""
    if job.order is not None:
        return sources_of(job, load_collection(directory / GRAPHS_FILE), rank, workers)
    if job.pipeline is None:
        fixed = FixedSteps(tuple(read_shard(directory, part) for part in job.held_by(rank)))
        return fixed, fixed
    wanted = {(read.attribute, read.state) for read in job.reads(rank)}
    fixed = FixedSteps(tuple(read_shard(directory, part, wanted) for part in job.held_by(rank)))
    if job.pipeline.parts == 1 or not job.pipeline.evaluates(rank):
        return fixed, fixed
    return fixed, FixedSteps((read_shard(directory, None, wanted),))


def cut_parts(
    collection: GraphCollection,
    batch: IntArray,
    total: int,
    wanted: Sequence[int],
    inputs: Sequence[RankInput],
    *,
    gathered: Collection[str] = (),
) -> tuple[RankData, ...]:
    """Packs graphs into parts and cuts some of the parts.

    Args:
        collection: all graphs.
        batch: [B] numbers of the graphs of a step, in the order of its batch.
        total: number of parts V.
        wanted: the parts to cut.
        inputs: what the programs of these parts read.
        gathered: axes whose order over all parts is needed.
    """
    owner = pack(collection.weights[batch], total)
    starts = {
        axis: np.concatenate([[0], np.cumsum(rows[batch])])
        for axis, rows in collection.rows.items()
    }
    counts = {
        axis: np.bincount(owner, weights=rows[batch], minlength=total).astype(np.int64)
        for axis, rows in collection.rows.items()
    }
    places = [np.flatnonzero(owner == part) for part in range(total)]
    orders = {
        axis: np.concatenate([ranges(starts[axis], own) for own in places]) for axis in gathered
    }
    return tuple(
        RankData(
            _closed_shard(part, total, places[part], starts, counts),
            {
                (read.attribute, read.state): _input(collection, batch, places[part], read)
                for read in inputs
            },
            orders,
        )
        for part in wanted
    )


def _input(
    collection: GraphCollection, batch: IntArray, places: IntArray, wanted: RankInput
) -> torch.Tensor:
    """An attribute as a part's program reads it: whole, or the rows of the part's graphs with positions that are local."""
    if wanted.state == "R" or wanted.dim is None or wanted.axis is None:
        return collection.tensor(wanted.attribute, batch)
    if wanted.index is not None:
        return collection.tensor(wanted.attribute, batch[places])
    return collection.tensor(wanted.attribute, batch, among=places)


def _closed_shard(
    part: int,
    total: int,
    places: IntArray,
    starts: dict[str, IntArray],
    counts: dict[str, IntArray],
) -> Shard:
    """The rows of the graphs at some places of a batch; without a halo, as no edge leaves a graph."""
    rows = {axis: ranges(first, places) for axis, first in starts.items()}
    return Shard(
        rank=part,
        parts=total,
        nodes={
            axis: NodeRows.alone(own, total) for axis, own in rows.items() if is_node_axis(axis)
        },
        edge_rows={axis: own for axis, own in rows.items() if is_edge_axis(axis)},
        edge_index={},
        index_rows={axis: own for axis, own in rows.items() if is_index_axis(axis)},
        index_values={},
        owned_counts=counts,
        graph_rows=places,
        graphs=int(counts[GRAPH].sum()),
        closed=True,
    )
