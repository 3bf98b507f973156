"""Where a rank's parts of each step come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoplan.execute.job import RankData, TrainJob, read_shard


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


def read_sources(directory: Path, job: TrainJob, rank: int) -> tuple[StepSource, StepSource]:
    """What a rank of a job in a directory trains on, and what it evaluates on."""
    fixed = FixedSteps(tuple(read_shard(directory, part) for part in job.held_by(rank)))
    return fixed, fixed
