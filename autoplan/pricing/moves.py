"""Transitions of one tensor between states, priced: exact payload of each rank, seconds, buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoplan.opgraph import DTYPE_BYTES, SUMMED_BYTES, OpGraph, Polynomial, TensorMeta, Work
from autoplan.pricing.collectives import (
    COMMUNICATION_RANGE,
    all_reduce_seconds,
    all_to_all_seconds,
)
from autoplan.pricing.group import Group, RowTable
from autoplan.pricing.table import Price, Pricer, price_works
from autoplan.states import Transition, parts_of, sharded_axis


@dataclass(frozen=True, slots=True)
class PricedMove:
    """One transition of one tensor.

    Attributes:
        tensor: its name; transition: from where to where, by which exchange.
        forward: the price of doing it; backward: of its adjoint, paid where a gradient crosses.
        forward_bytes, backward_bytes: payload each rank hands to the exchange, in each direction.
        buffer_bytes: what each rank holds beside the result while it sends.
    """

    tensor: str
    transition: Transition
    forward: Price
    backward: Price
    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]
    buffer_bytes: tuple[int, ...]


def payload(
    tensor: TensorMeta, transition: Transition, graph: OpGraph, rows: RowTable, group: Group
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Exact payload bytes per rank, forward and of the adjoint.

    Halo exchange: the rows others asked for; its adjoint sends the halo rows back. All-gather: the owned rows to each of
    P-1 peers; its adjoint sends every row owned by others to its owner. All-reduce: the tensor, both ways. Slices: nothing.
    """
    nothing = (0,) * group.size
    if transition.exchange == "none" or group.partition is None:
        return nothing, nothing
    if transition.exchange == "all_reduce":
        size = round(tensor.elements.evaluate(rows["R"][0])) * SUMMED_BYTES[tensor.dtype]
        return (size,) * group.size, (size,) * group.size
    axis = sharded_axis(tensor, graph.axes)
    if axis is None:
        raise ValueError(f"{tensor.name} has no axis to exchange rows of")
    row = row_bytes(tensor, axis, rows)
    shards = group.partition.shards
    parts = parts_of(graph.axes, axis)
    if transition.exchange == "halo_exchange":
        forward = tuple(_sum_of(shard.sent_rows, parts) * row for shard in shards)
        backward = tuple(_sum_of(shard.halo_rows, parts) * row for shard in shards)
        return forward, backward
    whole = round(rows["R"][0][axis])
    owned = [_sum_of(shard.owned_rows, parts) for shard in shards]
    forward = tuple(mine * (group.size - 1) * row for mine in owned)
    backward = tuple((whole - mine) * row for mine in owned)
    return forward, backward


def row_bytes(tensor: TensorMeta, axis: str, rows: RowTable) -> int:
    """Bytes of one row of the tensor along its sharded axis."""
    whole = rows["R"][0]
    size: float = DTYPE_BYTES[tensor.dtype]
    for dim in tensor.dims:
        if dim != axis:
            size *= dim if isinstance(dim, int) else whole[dim]
    return round(size)


def price_moves(
    tensor: TensorMeta, graph: OpGraph, rows: RowTable, group: Group, pricer: Pricer
) -> tuple[PricedMove, ...]:
    """Every transition that an op's output may take on this group, in the order of `Group.transitions`."""
    moves = []
    for transition in group.transitions(tensor, graph.axes):
        sent, returned = payload(tensor, transition, graph, rows, group)
        if transition.exchange == "halo_exchange" and group.closed:
            # owned and halo rows are the owned ones: the same tensor
            free = Price(0.0, 0.0, 0.0, (0.0,) * group.size)
            moves.append(PricedMove(tensor.name, transition, free, free, sent, returned, sent))
            continue
        works = _local_work(tensor, transition, sent, graph, rows, group)
        axis = sharded_axis(tensor, graph.axes)
        parts = () if axis is None else parts_of(graph.axes, axis)
        received = _received(transition, parts, sent, group)
        if transition.exchange == "none":
            there = back = 0.0
        elif transition.exchange == "all_reduce":
            there = back = all_reduce_seconds(group, sent[0])
        else:
            there = all_to_all_seconds(group, sent, received)
            # the adjoint turns every message round
            back = all_to_all_seconds(group, returned, sent)
        name = f"{transition.source}->{transition.target}"
        moves.append(
            PricedMove(
                tensor.name,
                transition,
                _price(name, [work for work, _ in works], tensor, there, group, pricer),
                _price(f"adjoint of {name}", [w for _, w in works], tensor, back, group, pricer),
                sent,
                returned,
                tuple(max(pair) for pair in zip(sent, returned, strict=True)),
            )
        )
    return tuple(moves)


def _price(
    name: str,
    works: list[tuple[Work, ...]],
    tensor: TensorMeta,
    communication: float,
    group: Group,
    pricer: Pricer,
) -> Price:
    local = price_works(name, works, tensor.dtype, ({},) * group.size, group, pricer)
    low, high = COMMUNICATION_RANGE
    return Price(
        local.seconds + communication,
        local.low + communication * low,
        local.high + communication * high,
        local.per_rank,
        communication,
        0,
        local.models,
    )


def _received(
    transition: Transition, parts: Sequence[str], forward: tuple[int, ...], group: Group
) -> tuple[float, ...]:
    """What each rank receives of rows along axes, where every rank sends so much."""
    if transition.exchange == "all_gather":
        share = [sent / (group.size - 1) for sent in forward]
        return tuple(sum(share) - own for own in share)
    if group.partition is None or not any(forward):
        return tuple(map(float, forward))
    shards = group.partition.shards
    rows_sent = sum(_sum_of(shard.sent_rows, parts) for shard in shards)
    row = sum(forward) / rows_sent if rows_sent else 0.0
    return tuple(_sum_of(shard.halo_rows, parts) * row for shard in shards)


def _sum_of(rows: Mapping[str, int], axes: Sequence[str]) -> int:
    return sum(rows.get(axis, 0) for axis in axes)


def _local_work(
    tensor: TensorMeta,
    transition: Transition,
    sent: tuple[int, ...],
    graph: OpGraph,
    rows: RowTable,
    group: Group,
) -> list[tuple[tuple[Work, ...], tuple[Work, ...]]]:
    """What each rank does besides sending, forward and in the adjoint: pick rows, put them together; add, pad with zeros."""
    axis = sharded_axis(tensor, graph.axes)
    row = row_bytes(tensor, axis, rows) if axis else 0
    sizes = {
        state: [tensor.bytes.evaluate(local) for local in rows[state]]
        for state in dict.fromkeys((transition.source, transition.target))
    }
    per_rank: list[tuple[tuple[Work, ...], tuple[Work, ...]]] = []
    works: tuple[tuple[Work, ...], tuple[Work, ...]]
    for position in range(group.size):
        source, target = sizes[transition.source][position], sizes[transition.target][position]
        pad = _work("elementwise", target, source, 0)
        if transition.exchange == "all_reduce":
            copy = _work("elementwise", source, source, 0)
            works = (copy,), (copy,)
        elif transition.exchange == "halo_exchange":
            packed = _work("gather", sent[position], sent[position], row)
            added = _work("scatter", sent[position], sent[position], row)
            works = (packed, _work("elementwise", target, target, 0)), (added, pad)
        elif transition.exchange == "all_gather":
            ordered = _work("gather", target, target, row)
            works = (ordered,), (ordered, pad)
        elif (transition.source, transition.target) == ("H", "O"):
            works = (_work("view", 0.0, 0.0, 0),), (pad,)
        else:
            works = (_work("gather", target, target, row),), (pad,)
        per_rank.append(works)
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
