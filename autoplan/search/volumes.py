"""What each candidate of a search sends in one step, by why it is sent. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoplan.opgraph import SUMMED_BYTES, OpGraph
from autoplan.plan import Strategy
from autoplan.search.result import Candidate


@dataclass(frozen=True, slots=True)
class Volume:
    """Payload bytes of one step, summed over the ranks, as `autoplan.plan.Prediction.communication_bytes` counts them.

    Attributes:
        name, strategy: of the candidate; devices: how many it uses.
        halo: rows that edges read of other owners, and their gradients back.
        gather: rows that every rank gets; reduce: partial sums that are added up, inside ops as well.
        stages: what crosses the cuts between stages, and its gradients back.
        gradients: of the parameters, added up over all ranks that hold them.
        total: all of these; busiest: the rank that sends most.
        reason: why the candidate was rejected (then all bytes are zero), or None.
    """

    name: str
    strategy: Strategy
    devices: int
    halo: int = 0
    gather: int = 0
    reduce: int = 0
    stages: int = 0
    gradients: int = 0
    total: int = 0
    busiest: int = 0
    reason: str | None = None


def volumes(
    graph: OpGraph, candidates: Sequence[Candidate], *, training: bool
) -> tuple[Volume, ...]:
    """What each candidate sends.

    Args:
        graph: the program.
        candidates: of a search for it.
        training: forward, backward and update; or forward alone.
    """
    return tuple(_volume(graph, candidate, training=training) for candidate in candidates)


def _volume(graph: OpGraph, candidate: Candidate, *, training: bool) -> Volume:
    name, strategy, devices = candidate.name, candidate.strategy, len(candidate.ranks)
    if candidate.prediction is None:
        return Volume(name, strategy, devices, reason=candidate.reason)
    sent = {"halo_exchange": 0, "all_gather": 0, "all_reduce": 0, "none": 0}
    of_stages = [move for stage in candidate.stages for move in stage.transitions]
    for move in (*candidate.transitions, *of_stages):
        sent[move.exchange] += sum(move.forward_bytes) + sum(move.backward_bytes)
    crossing = sum(
        sum(send.forward_bytes) + sum(send.backward_bytes)
        for stage in candidate.stages
        for send in stage.sends
    )
    reduced = sent["all_reduce"] + _inside_ops(graph, candidate, training=training)
    each = candidate.prediction.communication_bytes
    known = sent["halo_exchange"] + sent["all_gather"] + reduced + crossing
    return Volume(
        name,
        strategy,
        devices,
        halo=sent["halo_exchange"],
        gather=sent["all_gather"],
        reduce=reduced,
        stages=crossing,
        gradients=sum(each) - known,
        total=sum(each),
        busiest=max(each),
    )


def _inside_ops(graph: OpGraph, candidate: Candidate, *, training: bool) -> int:
    """What the ops' own kernels add up, where all devices run them together."""
    if candidate.choices is None or candidate.stage_of is not None or len(candidate.ranks) == 1:
        return 0
    found = 0
    for op in graph.ops:
        chosen = candidate.choices[op.index]
        strategy = next(each for each in op.strategies if each.name == chosen)
        for collective in strategy.collectives:
            issued = collective.forward + (collective.backward if training else 0)
            found += issued * collective.elements * SUMMED_BYTES[collective.dtype]
    return found * len(candidate.ranks)
