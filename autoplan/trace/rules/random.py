"""Random draws. A mask of dropout has one draw per row of the whole graph, wherever the row lies; the rest runs whole."""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.placement import by_rows
from autoplan.trace.rules.registry import rule


@rule("random", "bernoulli")
def bernoulli(call: Call) -> Ruling:
    """Drawn by a hash of seed, step, op, row and column."""
    source = call.inputs[0]
    forward, backward = work.made(source.dims, call.dtypes[0], "random")
    rows = by_rows(call, source.dims, kernel="keyed_bernoulli")
    return Ruling((Output(source.dims),), forward, backward, rows, "keyed_bernoulli")


@rule(
    "random",
    *[
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "normal",
        "uniform",
        "exponential",
        "random",
        "multinomial",
        "poisson",
        "binomial",
        "native_dropout",
        "geometric",
        "cauchy",
        "log_normal",
        "rrelu_with_noise",
    ],
)
def whole(call: Call) -> Ruling:
    """Drawn whole on every rank, from one seed."""
    dims = tuple(call.matched(output) for output in range(len(call.shapes)))
    forward, backward = work.made(dims[0], call.dtypes[0], "random")
    return Ruling(tuple(map(Output, dims)), forward, backward, (), "seeded_random")
