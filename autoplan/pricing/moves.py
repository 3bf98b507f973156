"""Transitions of one tensor between states, priced: exact payload of each rank, seconds, buffers."""

from __future__ import annotations

from dataclasses import dataclass

from autoplan.graphstats import GraphStats
from autoplan.opgraph import DTYPE_BYTES, OpGraph, Polynomial, State, TensorMeta, Work
from autoplan.pricing.collectives import (
    COMMUNICATION_RANGE,
    all_reduce_seconds,
    all_to_all_seconds,
)
from autoplan.pricing.group import Group
from autoplan.pricing.table import Price, Pricer, price_works
from autoplan.states import Transition, sharded_axis, transitions


@dataclass(frozen=True, slots=True)
class PricedMove:
    """One transition of one tensor.

    Attributes:
        tensor: its name; transition: from where to where, by which exchange.
        price: one step's worth, the adjoint included where a gradient crosses.
        forward_bytes, backward_bytes: payload each rank hands to the exchange.
        buffer_bytes: what each rank holds beside the result while it sends.
    """

    tensor: str
    transition: Transition
    price: Price
    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]
    buffer_bytes: tuple[int, ...]


def payload(
    tensor: TensorMeta, transition: Transition, graph: OpGraph, stats: GraphStats, group: Group
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Exact payload bytes per rank, forward and of the adjoint.

    Halo exchange: the rows others asked for; its adjoint sends the halo rows back. All-gather: the owned rows to each of
    P-1 peers; its adjoint sends every row owned by others to its owner. All-reduce: the tensor, both ways. Slices: nothing.
    """
    nothing = (0,) * group.size
    if transition.exchange == "none" or group.partition is None:
        return nothing, nothing
    if transition.exchange == "all_reduce":
        size = round(tensor.bytes.evaluate(group.rows(graph, stats, "R")[0]))
        return (size,) * group.size, (size,) * group.size
    axis = sharded_axis(tensor, graph.axes)
    if axis is None:
        raise ValueError(f"{tensor.name} has no axis to exchange rows of")
    row = row_bytes(tensor, axis, graph, stats, group)
    shards = group.partition.shards
    if transition.exchange == "halo_exchange":
        forward = tuple(shard.sent_rows * row for shard in shards)
        backward = tuple(shard.halo_rows.get(axis, 0) * row for shard in shards)
        return forward, backward
    whole = stats.rows[axis]
    owned = [shard.owned_rows[axis] for shard in shards]
    forward = tuple(rows * (group.size - 1) * row for rows in owned)
    backward = tuple((whole - rows) * row for rows in owned)
    return forward, backward


def row_bytes(
    tensor: TensorMeta, axis: str, graph: OpGraph, stats: GraphStats, group: Group
) -> int:
    """Bytes of one row of the tensor along its sharded axis."""
    whole = group.rows(graph, stats, "R")[0]
    size: float = DTYPE_BYTES[tensor.dtype]
    for dim in tensor.dims:
        if dim != axis:
            size *= dim if isinstance(dim, int) else whole[dim]
    return round(size)


def price_moves(
    tensor: TensorMeta,
    graph: OpGraph,
    stats: GraphStats,
    group: Group,
    pricer: Pricer,
    *,
    training: bool,
) -> tuple[PricedMove, ...]:
    """Every transition that an op's output may take on this group."""
    crosses = training and tensor.reaches_loss and tensor.requires_grad
    moves = []
    for transition in transitions(tensor, graph.axes):
        forward, backward = payload(tensor, transition, graph, stats, group)
        if not crosses:
            backward = (0,) * group.size
        works = _local_work(tensor, transition, forward, backward, crosses, graph, stats, group)
        name = f"{transition.source}->{transition.target}"
        local = price_works(name, works, tensor.dtype, ({},) * group.size, group, pricer)
        communication = _exchange_seconds(transition, forward, backward, crosses, group)
        low, high = COMMUNICATION_RANGE
        price = Price(
            local.seconds + communication,
            local.low + communication * low,
            local.high + communication * high,
            local.per_rank,
            communication,
            0,
            local.models,
        )
        buffers = tuple(max(pair) for pair in zip(forward, backward, strict=True))
        moves.append(PricedMove(tensor.name, transition, price, forward, backward, buffers))
    return tuple(moves)


def _exchange_seconds(
    transition: Transition,
    forward: tuple[int, ...],
    backward: tuple[int, ...],
    crosses: bool,
    group: Group,
) -> float:
    if transition.exchange == "none":
        return 0.0
    if transition.exchange == "all_reduce":
        return all_reduce_seconds(group, forward[0]) * (2 if crosses else 1)
    received = _received(transition, forward, group)
    seconds = all_to_all_seconds(group, forward, received)
    if crosses:
        # the adjoint turns every message round
        seconds += all_to_all_seconds(group, backward, forward)
    return seconds


def _received(transition: Transition, forward: tuple[int, ...], group: Group) -> tuple[float, ...]:
    if transition.exchange == "all_gather":
        share = [sent / (group.size - 1) for sent in forward]
        return tuple(sum(share) - own for own in share)
    if group.partition is None or not any(forward):
        return tuple(map(float, forward))
    shards = group.partition.shards
    rows_sent = sum(shard.sent_rows for shard in shards)
    row = sum(forward) / rows_sent if rows_sent else 0.0
    return tuple(sum(shard.halo_rows.values()) * row for shard in shards)


def _local_work(
    tensor: TensorMeta,
    transition: Transition,
    forward: tuple[int, ...],
    backward: tuple[int, ...],
    crosses: bool,
    graph: OpGraph,
    stats: GraphStats,
    group: Group,
) -> list[tuple[Work, ...]]:
    """What each rank does besides sending: pick rows, put them together, and the adjoint of that."""
    sizes = {state: group.rows(graph, stats, state) for state in ("R", "O", "H")}
    axis = sharded_axis(tensor, graph.axes)
    row = row_bytes(tensor, axis, graph, stats, group) if axis else 0
    per_rank = []
    for position in range(group.size):

        def size(state: State, position: int = position) -> float:
            return tensor.bytes.evaluate(sizes[state if state != "S" else "R"][position])

        source, target = size(transition.source), size(transition.target)
        picked = target if transition.exchange == "none" else forward[position]
        if (transition.source, transition.target) == ("H", "O"):
            works = [_work("view", 0.0, 0.0, 0)]
        elif transition.exchange == "all_reduce":
            works = [_work("elementwise", source, target, 0)]
        else:
            works = [_work("gather", picked, picked, row)]
            if transition.exchange != "none":
                works.append(_work("elementwise", target, target, 0))
        if crosses:
            works.append(_work("elementwise", target, source, 0))
            if transition.exchange == "halo_exchange":
                works.append(_work("scatter", forward[position], forward[position], row))
        per_rank.append(tuple(works))
    return per_rank


def _work(kind: str, read: float, written: float, row: int) -> Work:
    rows = written / row if row else 0.0
    return Work(
        kind=kind,  # type: ignore[arg-type]  # one of Work's literals, see the callers
        bytes_read=Polynomial.of(read),
        bytes_written=Polynomial.of(written),
        nnz=Polynomial.of(rows),
        row_width_bytes=Polynomial.of(row),
    )
