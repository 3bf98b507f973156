"""Sparse tensors made, taken apart and converted: whole, as their entries have no place in a partition."""

from __future__ import annotations

from autoplan.trace.rules import work
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.registry import rule


@rule(
    "sparse",
    "_sparse_coo_tensor_unsafe",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_sparse_compressed_tensor_unsafe",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "_to_sparse",
    "_to_sparse_csr",
    "_to_sparse_csc",
    "_to_dense",
    "_coalesce",
    "_coalesced",
    "coalesce",
)
def converted(call: Call) -> Ruling:
    """Every stored entry and its place, read and written once."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    return Ruling(outputs, *work.moved(call, call.inputs[0].dims))


@rule(
    "sparse",
    "indices",
    "_indices",
    "values",
    "_values",
    "crow_indices",
    "col_indices",
    "ccol_indices",
    "row_indices",
)
def parts(call: Call) -> Ruling:
    """What a sparse tensor is made of: no data moves."""
    outputs = tuple(Output(call.matched(k)) for k in range(len(call.shapes)))
    return Ruling(outputs, work.NOTHING, work.NOTHING)
