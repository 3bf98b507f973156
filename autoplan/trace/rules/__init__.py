"""The rules: for each operator its dimensions, its work and the ways it may run on shards (torch).

One small file per family. A rule answers a `Call` with a `Ruling`. Sharding is default-deny: strategy R is always there,
and anything else only where a rule admits it and `trace.build` finds it consistent with what the samples saw.
"""

from autoplan.trace.rules import (
    comparisons,
    concat,
    convolution,
    elementwise,
    factories,
    gather,
    losses,
    matmul,
    normalisation,
    ordering,
    random,
    reads,
    reductions,
    scatter,
    softmax,
    sparse,
    spmm,
    views,
)

FAMILIES = (
    comparisons,
    concat,
    convolution,
    elementwise,
    factories,
    gather,
    losses,
    matmul,
    normalisation,
    ordering,
    random,
    reads,
    reductions,
    scatter,
    softmax,
    sparse,
    spmm,
    views,
)
"""Imported, a family registers its rules."""
