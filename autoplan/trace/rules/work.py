"""What calls ask of a device, forward and backward, as polynomials in axis rows.

Bytes are those of the arguments and results, each once; caches and kernels that fuse are the devices' business.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoplan.opgraph import DTYPE_BYTES, Polynomial, TensorMeta, Work
from autoplan.trace.rules.axes import Dims
from autoplan.trace.rules.call import Call, product

NOTHING = Work("view")


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
    forward = Work("elementwise", elements * flops, read(call, call.inputs), written)
    gradients = wanted(call)
    backward = Work(
        "elementwise",
        elements * (flops * len(gradients)),
        written + read(call, gradients),
        read(call, gradients),
    )
    return forward, backward


def reduction(call: Call, dims: Dims) -> tuple[Work, Work]:
    """One operation for each element read; backward spreads the gradient."""
    source = call.inputs[0]
    written = size(dims, call.dtypes[0])
    forward = Work("reduce", source.elements, call.held(source), written)
    return forward, Work("elementwise", source.elements, written, call.held(source))


def product_of(
    call: Call, multiplied: Polynomial, dims: Dims, factors: Sequence[TensorMeta]
) -> tuple[Work, Work]:
    """A matrix product of ``2 * multiplied`` operations; backward is one such product for each factor's gradient."""
    written = size(dims, call.dtypes[0])
    forward = Work("dense", multiplied * 2.0, read(call, call.inputs), written)
    gradients = [tensor for tensor in factors if tensor.requires_grad]
    backward = Work(
        "dense",
        multiplied * (2.0 * len(gradients)),
        written * float(len(gradients)) + read(call, factors),
        read(call, wanted(call)),
    )
    return forward, backward


def gather(
    call: Call, source: TensorMeta, index: TensorMeta, dims: Dims, at: int
) -> tuple[Work, Work]:
    """Rows of ``source`` read at random, along dimension ``at`` of the result; backward adds them where they came from."""
    written = size(dims, call.dtypes[0])
    rows, width = _rows(dims, at, call.dtypes[0])
    touched = written + call.held(index)
    forward = Work("gather", Polynomial(), touched, written, rows, width)
    backward = Work("scatter", product(dims), touched, call.held(source), rows, width)
    return forward, backward


def scatter(
    call: Call, target: TensorMeta, source: TensorMeta | None, index: TensorMeta, at: int
) -> tuple[Work, Work]:
    """Rows added (or compared) into ``target`` at random along dimension ``at``; backward gathers them."""
    along = index.dims[at] if len(index.dims) > 1 else index.dims[0]
    dims = (*target.dims[:at], along, *target.dims[at + 1 :])
    rows, width = _rows(dims, at, target.dtype)
    written = size(dims, target.dtype)
    read_once = call.held(index)
    given = read_once + call.held(source) if source is not None else read_once
    forward = Work("scatter", product(dims), given, target.bytes, rows, width)
    backward = Work("gather", Polynomial(), written + read_once, written, rows, width)
    return forward, backward


def moved(call: Call, dims: Dims) -> tuple[Work, Work]:
    """Elements copied, nothing computed."""
    written = size(dims, call.dtypes[0])
    forward = Work("elementwise", bytes_read=read(call, call.inputs), bytes_written=written)
    return forward, Work("elementwise", bytes_read=written, bytes_written=read(call, wanted(call)))


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
    forward = Work("other", elements, read(call, call.inputs), written)
    return forward, Work(
        "other", elements * 2.0, read(call, call.inputs) + written, read(call, wanted(call))
    )


def _rows(dims: Dims, at: int, dtype: str) -> tuple[Polynomial, Polynomial]:
    """Number of rows along a dimension, and bytes of one."""
    return product(dims[at : at + 1]), product((*dims[:at], *dims[at + 1 :])) * DTYPE_BYTES[dtype]
