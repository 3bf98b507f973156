"""What every plan of a group pays in a training step, whatever its states: gradient synchronisation and the optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoplan.opgraph import Polynomial, Work
from autoplan.optimizermemory import optimizer_states
from autoplan.pricing.collectives import COMMUNICATION_RANGE, all_reduce_seconds, bucket_sizes
from autoplan.pricing.group import Group
from autoplan.pricing.memory import ModelTensor
from autoplan.pricing.table import Price, Pricer, price_works


@dataclass(frozen=True, slots=True)
class FixedCosts:
    """Attributes: synchronisation (DistributedDataParallel's all-reduces) and optimizer (the update), per step."""

    synchronisation: Price
    optimizer: Price

    @property
    def seconds(self) -> float:
        """Both."""
        return self.synchronisation.seconds + self.optimizer.seconds


def fixed_costs(
    parameters: Sequence[ModelTensor],
    optimizer: str,
    group: Group,
    pricer: Pricer,
    *,
    training: bool,
) -> FixedCosts:
    """Price the end of a step. Buckets are not taken to overlap with backward.

    The update reads weight, gradient and state and writes weight and state: ``(3 + 2 states) * bytes``. On a CPU torch updates
    parameter by parameter, some ``1 + 4 states`` calls each; elsewhere the calls are fused over all parameters.
    """
    nothing = Price(0.0, 0.0, 0.0, (0.0,) * group.size)
    trained = [p for p in parameters if p.gets_gradient]
    if not training or not trained:
        return FixedCosts(nothing, nothing)
    sizes = [p.bytes for p in trained]
    states = optimizer_states(optimizer)
    calls = round(1 + 4 * states)
    works = []
    for device in group.devices:
        updates = sizes if device.profile.kind == "cpu" else [sum(sizes)]
        moved = [(size * (1 + states) / calls, size * (2 + states) / calls) for size in updates]
        works.append([_update(read, written) for written, read in moved for _ in range(calls)])
    update = price_works("optimizer", works, "float32", ({},) * group.size, group, pricer)
    if group.size == 1:
        return FixedCosts(nothing, update)
    seconds = sum(all_reduce_seconds(group, size) for size in bucket_sizes(sizes))
    low, high = COMMUNICATION_RANGE
    synchronisation = Price(
        seconds, seconds * low, seconds * high, (0.0,) * group.size, seconds, sum(sizes)
    )
    return FixedCosts(synchronisation, update)


def _update(read: float, written: float) -> Work:
    return Work("elementwise", bytes_read=Polynomial.of(read), bytes_written=Polynomial.of(written))
