"""Which sizes of an op's results only the content of its arguments tells (torch)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from autoplan.program.ir import Expression, OpStep
from autoplan.program.torch_internals import operator_name
from autoplan.trace.alias import arguments_of


def content_dims(step: OpStep, tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Dimensions of the results of an op of dynamic shape that count what its arguments hold; the others are widths.

    Args:
        step: an op for which `output_size_follows_content` holds.
        tensors: of one recording, by value.
    """
    name = (operator_name(step.func) or "").split(".")[1:2]
    given = arguments_of(step)
    if name == ["index"]:
        return _of_index(given["indices"], tensors)
    dim = given.get("dim")
    if name and name[0].startswith("unique") and isinstance(dim, int):
        source = given["self"].text
        return (dim % max(1, tensors[source].dim()),)
    return (0,)


def _of_index(indices: list[Expression | None], tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Where the rows that masks select lie in the result of ``tensor[indices]``; nowhere, where all indices are positions."""
    at = [place for place, index in enumerate(indices) if index is not None]
    found = [tensors[index.text] for index in indices if index is not None]
    if not any(tensor.dtype in (torch.bool, torch.uint8) for tensor in found):
        return ()
    adjacent = at == list(range(at[0], at[0] + len(at)))
    return (at[0] if adjacent else 0,)
