"""From a search's answer to the parts of a `PlanData`."""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.device import Cluster
from autoplan.graphstats import GraphStats, PartitionStats
from autoplan.opgraph import OpGraph, is_node_axis
from autoplan.plan import (
    Alternative,
    DeviceUse,
    OpChoice,
    PartitionUse,
    PipelineUse,
    StagePlan,
    TypeRows,
)
from autoplan.search.result import Candidate, SearchResult, StagePart
from autoplan.stages import unknown_axes


def stage_plans(
    candidate: Candidate,
    graph: OpGraph,
    *,
    parameters: Sequence[str] = (),
    buffers: Sequence[str] = (),
    attributes: Sequence[str] = (),
) -> tuple[StagePlan, ...]:
    """The stages of a candidate that has a price; one where there is one group of devices. ``devices`` are ranks of the plan.

    Args:
        candidate: the chosen one.
        graph: the program.
        parameters: the model's own names. With several stages each has those that its ops read.
        buffers: likewise.
        attributes: likewise, plain tensors that are neither.
    """
    if candidate.choices is None or candidate.prediction is None:
        raise ValueError(f"'{candidate.name}' was rejected: {candidate.reason}")
    flow = graph.to_networkx()
    choices = {
        op.index: OpChoice(
            op.index,
            op.name,
            op.module,
            candidate.choices[op.index],
            tuple(sorted(flow.predecessors(op.index))),
        )
        for op in graph.ops
    }
    if candidate.stage_of is None:
        return (
            StagePlan(
                devices=tuple(range(len(candidate.ranks))),
                choices=tuple(choices.values()),
                transitions=candidate.transitions,
                inputs=candidate.inputs,
                parameters=tuple(parameters),
                buffers=tuple(buffers),
                attributes=tuple(attributes),
                memory=candidate.memory,
                busy_seconds=candidate.prediction.step_seconds.value,
            ),
        )
    count = len(candidate.stages)
    return tuple(
        StagePlan(
            devices=tuple(replica * count + number for replica in range(candidate.replicas)),
            choices=tuple(choices[op] for op in part.ops),
            transitions=part.transitions,
            inputs=part.inputs,
            parameters=_read(part, parameters),
            buffers=_read(part, buffers),
            attributes=_read(part, attributes),
            memory=part.memory,
            sends=part.sends,
            busy_seconds=part.busy_seconds,
        )
        for number, part in enumerate(candidate.stages)
    )


def _read(part: StagePart, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names that a stage reads, in their order; a step calls them by one more name in front."""
    read = {name for source in part.sources for name in (source, source.partition(".")[2])}
    return tuple(name for name in names if name in read)


def pipeline_use(candidate: Candidate) -> PipelineUse | None:
    """How the stages work together; None where there is one group of devices."""
    if candidate.stage_of is None:
        return None
    return PipelineUse(
        schedule=candidate.schedule,
        micro_batches=candidate.micro_batches,
        replicas=candidate.replicas,
        bubble=candidate.bubble,
    )


def estimated_sends(candidate: Candidate, graph: OpGraph) -> tuple[str, ...]:
    """Tensors between stages whose rows only the data decide (what a mask selects): their bytes are estimates, all else exact."""
    sent = [transfer.tensor for part in candidate.stages for transfer in part.sends]
    return tuple(
        name for name in dict.fromkeys(sent) if unknown_axes([graph.tensors[name]], graph.axes)
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
    """How the graph is cut for a candidate, a pipeline's into the parts of all replicas; None where it is not."""
    if candidate.stage_of is None:
        parts = len(candidate.ranks)
    else:
        parts = candidate.replicas * candidate.micro_batches
    if parts == 1:
        return None
    return cut_use((stats.closed if candidate.closed else stats.partitions)[parts])


def cut_use(partition: PartitionStats) -> PartitionUse:
    """What a plan keeps of a partition."""
    return PartitionUse(
        method=partition.method,
        parts=partition.parts,
        seed=partition.seed,
        cut_edges=partition.cut_edges,
        owned_nodes=tuple(shard.nodes for shard in partition.shards),
        halo_nodes=tuple(shard.halo for shard in partition.shards),
        owned_edges=tuple(shard.edges for shard in partition.shards),
        types=_type_rows(partition),
    )


def _type_rows(partition: PartitionStats) -> tuple[TypeRows, ...]:
    """Rows of every node type; nothing where there is one."""
    shards = partition.shards
    axes = [axis for axis in shards[0].owned_rows if is_node_axis(axis)]
    if len(axes) < 2:
        return ()
    return tuple(
        TypeRows(
            axis,
            tuple(shard.owned_rows[axis] for shard in shards),
            tuple(shard.halo_rows.get(axis, 0) for shard in shards),
        )
        for axis in axes
    )
