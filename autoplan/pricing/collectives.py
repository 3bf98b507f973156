"""What collectives cost, and the exact bytes each rank hands to them.

Notation: P ranks, n bytes, latency a (seconds per message and peer), bandwidth b (bytes per second of one rank's link).
Every formula is zero on one device and never falls when bytes or latency grow.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1),
2005 (pairwise exchange, binomial tree, ring); P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", JPDC 69(2), 2009 (ring).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoplan.pricing.group import Group

COMMUNICATION_RANGE = (0.4, 3.0)
"""How far a measured collective may lie from its formula, as factors (assumed until links are calibrated)."""
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
"""DistributedDataParallel's bucket sizes: 1 MiB for the first, 25 MiB for the others (torch's defaults)."""


def all_to_all_seconds(group: Group, sent: Sequence[float], received: Sequence[float]) -> float:
    """Exchange of rows, pairwise: one message to each peer, then the bytes of the busier direction.

    Per rank: ``sum over peers of a + max(sent, received) / b``; the slowest rank counts. Bytes are taken to be spread evenly
    over the peers, as a partition's statistics tell only their sum.

    Args:
        group: the ranks.
        sent: payload bytes each rank sends to all others together.
        received: likewise, what each rank receives.
    """
    if group.size == 1:
        return 0.0
    slowest = 0.0
    for position, rank in enumerate(group.ranks):
        share = max(sent[position], received[position]) / (group.size - 1)
        peers = [other for other in group.ranks if other != rank]
        links = [group.cluster.link(rank, other) for other in peers]
        seconds = sum(link.latency_seconds + share / link.bytes_per_s for link in links)
        slowest = max(slowest, seconds)
    return slowest


def all_reduce_seconds(group: Group, size: float) -> float:
    """Sum of ``size`` bytes over all ranks: the better of ring and tree, as libraries switch by size.

    Ring (reduce-scatter, then all-gather): ``2 (P-1) a + 2 (P-1)/P n / b``. Tree (reduce, then broadcast, both binomial):
    ``2 ceil(log2 P) (a + n / b)``. The slowest link of the group counts in both.
    """
    if group.size == 1:
        return 0.0
    return min(ring_all_reduce_seconds(group, size), tree_all_reduce_seconds(group, size))


def ring_all_reduce_seconds(group: Group, size: float) -> float:
    """``2 (P-1) a + 2 (P-1)/P n / b``."""
    latency, bandwidth = slowest_link(group)
    steps = 2 * (group.size - 1)
    return steps * latency + steps / group.size * size / bandwidth if steps else 0.0


def tree_all_reduce_seconds(group: Group, size: float) -> float:
    """``2 ceil(log2 P) (a + n / b)``."""
    latency, bandwidth = slowest_link(group)
    return 2 * math.ceil(math.log2(group.size)) * (latency + size / bandwidth)


def slowest_link(group: Group) -> tuple[float, float]:
    """Greatest latency and least bandwidth between any two ranks of the group."""
    pairs = [(first, second) for first in group.ranks for second in group.ranks if first < second]
    if not pairs:
        return 0.0, math.inf
    links = {group.cluster.link(first, second) for first, second in pairs}
    return (
        max(link.latency_seconds for link in links),
        min(link.bytes_per_s for link in links),
    )


def bucket_sizes(gradient_bytes: Sequence[int]) -> tuple[int, ...]:
    """Bytes of DistributedDataParallel's buckets for parameters of these sizes, filled from the last one on."""
    buckets: list[int] = []
    current = 0
    for size in reversed(gradient_bytes):
        current += size
        limit = BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES
        if current >= limit:
            buckets.append(current)
            current = 0
    if current:
        buckets.append(current)
    return tuple(buckets)
