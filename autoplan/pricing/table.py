"""The cost table: every op under every strategy, priced once, before the search starts. The search sees numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from autoplan.cost import Cost, CostModel, WorkSizes
from autoplan.device import DeviceProfile
from autoplan.errors import DeviceError
from autoplan.graphstats import GraphStats
from autoplan.opgraph import (
    DTYPE_BYTES,
    SUMMED_BYTES,
    Collective,
    Op,
    OpGraph,
    OpStrategy,
    Work,
)
from autoplan.pricing.collectives import (
    COMMUNICATION_RANGE,
    all_reduce_seconds,
    all_to_all_seconds,
)
from autoplan.pricing.group import Group
from autoplan.pricing.roofline import Roofline

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A cost model that raised or answered nonsense; the next one was asked instead."""

    model: str
    op: str
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class Price:
    """What something costs in one step.

    Attributes:
        seconds: of the slowest rank, with the range ``low`` to ``high``; per_rank: of each rank, local work only.
        communication: the part of ``seconds`` that is spent in collectives.
        payload: bytes that each rank hands to those collectives.
        models: names of the cost models that priced it.
        exchanged: bytes that each rank sends beside ``payload``, in rank order; empty: none.
    """

    seconds: float
    low: float
    high: float
    per_rank: tuple[float, ...]
    communication: float = 0.0
    payload: int = 0
    models: tuple[str, ...] = ()
    exchanged: tuple[int, ...] = ()


class Pricer:
    """Asks cost models in the order of their accuracy; remembers answers and failures.

    Args:
        models: the plugins' models; the built-in roofline is asked last.
    """

    def __init__(self, models: Sequence[CostModel] = ()) -> None:
        given = [model for model in models if not isinstance(model, Roofline)]
        self._models: tuple[CostModel, ...] = (*given, Roofline())
        self._known: dict[tuple[WorkSizes, str], tuple[Cost, str]] = {}
        self._failures: dict[tuple[str, str, str], ModelFailure] = {}

    @property
    def failures(self) -> tuple[ModelFailure, ...]:
        """One entry per model, device and reason, the first op each."""
        return tuple(self._failures.values())

    def price(self, work: WorkSizes, profile: DeviceProfile) -> tuple[Cost, str]:
        """The cost of one call and the name of the model that told it.

        Raises:
            DeviceError: no model prices this op on this device; the message says what is missing.
        """
        key = (work, profile.name)
        if key not in self._known:
            self._known[key] = self._ask(work, profile)
        return self._known[key]

    def _ask(self, work: WorkSizes, profile: DeviceProfile) -> tuple[Cost, str]:
        ranked: list[tuple[float, int, CostModel]] = []
        for position, model in enumerate(self._models):
            accuracy = self._guarded(model, work, profile, model.accuracy)
            if accuracy is None:
                continue
            if not 0 < accuracy <= 1:
                self._record(model, work, profile, f"accuracy {accuracy!r} is not in (0, 1]")
                continue
            ranked.append((-accuracy, position, model))
        for _, _, model in sorted(ranked, key=lambda entry: entry[:2]):
            cost = self._guarded(model, work, profile, model.estimate)
            if cost is None:
                continue
            nonsense = _nonsense(cost)
            if nonsense is None:
                return cost, model.name
            self._record(model, work, profile, nonsense)
        missing = Roofline().missing(work, profile)
        raise DeviceError(
            f"no cost model prices {work.op} ({work.kind}, {work.dtype}) on {profile.name}: "
            f"{missing or 'every model declined'}; add the figure to the device's profile or install a plugin that prices it"
        )

    def _guarded(
        self,
        model: CostModel,
        work: WorkSizes,
        profile: DeviceProfile,
        call: Callable[[WorkSizes, DeviceProfile], _T],
    ) -> _T | None:
        try:
            return call(work, profile)
        except Exception as error:  # a plugin's code: whatever it raises, the next model is asked
            self._record(model, work, profile, f"{type(error).__name__}: {error}")
            return None

    def _record(
        self, model: CostModel, work: WorkSizes, profile: DeviceProfile, reason: str
    ) -> None:
        key = (model.name, profile.name, reason)
        self._failures.setdefault(key, ModelFailure(model.name, work.op, profile.name, reason))


def _nonsense(cost: Cost) -> str | None:
    for name in ("seconds", "low", "high", "bytes"):
        value = getattr(cost, name, None)
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            return f"{name} = {value!r} is not a finite number >= 0"
    if not cost.low <= cost.seconds <= cost.high:
        return f"not low <= seconds <= high: {cost.low!r}, {cost.seconds!r}, {cost.high!r}"
    return None


@dataclass(frozen=True, slots=True)
class CostTable:
    """Prices of one group.

    Attributes:
        ops: by op index and strategy name, forward and (in training) backward together.
        failures: cost models that failed on the way.
    """

    ops: Mapping[tuple[int, str], Price]
    failures: tuple[ModelFailure, ...] = field(default=())


