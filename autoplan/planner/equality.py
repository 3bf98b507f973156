"""How far the results of two steps are from each other (torch)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch_geometric.data.data import BaseData

from autoplan.execute.lockstep import StepResult
from autoplan.program.records import flatten


def step_error(one: StepResult, many: StepResult) -> tuple[str, float]:
    """Of loss, outputs, gradients and buffers, what is furthest apart, and how far."""
    gradients, worst = gradient_error(one, many)
    errors = {
        "the loss": values_error([one.loss], [many.loss]),
        "an output": values_error(one.outputs, many.outputs),
        f"the gradient of {worst}": gradients,
        "a buffer": mapping_error(one.buffers, many.buffers),
    }
    what = max(errors, key=lambda name: errors[name])
    return what, errors[what]


def gradient_error(one: StepResult, many: StepResult) -> tuple[float, str | None]:
    """DESIGN 8: the largest difference over max(largest of that gradient, 1e-3 of the largest of all)."""
    largest = max((_size(g) for g in one.gradients.values() if g is not None), default=0.0)
    worst, name = 0.0, None
    for path in {**one.gradients, **many.gradients}:
        mine, theirs = one.gradients.get(path), many.gradients.get(path)
        if mine is None and theirs is None:
            continue
        if mine is None or theirs is None:
            return math.inf, path
        scale = max(_size(mine), 1e-3 * largest)
        error = _difference(mine, theirs) / scale if scale else _difference(mine, theirs)
        if error > worst or math.isnan(error):
            worst, name = (math.inf if math.isnan(error) else error), path
    return worst, name


def mapping_error(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> float:
    """As `values_error`, of values by name; the second has all names of the first."""
    return values_error(list(first.values()), [second[name] for name in first])


def values_error(first: Iterable[object], second: Iterable[object]) -> float:
    """The largest difference of any two values over max(1, largest magnitude); infinite where they are built differently.

    An object that is none of Python's or torch's own containers is compared by its attributes.
    """
    return _values_error(list(first), list(second), frozenset())


def _values_error(first: object, second: object, within: frozenset[int]) -> float:
    """As `values_error`; ``within``: identities of the objects whose attributes are being compared."""
    mine, own = flatten(first)
    theirs, other = flatten(second)
    if own != other:
        return math.inf
    worst = 0.0
    for one, many in zip(mine, theirs, strict=True):
        if one is many or id(one) in within:
            continue
        if isinstance(one, torch.Tensor) and isinstance(many, torch.Tensor):
            if one.shape != many.shape or one.dtype != many.dtype:
                return math.inf
            error = _difference(one, many) / max(1.0, _size(one))
        elif type(one) is type(many) and (content := _content(one)) is not None:
            error = _values_error(content, _content(many), within | {id(one)})
        else:
            error = 0.0 if one == many else math.inf
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def _content(value: object) -> dict[str, object] | None:
    """What an object holds, by name; None of plain values."""
    if isinstance(value, BaseData):
        return dict(value.to_dict())
    return getattr(value, "__dict__", None)


def _difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest absolute difference; equal infinities and NaNs differ by nothing."""
    if not first.numel():
        return 0.0
    left, right = first.detach().to_dense().double(), second.detach().to_dense().double()
    same = (left == right) | (left.isnan() & right.isnan())
    return float(torch.where(same, 0.0, (left - right).abs()).max())


def _size(tensor: torch.Tensor) -> float:
    return (
        float(tensor.detach().to_dense().double().nan_to_num(0, 0, 0).abs().max())
        if tensor.numel()
        else 0.0
    )
