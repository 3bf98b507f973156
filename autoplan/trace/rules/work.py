"""What calls ask of a device, forward and backward, as polynomials in axis rows.

Bytes are those of the arguments and results, each once; caches and kernels that fuse are the devices' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoplan.opgraph import DTYPE_BYTES, Depth, Polynomial, TensorMeta, Work
from autoplan.trace.rules import depth
from autoplan.trace.rules.axes import Dim, Dims
from autoplan.trace.rules.call import Call, product

NOTHING = Work("view")
COSTLY_FLOPS = 8.0
"""What an exponential and the like count as, beside additions and products of one."""


def read(call: Call, tensors: Sequence[TensorMeta]) -> Polynomial:
    """Bytes that these inputs hold."""
    total = Polynomial()
    for tensor in tensors:
        total = total + call.held(tensor)
    return total


def wanted(call: Call) -> list[TensorMeta]:
    """Inputs that may ask for a gradient."""
    return [tensor for tensor in call.inputs if tensor.requires_grad]


def size(dims: Dims, dtype: str) -> Polynomial:
    """Bytes of a tensor."""
    return product(dims) * DTYPE_BYTES[dtype]


def elementwise(call: Call, dims: Dims, flops: float = 1.0) -> tuple[Work, Work]:
    """Some operations for each element of the result; backward reads the gradient and the inputs, writes gradients."""
    elements = product(dims)
    written = size(dims, call.dtypes[0])
    forward = Work(
        "elementwise", elements * flops, read(call, call.inputs), written, depth=depth.ONE
    )
    gradients = wanted(call)
    added = depth.broadcast_back(dims, gradients)
    backward = Work(
        "elementwise",
        elements * (flops * len(gradients)),
        written + read(call, gradients),
        read(call, gradients),
        depth=depth.deepest(call, list(added.values())),
        towards=depth.towards(added),
    )
    return forward, backward


def mixing(call: Call, dims: Dims, over: Sequence[Dim], flops: float = 1.0) -> tuple[Work, Work]:
    """As `elementwise`, with a reduction over some dimensions in each direction (a norm, a running sum)."""
    forward, backward = elementwise(call, dims, flops)
    added = depth.broadcast_back(dims, wanted(call))
    # of the input each entry follows from all that it is mixed with; weights were repeated
    added.update((name, product(over)) for name in added if name == call.inputs[0].name)
    back = depth.deepest(call, list(added.values()))
    return (
        replace(forward, depth=depth.over(over)),
        replace(backward, depth=back, towards=depth.towards(added)),
    )


def softmax(call: Call, dims: Dims, over: Sequence[Dim], *, log: bool) -> tuple[Work, Work]:
    """Largest, difference, exponential, sum and quotient (or difference) of each element.

    Backward: ``y * (g - sum(g * y))``, of the logarithm ``g - exp(y) * sum(g)``; it reads gradient and result.
    """
    elements = product(dims)
    written = size(dims, call.dtypes[0])
    tree = depth.over(over)
    forward = Work(
        "elementwise",
        elements * (COSTLY_FLOPS + 4.0),
        read(call, call.inputs),
        written,
        depth=tree + tree,
    )
    back = elements * (COSTLY_FLOPS + 3.0 if log else 4.0)
    return forward, Work("elementwise", back, written * 2.0, written, depth=tree)


def reduction(call: Call, dims: Dims) -> tuple[Work, Work]:
    """One operation for each element read; backward spreads the gradient."""
    source = call.inputs[0]
    written = size(dims, call.dtypes[0])
    tree = depth.ratio(source.elements, product(dims))
    forward = Work("reduce", source.elements, call.held(source), written, depth=tree)
    backward = Work("elementwise", source.elements, written, call.held(source), depth=depth.ONE)
    return forward, backward


def ordering(call: Call, source: TensorMeta, over: Sequence[Dim]) -> Work:
    """A sort of the entries along some dimensions, or a search in them: a network of log2(n) ** 2 stages.

    It writes as much as it reads, and as much again where it returns positions, too.
    """
    return Work(
        "sort",
        source.elements * SORT_PASSES,
        read(call, call.inputs),
        source.bytes * (2.0 if len(call.shapes) > 1 else 1.0),
        depth=depth.over(over, power=2),
    )


SORT_PASSES = 16.0
"""Comparisons per element that a sort is priced by: the logarithm of a row count around 65,000."""


def product_of(
    call: Call,
    multiplied: Polynomial,
    dims: Dims,
    factors: Sequence[TensorMeta],
    contracted: Sequence[Polynomial] = (),
) -> tuple[Work, Work]:
    """A matrix product of ``2 * multiplied`` operations; backward is one such product for each factor's gradient.

    Args:
        call: the call.
        multiplied: scalar products.
        dims: of the result.
        factors: what is multiplied.
        contracted: how many entries are added up in each element of the result, and of each factor's gradient.
    """
    written = size(dims, call.dtypes[0])
    added = contracted or (product(factors[-1].dims),) * (len(factors) + 1)
    forward = Work(
        "dense",
        multiplied * 2.0,
        read(call, call.inputs),
        written,
        depth=Depth.over(added[0]),
    )
    gradients = [tensor for tensor in factors if tensor.requires_grad]
    sums = {
        tensor.name: rows
        for tensor, rows in zip(factors, added[1:], strict=True)
        if tensor.requires_grad
    }
    backward = Work(
        "dense",
        multiplied * (2.0 * len(gradients)),
        written * float(len(gradients)) + read(call, factors),
        read(call, wanted(call)),
        depth=depth.deepest(call, list(sums.values())),
        towards=depth.towards(sums),
    )
    return forward, backward


def spmm(
    call: Call,
    dense: TensorMeta,
    dims: Dims,
    parts: Sequence[TensorMeta],
    nnz: Polynomial,
    ends: tuple[TensorMeta, TensorMeta] | None = None,
) -> tuple[Work, Work]:
    """A sparse matrix times a dense one: ``2 * nnz`` operations for each column; bytes of all arguments once.

    Backward: the transposed matrix times the gradient, and for values that ask for a gradient a product of rows for each.

    Args:
        call: the call.
        dense: the dense factor, rows first.
        dims: of the result, rows first.
        parts: tensors that make up the sparse factor: positions and values.
        nnz: its entries.
        ends: rows and columns of the entries, where both are known one by one (COO).
    """
    columns = product(dims[1:])
    written = size(dims, call.dtypes[0])
    width = columns * DTYPE_BYTES[dense.dtype]
    cells = product((dims[0], dense.dims[0]))
    trees = [depth.colliding(call, end) for end in ends or ()] or [Depth.over(nnz)]
    given = read(call, parts) + call.held(dense)
    flops = nnz * columns * 2.0
    forward = Work("spmm", flops, given, written, nnz, width, cells=cells, depth=trees[0])
    values = [tensor for tensor in parts if tensor.requires_grad]
    times = float(dense.requires_grad) + float(bool(values))
    backward = Work(
        "spmm",
        flops * times,
        read(call, parts) + written + (call.held(dense) if values else Polynomial()),
        read(call, [*values, *([dense] if dense.requires_grad else [])]),
        nnz,
        width,
        cells=cells,
        depth=trees[-1],
    )
    return forward, backward


def gather(
    call: Call,
    source: TensorMeta,
    index: TensorMeta,
    dims: Dims,
    at: int,
    rows: Sequence[Dim] | None = None,
) -> tuple[Work, Work]:
    """Rows of ``source`` read at random, along dimension ``at`` of the result; backward adds them where they came from.

    Args:
        call: the call.
        source: what is read.
        index: positions, or a mask.
        dims: of the result.
        at: its first dimension that counts rows read.
        rows: the dimensions from there on that do; None: that one.
    """
    along = dims[at : at + 1] if rows is None else tuple(rows)
    written = size(dims, call.dtypes[0])
    nnz, width = _rows(dims, at, len(along), call.dtypes[0])
    touched = written + call.held(index)
    moved_elements = product(dims)
    cells = nnz * product(source.dims[at : at + 1])
    masked = index.dtype in ("bool", "uint8")
    # where a row goes, a mask says only together with all rows before it
    there = depth.over(index.dims) if masked else depth.ONE
    back = depth.ONE if masked else depth.colliding(call, index, _row_dim(index, at))
    forward = Work(
        "gather", Polynomial(), touched, written, nnz, width, moved_elements, cells, there
    )
    # the source's gradient starts as zeros; every gathered row is read and added
    backward = Work(
        "scatter", moved_elements, touched, call.held(source), nnz, width, cells=cells, depth=back
    )
    return forward, backward


def scatter(
    call: Call, target: TensorMeta, source: TensorMeta | None, index: TensorMeta, at: int
) -> tuple[Work, Work]:
    """Rows added to, compared with or put into ``target`` at random along dimension ``at``; backward gathers them."""
    row = _row_dim(index, at)
    along = index.dims[row] if index.dims else 1
    dims = (*target.dims[:at], along, *target.dims[at + 1 :])
    nnz, width = _rows(dims, at, 1, target.dtype)
    written = size(dims, target.dtype)
    read_once = call.held(index)
    given = read_once + call.held(source) if source is not None else read_once
    cells = nnz * product(target.dims[at : at + 1])
    elements = product(dims)
    puts = _puts(call)
    tree = depth.ONE if puts else depth.colliding(call, index, row)
    none = Polynomial()
    computed, moved = (none, elements) if puts else (elements, none)
    forward = Work("scatter", computed, given, target.bytes, nnz, width, moved, cells, tree)
    backward = Work(
        "gather",
        Polynomial(),
        written + read_once,
        written,
        nnz,
        width,
        elements,
        cells,
        depth.ONE,
    )
    return forward, backward


def moved(call: Call, dims: Dims) -> tuple[Work, Work]:
    """Elements copied, nothing computed."""
    written = size(dims, call.dtypes[0])
    elements = product(dims)
    forward = Work(
        "elementwise",
        bytes_read=read(call, call.inputs),
        bytes_written=written,
        moves=elements,
        depth=depth.ONE,
    )
    backward = Work(
        "elementwise",
        bytes_read=written,
        bytes_written=read(call, wanted(call)),
        moves=elements,
        depth=depth.ONE,
    )
    return forward, backward


def made(dims: Dims, dtype: str, kind: str = "elementwise") -> tuple[Work, Work]:
    """A tensor written from nothing, or drawn (``kind`` random)."""
    written = size(dims, dtype)
    elements = product(dims)
    if kind == "random":
        return Work("random", elements, bytes_written=written, depth=depth.ONE), NOTHING
    return Work("elementwise", bytes_written=written, moves=elements, depth=depth.ONE), NOTHING


def unknown(call: Call, outputs: Sequence[Dims]) -> tuple[Work, Work]:
    """An operator that no rule covers: priced by the sizes of its tensors, backward as twice that.

    Its depth is that of a reduction over the largest of its tensors, the most that most operators need.
    """
    written = Polynomial()
    elements = Polynomial()
    for dims, dtype in zip(outputs, call.dtypes, strict=True):
        written = written + size(dims, dtype)
        elements = elements + product(dims)
    tree = deep(call)
    forward = Work("other", elements, read(call, call.inputs), written, depth=tree)
    return forward, Work(
        "other",
        elements * 2.0,
        read(call, call.inputs) + written,
        read(call, wanted(call)),
        depth=tree,
    )


def deep(call: Call) -> Depth:
    """A reduction over the largest input, the most that most operators need."""
    return depth.deepest(call, [tensor.elements for tensor in call.inputs])


def _puts(call: Call) -> bool:
    """Whether rows are put in place of what is there, and not added to it or compared with it."""
    if "index_put" in call.base:
        return not call.get("accumulate")
    return call.base in ("index_copy", "index_fill") or (
        call.base == "scatter" and call.get("reduce") is None
    )


def _row_dim(index: TensorMeta, at: int) -> int:
    """Which dimension of an index counts rows: that of the tensor it indexes, unless it is a list."""
    return at if len(index.dims) > at else 0


def _rows(dims: Dims, at: int, count: int, dtype: str) -> tuple[Polynomial, Polynomial]:
    """Number of rows along some dimensions, and bytes of one."""
    rest = (*dims[:at], *dims[at + count :])
    return product(dims[at : at + count]), product(rest) * DTYPE_BYTES[dtype]