def price_table(
    graph: OpGraph, stats: GraphStats, group: Group, pricer: Pricer, *, training: bool
) -> CostTable:
    """Price every op under each of its strategies that this group can run.

    One rank has nothing to share, so that only the strategy ``R`` is priced there.

    Raises:
        DeviceError: no cost model prices some op on some device of the group.
    """
    states = sorted({strategy.rows for op in graph.ops for strategy in op.strategies})
    rows = {state: group.rows(graph, stats, state) for state in states}
    prices: dict[tuple[int, str], Price] = {}
    for op in graph.ops:
        for strategy in op.strategies:
            if strategy.lossy is not None or (group.size == 1 and strategy.name != "R"):
                continue
            prices[op.index, strategy.name] = price_op(
                graph, op, strategy, rows[strategy.rows], group, pricer, training=training
            )
    return CostTable(prices, pricer.failures)


def price_op(
    graph: OpGraph,
    op: Op,
    strategy: OpStrategy,
    rows: Sequence[Mapping[str, float]],
    group: Group,
    pricer: Pricer,
    *,
    training: bool,
) -> Price:
    """One op under one strategy; ``rows`` are the axes' rows on each rank."""
    works = [op.forward]
    if training and op.backward is not None:
        works.append(op.backward)
    same = (tuple(works),) * group.size
    local = price_works(op.name, same, op_dtype(graph, op), rows, group, pricer)
    if group.size == 1 or not strategy.collectives:
        return local
    payload = 0
    exchanged = (0,) * group.size
    communication = 0.0
    for collective in strategy.collectives:
        times = collective.forward, collective.backward if training else 0
        if collective.axis is not None:
            sent, seconds = _halo_sum(collective, times, group)
            exchanged = tuple(map(sum, zip(exchanged, sent, strict=True)))
            communication += seconds
            continue
        size = collective.elements * SUMMED_BYTES[collective.dtype]
        payload += sum(times) * size
        communication += sum(times) * all_reduce_seconds(group, size)
    low, high = COMMUNICATION_RANGE
    return Price(
        local.seconds + communication,
        local.low + communication * low,
        local.high + communication * high,
        local.per_rank,
        communication,
        payload,
        local.models,
        exchanged,
    )


def _halo_sum(
    collective: Collective, times: tuple[int, int], group: Group
) -> tuple[tuple[int, ...], float]:
    """Payload of each rank and seconds of sums of halo rows into their owners, forward and backward so many times."""
    row = collective.elements * DTYPE_BYTES[collective.dtype]
    shards = group.partition.shards if group.partition is not None else ()
    axis = str(collective.axis)
    halo = tuple(shard.halo_rows.get(axis, 0) * row for shard in shards)
    owned = tuple(shard.sent_rows.get(axis, 0) * row for shard in shards)
    forward, backward = times
    sent = tuple(forward * h + backward * o for h, o in zip(halo, owned, strict=True))
    there, back = all_to_all_seconds(group, halo, owned), all_to_all_seconds(group, owned, halo)
    return sent, forward * there + backward * back


def price_works(
    name: str,
    works: Sequence[Iterable[Work]],
    dtype: str,
    rows: Sequence[Mapping[str, float]],
    group: Group,
    pricer: Pricer,
) -> Price:
    """The local work of each rank, one piece after the other; the slowest rank counts."""
    costs: list[Cost] = []
    models: dict[str, None] = {}
    for position, device in enumerate(group.devices):
        seconds = low = high = moved = 0.0
        for work in works[position]:
            sizes = WorkSizes(
                op=name,
                kind=work.kind,
                dtype=dtype,
                flops=work.flops.evaluate(rows[position]),
                bytes_read=work.bytes_read.evaluate(rows[position]),
                bytes_written=work.bytes_written.evaluate(rows[position]),
                nnz=work.nnz.evaluate(rows[position]),
                row_width_bytes=work.row_width_bytes.evaluate(rows[position]),
                threads=group.threads[position],
                concurrency=group.concurrency[position],
            )
            cost, model = pricer.price(sizes, device.profile)
            models[model] = None
            seconds += cost.seconds
            low += cost.low
            high += cost.high
            moved += cost.bytes
        costs.append(Cost(seconds, moved, low, high))
    slowest = max(costs, key=lambda cost: cost.seconds)
    return Price(
        slowest.seconds,
        slowest.low,
        slowest.high,
        tuple(cost.seconds for cost in costs),
        models=tuple(models),
    )


def op_dtype(graph: OpGraph, op: Op) -> str:
    """The floating dtype it computes in, else that of its first tensor."""
    names = (*op.outputs, *op.inputs)
    dtypes = [graph.tensors[name].dtype for name in names if name in graph.tensors]
    floats = [dtype for dtype in dtypes if "float" in dtype]
    return next(iter(floats or dtypes), "float32")
