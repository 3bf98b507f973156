"""Matrix products. Rows stay rows; a contraction over a cut axis is a sum over ranks (``h.t() @ h``)."""

from __future__ import annotations

from autoplan.opgraph import OpStrategy, TensorMeta
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import Dim
from autoplan.trace.rules.call import Call, Output, Ruling, product
from autoplan.trace.rules.placement import by_rows, linear
from autoplan.trace.rules.registry import rule

_LETTERS = {
    "mm": ("self", "mat2", "ik,kj->ij"),
    "bmm": ("self", "mat2", "bik,bkj->bij"),
    "mv": ("self", "vec", "ik,k->i"),
    "dot": ("self", "tensor", "k,k->"),
    "addmm": ("mat1", "mat2", "ik,kj->ij"),
    "addmv": ("mat", "vec", "ik,k->i"),
    "baddbmm": ("batch1", "batch2", "bik,bkj->bij"),
}
"""Operator -> its factors, and which dimensions they share."""


@rule("matmul", *_LETTERS)
def contracted(call: Call) -> Ruling | None:
    """A product of two factors, with an addend in the ``add`` variants."""
    first, second, formula = _LETTERS[call.base]
    left, right = call.tensor(first), call.tensor(second)
    given, out = formula.split("->")
    letters: dict[str, Dim] = {}
    for tensor, names in zip((left, right), given.split(","), strict=True):
        for letter, dim in zip(names, tensor.dims, strict=True):
            if letters.setdefault(letter, dim) != dim:
                return None
    dims = tuple(letters[letter] for letter in out)
    added = [
        product([dim for letter, dim in letters.items() if letter not in kept])
        for kept in (out, *given.split(","))
    ]
    multiplied = product(tuple(letters.values()))
    forward, backward = work.product_of(call, multiplied, dims, (left, right), added)
    addend = call.get("self") if call.base.startswith(("add", "badd")) else None
    strategies: tuple[OpStrategy, ...] = by_rows(call, dims)
    if addend is None and left.name != right.name:
        strategies += linear(call, [left], [right]) + _summed(call, left, right, letters, out)
    return Ruling((Output(dims),), forward, backward, strategies)


@rule("matmul", "typed_matmul")
def by_type(call: Call) -> Ruling:
    """Every row times the matrix of its type."""
    rows, kind, weight = (call.tensor(name) for name in ("x", "kind", "weight"))
    dims = (rows.dims[0], weight.dims[2])
    letters = product((rows.dims[0], weight.dims[1], weight.dims[2]))
    added = (product(weight.dims[1:2]), product(weight.dims[2:]), product(rows.dims[:1]))
    forward, backward = work.product_of(call, letters, dims, (rows, weight), added)
    same = kind.dims == rows.dims[:1] and kind.index is None
    return Ruling((Output(dims),), forward, backward, by_rows(call, dims) if same else ())


def _summed(
    call: Call, left: TensorMeta, right: TensorMeta, letters: dict[str, Dim], out: str
) -> tuple[OpStrategy, ...]:
    """Both factors in O along the axis that they are contracted over: a partial sum."""
    cut = [letter for letter, dim in letters.items() if call.axes.cut((dim,))]
    if len(cut) != 1 or cut[0] in out:
        return ()
    states = {left.name: "O", right.name: "O"}
    return (call.strategy("O", dict.fromkeys(states, "O"), "S"),)
