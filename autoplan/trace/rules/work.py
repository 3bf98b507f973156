"""What calls ask of a device, forward and backward, as polynomials in axis rows.

Bytes are those of the arguments and results, each once; caches and kernels that fuse are the devices' business.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.opgraph import DTYPE_BYTES, Polynomial, TensorMeta, Work
from autoplan.trace.rules.axes import Dims
from autoplan.trace.rules.call import Call, product

NOTHING = Work("view")


def read(tensors: Sequence[TensorMeta]) -> Polynomial:
    """Bytes of these tensors."""
    total = Polynomial()
    for tensor in tensors:
        total = total + tensor.bytes
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
    forward = Work("elementwise", elements * flops, read(call.inputs), written)
    gradients = wanted(call)
    backward = Work(
        "elementwise",
        elements * (flops * len(gradients)),
        written + read(gradients),
        read(gradients),
    )
    return forward, backward


def reduction(call: Call, dims: Dims) -> tuple[Work, Work]:
    """One operation for each element read; backward spreads the gradient."""
    source = call.inputs[0]
    written = size(dims, call.dtypes[0])
    forward = Work("reduce", source.elements, source.bytes, written)
    return forward, Work("elementwise", source.elements, written, source.bytes)


def product_of(
    call: Call, multiplied: Polynomial, dims: Dims, factors: Sequence[TensorMeta]
) -> tuple[Work, Work]:
    """A matrix product of ``2 * multiplied`` operations; backward is one such product for each factor's gradient."""
    written = size(dims, call.dtypes[0])
    forward = Work("dense", multiplied * 2.0, read(call.inputs), written)
    gradients = [tensor for tensor in factors if tensor.requires_grad]
    backward = Work(
        "dense",
        multiplied * (2.0 * len(gradients)),
        written * float(len(gradients)) + read(factors),
        read(wanted(call)),
    )
    return forward, backward


def gather(call: Call, source: TensorMeta, index: TensorMeta, dims: Dims) -> tuple[Work, Work]:
    """Rows of ``source`` read at random; backward adds them to where they came from."""
    written = size(dims, call.dtypes[0])
    rows = _rows(index)
    width = _width(dims, index, call.dtypes[0])
    forward = Work(
        "gather",
        bytes_read=written + index.bytes,
        bytes_written=written,
        nnz=rows,
        row_width_bytes=width,
    )
    backward = Work(
        "scatter",
        product(dims),
        written + index.bytes,
        source.bytes,
        rows,
        width,
    )
    return forward, backward


def scatter(
    call: Call, target: TensorMeta, source: TensorMeta | None, index: TensorMeta
) -> tuple[Work, Work]:
    """Rows added (or compared) into ``target`` at random; backward gathers them."""
    moved = source if source is not None else index
    dims = moved.dims
    width = _width(dims, index, target.dtype)
    rows = _rows(index)
    forward = Work(
        "scatter",
        product(dims),
        moved.bytes + index.bytes,
        target.bytes,
        rows,
        width,
    )
    backward = Work("gather", Polynomial(), moved.bytes + index.bytes, moved.bytes, rows, width)
    return forward, backward


def moved(call: Call, dims: Dims) -> tuple[Work, Work]:
    """Elements copied, nothing computed."""
    written = size(dims, call.dtypes[0])
    forward = Work("elementwise", bytes_read=read(call.inputs), bytes_written=written)
    return forward, Work("elementwise", bytes_read=written, bytes_written=read(wanted(call)))


def made(dims: Dims, dtype: str, kind: str = "elementwise") -> tuple[Work, Work]:
    """A tensor written from nothing, or drawn (``kind`` random)."""
    written = size(dims, dtype)
    if kind == "random":
        return Work("random", product(dims), bytes_written=written), NOTHING
    return Work("elementwise", bytes_written=written), NOTHING


def unknown(call: Call, outputs: Sequence[Dims]) -> tuple[Work, Work]:
    """An operator that no rule covers: priced by the sizes of its tensors, backward as twice that."""
    written = Polynomial()
    elements = Polynomial()
    for dims, dtype in zip(outputs, call.dtypes, strict=True):
        written = written + size(dims, dtype)
        elements = elements + product(dims)
    forward = Work("other", elements, read(call.inputs), written)
    return forward, Work("other", elements * 2.0, read(call.inputs) + written, read(wanted(call)))


def _rows(index: TensorMeta) -> Polynomial:
    """Rows that an index names: its length along the cut dimension, or all its elements."""
    return product(index.dims[:1]) if index.dims else Polynomial.of(1)


def _width(dims: Dims, index: TensorMeta, dtype: str) -> Polynomial:
    rest = dims[1:] if dims else ()
    return product(rest) * DTYPE_BYTES[dtype]
