"""From a search's answer to the parts of a `PlanData`."""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.device import Cluster
from autoplan.graphstats import GraphStats
from autoplan.opgraph import EDGE, NODE, OpGraph
from autoplan.plan import Alternative, DeviceUse, OpChoice, PartitionUse, StagePlan
from autoplan.search.result import Candidate, SearchResult


def stage_plan(
    candidate: Candidate,
    graph: OpGraph,
    *,
    parameters: Sequence[str] = (),
    buffers: Sequence[str] = (),
    attributes: Sequence[str] = (),
) -> StagePlan:
    """The one stage of a candidate that has a price. ``devices`` are ranks of the plan, 0 to P-1.

    Args:
        candidate: the chosen one.
        graph: the program.
        parameters: the model's own names of what every rank holds.
        buffers: likewise.
        attributes: likewise, plain tensors that are neither.
    """
    if candidate.choices is None:
        raise ValueError(f"'{candidate.name}' was rejected: {candidate.reason}")
    flow = graph.to_networkx()
    return StagePlan(
        devices=tuple(range(len(candidate.ranks))),
        choices=tuple(
            OpChoice(
                op.index,
                op.name,
                op.module,
                candidate.choices[op.index],
                tuple(sorted(flow.predecessors(op.index))),
            )
            for op in graph.ops
        ),
        transitions=candidate.transitions,
        inputs=candidate.inputs,
        parameters=tuple(parameters),
        buffers=tuple(buffers),
        attributes=tuple(attributes),
        memory=candidate.memory,
    )


def alternatives(result: SearchResult) -> tuple[Alternative, ...]:
    """Every candidate with its price or its reason, in the search's order."""
    return tuple(_alternative(c, chosen=c is result.best) for c in result.candidates)


def _alternative(candidate: Candidate, *, chosen: bool) -> Alternative:
    prediction = candidate.prediction
    return Alternative(
        name=candidate.name,
        strategy=candidate.strategy,
        devices=len(candidate.ranks),
        step_seconds=None if prediction is None else prediction.step_seconds.value,
        peak_bytes=None if prediction is None else max(p.value for p in prediction.peak_bytes),
        lower_bound_seconds=candidate.lower_bound_seconds,
        reason=candidate.reason,
        chosen=chosen,
    )


def device_uses(candidate: Candidate, cluster: Cluster) -> tuple[DeviceUse, ...]:
    """The devices a candidate runs on, by rank of the plan."""
    uses = []
    for rank, position in enumerate(candidate.ranks):
        device = cluster.devices[position]
        profile = device.profile
        uses.append(
            DeviceUse(
                rank,
                profile.name,
                profile.kind,
                device.host,
                device.memory_bytes,
                profile.torch_device,
                position,
            )
        )
    return tuple(uses)


def partition_use(candidate: Candidate, stats: GraphStats) -> PartitionUse | None:
    """How the graph is cut for a candidate; None where it is not."""
    if candidate.strategy == "single":
        return None
    partition = stats.partitions[len(candidate.ranks)]
    return PartitionUse(
        method=partition.method,
        parts=partition.parts,
        seed=partition.seed,
        cut_edges=partition.cut_edges,
        owned_nodes=tuple(shard.owned_rows[NODE] for shard in partition.shards),
        halo_nodes=tuple(shard.halo_rows.get(NODE, 0) for shard in partition.shards),
        owned_edges=tuple(shard.owned_rows[EDGE] for shard in partition.shards),
    )
