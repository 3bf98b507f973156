"""A program compared with the module that it was recorded from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autoplan.program.binding import bind
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.ir import Program
from autoplan.program.modes import portable
from autoplan.program.records import flatten
from autoplan.program.structure import clone_tensors, leaves
from autoplan.trace.model_state import ModelState
from autoplan.trace.places import RefusalError


def validate(
    program: Program, module: torch.nn.Module, inputs: tuple[Any, ...], seed: int = 0
) -> dict[str, float]:
    """Largest relative differences between the program and the module on given inputs.

    Compared are ``outputs``, ``gradients`` (of all parameters and of inputs that require one, for a random weighting of
    all outputs) and ``state`` (buffers and the random generator afterwards); infinite where one is missing. The module
    and the random generators are left as they were.
    """
    state = ModelState(module)
    results = []
    with EXCLUSIVE, portable(), torch.random.fork_rng():
        for function in (module, bind(program, module)):
            torch.manual_seed(seed)
            with state.kept():
                results.append(_one_pass(function, module, clone_tensors(inputs)))
    names = ("outputs", "gradients", "state")
    return {
        name: _largest_difference(expected, found)
        for name, expected, found in zip(names, *results, strict=True)
    }


def _one_pass(
    function: Callable[..., Any], module: torch.nn.Module, inputs: tuple[Any, ...]
) -> tuple[list[Tensor], list[Tensor | None], list[Tensor]]:
    result = flatten(function(*inputs))[0]
    outputs = [torch.as_tensor(o) for o in result if isinstance(o, (Tensor, float, int))]
    # a reversible layer frees what it returned in its backward
    kept = [output.detach().clone() for output in outputs]
    generator_state = torch.get_rng_state()
    wanted = [
        leaf
        for leaf in (*module.parameters(), *leaves(inputs))
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
    weights = torch.Generator().manual_seed(1)
    terms = [
        (output.double() * torch.rand(output.shape, generator=weights, dtype=torch.double)).sum()
        for output in outputs
        if output.requires_grad
    ]
    gradients: list[Tensor | None] = []
    if terms and wanted:
        total = torch.stack(terms).sum()
        gradients = list(torch.autograd.grad(total, wanted, allow_unused=True))
        if any(gradient is not None and gradient.is_sparse for gradient in gradients):
            raise RefusalError(
                "a parameter's gradient is sparse, and workers exchange dense ones: use sparse=False"
            )
    buffers = [buffer.detach().clone() for buffer in module.buffers()]
    return kept, gradients, [*buffers, generator_state]


def _largest_difference(expected: Sequence[Tensor | None], found: Sequence[Tensor | None]) -> float:
    if len(expected) != len(found):
        return math.inf
    return max(map(_difference, expected, found), default=0.0)


def _difference(expected: Tensor | None, found: Tensor | None) -> float:
    """The largest absolute difference over one plus the largest magnitude; equal NaN and infinities differ by nothing."""
    if expected is None or found is None:
        return 0.0 if expected is found else math.inf
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return math.inf
    if expected.numel() == 0:
        return 0.0
    left, right = expected.detach().to_dense().double(), found.detach().to_dense().double()
    equal = (left == right) | (left.isnan() & right.isnan())
    distance = torch.where(equal, 0.0, (left - right).abs()).max().item()
    scale = 1 + left.nan_to_num(0, 0, 0).abs().max().item()
    return math.inf if math.isnan(distance) else distance / scale
