"""Sparse products. A row of the result lies with the owner of its entries; columns are read as positions: sources need the halo."""

from __future__ import annotations

from dataclasses import replace

from autoplan.opgraph import State, TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling, product
from autoplan.trace.rules.gather import state_of
from autoplan.trace.rules.registry import rule


@rule("spmm", "spmm", "spmm_extreme")
def sparse_product(call: Call) -> Ruling | None:
    """Rows of ``dense`` weighted and added (or compared) into ``rows`` rows, one for each entry of the matrix."""
    row, column, dense = (call.tensor(name) for name in ("row", "column", "dense"))
    given = call.arguments["weight"]
    weight = given if isinstance(given, TensorMeta) else None
    rows = call.numbers.dim(call.arguments["rows"])
    if rows is None:
        return None
    dims = (rows, *dense.dims[1:])
    parts = [tensor for tensor in (row, column, weight) if tensor is not None]
    forward, backward = work.spmm(call, dense, dims, parts, product(row.dims), (row, column))
    if weight is None:
        # nothing is multiplied
        forward = replace(forward, flops=forward.flops * 0.5)
        backward = replace(backward, flops=backward.flops * 0.5)
    outputs = (Output(dims),) * len(call.shapes)
    plain = Ruling(outputs, forward, backward)
    need = state_of(call, dense.dims[0], column.index)
    at = row.index
    owned = at is not None and at.axis == rows and call.axes.is_whole(at) and len(at.ends) == 1
    aligned = all(part.dims == row.dims for part in parts) and call.sharded(row) is not None
    others = call.axes.cut(dense.dims) == (0,) and dense.index is None
    if need is None or not owned or not aligned or not others or row.name == column.name:
        return plain
    states: dict[str, State] = {part.name: "O" for part in parts}
    strategies = (call.strategy("O", {**states, dense.name: need}, "O"),)
    return Ruling(outputs, forward, backward, strategies, reads_positions=True)
