"""A plan's document held to itself: what its fields say of each other must be one plan. No torch.

Each check yields contradictions: the JSON path and value of a field, with what is wrong about it. `planner.held` goes on where
the traced program is needed; `seal` tells an edit that leaves a plan possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoplan.consistency.contradiction import Contradiction, Document, misshapen, shown
from autoplan.consistency.devices import cluster, devices, numbers, words
from autoplan.consistency.figures import alternatives, batch, parts, prediction, sheets
from autoplan.consistency.seal import broken_seal, seals
from autoplan.consistency.stages import arrangement, ops, stage

__all__ = ["Contradiction", "broken_seal", "contradictions", "misshapen", "seals", "shown"]


def contradictions(document: Document) -> Iterator[Contradiction]:
    """What a plan's document contradicts itself in, the plainest first; later checks build on earlier ones.

    Args:
        document: of `PlanData.to_dict`, so that fields and types are right.
    """
    for check in (numbers, words, cluster, devices, arrangement, ops, batch, parts):
        yield from check(document)
    for number in range(len(document["stages"])):
        yield from stage(document, number)
    for check in (sheets, prediction, alternatives):
        yield from check(document)
