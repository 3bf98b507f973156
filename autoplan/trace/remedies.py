"""What to do about an error that a model or a loss raised on a graph: the hint behind PyTorch's own message (torch)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from autoplan.trace.attributes import AttributeSpec, dtype_name
from autoplan.trace.schema import GraphSchema

_WIDTHS = (
    "shapes cannot be multiplied",
    "size mismatch",
    "must match the size",
    "normalized_shape",
)


def remedy(
    error: Exception, message: str, used: Sequence[str], module: nn.Module, schema: GraphSchema
) -> str:
    """A clause that begins with a blank or ``;``, or nothing.

    Args:
        error: what was raised.
        message: its first line.
        used: the graph's attributes that forward gets by themselves.
        module: the model with its loss.
        schema: the graph's attributes.
    """
    specs = [spec for spec in schema.attributes if spec.name in used and spec.index is None]
    if "dtype" in message:
        return _dtypes(specs, module)
    if any(words in message for words in _WIDTHS):
        return _widths(specs)
    if isinstance(error, IndexError):
        return _positions(message)
    return ""


def fails_on_rows(error: Exception, message: str) -> bool:
    """Whether an error is one that positions or a number of rows may have caused."""
    return isinstance(error, IndexError) or any(words in message for words in _WIDTHS)


def _dtypes(specs: Sequence[AttributeSpec], module: nn.Module) -> str:
    """Which dtypes the graph and the model have, and how one becomes the other."""
    model = sorted({dtype_name(p) for p in module.parameters() if p.is_floating_point()})
    graph = [f"{spec.name} is {spec.dtype}" for spec in specs]
    found = f" (graph: {', '.join(graph) or 'no values'}; model: {', '.join(model)})"
    other = [spec for spec in specs if spec.dtype not in model and spec.dtype != "bool"]
    if len(model) != 1 or not other:
        return found
    name = other[0].label
    return f"{found}; use {name} = {name}.to(torch.{model[0]}){_or_model(other)}"


def _or_model(other: Sequence[AttributeSpec]) -> str:
    """The other way round, where the graph's dtype is one that a model can have."""
    dtypes = {spec.dtype for spec in other}
    floating = len(dtypes) == 1 and next(iter(dtypes)).startswith(("float", "bfloat"))
    return f", or model.to(torch.{dtypes.pop()})" if floating else ""


def _widths(specs: Sequence[AttributeSpec]) -> str:
    widths = [
        f"{spec.label} has {'x'.join(map(str, width))} columns"
        for spec, width in _with_columns(specs)
    ]
    if not widths:
        return ""
    return f"; {', '.join(widths)}: give features as wide as the layer, or make the layer as wide"


def _with_columns(
    specs: Sequence[AttributeSpec],
) -> Iterator[tuple[AttributeSpec, tuple[int | str, ...]]]:
    for spec in specs:
        if len(spec.dims) > 1 and isinstance(spec.dims[0], str):
            yield spec, spec.dims[1:]


def _positions(message: str) -> str:
    """PyTorch's three messages about positions, of labels, of rows of tables, and of rows of any tensor."""
    if message.startswith("Target "):
        return (
            "; a label is the number of a column of the output, from 0: fix the labels (graph.y), "
            "or make the output as wide"
        )
    if "out of range in self" in message:
        return "; a value of the graph is no row of the table: fix it, or make the table longer"
    if "too many indices" in message:
        return "; a tuple is one index for each dimension: list rows in a tensor on the graph, for example graph.train_idx"
    if "out of bounds" in message:
        return (
            "; positions that only the whole graph has must be on the graph, for example "
            "graph.train_idx, so that they are cut when the graph is"
        )
    return ""


def first_line(error: Exception) -> str:
    """The error's message up to its first line break, without a full stop."""
    return (str(error).strip().splitlines() or [""])[0].removesuffix(".")
