"""Traps: forward passes that a naive recording replays wrong on a graph of another size.

A trap must come out right on unseen sizes (outputs, gradients and state over three calls in a row), fail a guard, or be
refused; never wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn as nn
from torch_geometric.nn import GCNConv

from autoplan.errors import GuardError
from autoplan.program.binding import bind
from autoplan.program.ir import Program
from autoplan.program.modes import portable
from autoplan.program.structure import clone_tensors
from autoplan.program.torch_internals import tree_leaves
from autoplan.trace.core import Traced, generalise_module

SIZES = (50, 61, 75, 96)
UNSEEN = (131, 40, 208, 7)

_ALLOWED = {
    "right": {"right"},
    "guarded": {"right", "guarded"},
    "not wrong": {"right", "guarded", "refused"},
    "refused": {"refused"},
}


def graph(nodes: int, edges: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Node features ``[nodes, 8]`` and random directed edges ``[2, edges]``."""
    generator = torch.Generator().manual_seed(nodes)
    count = edges or 3 * nodes + nodes // 4 + nodes % 3
    x = torch.randn(nodes, 8, generator=generator)
    return x, torch.randint(0, nodes, (2, count), generator=generator)


def samples(make: Callable[[Any], tuple[Any, ...]] = graph, sizes: Sequence[Any] = SIZES) -> list:
    return [make(size) for size in sizes]


class Reversal(torch.autograd.Function):
    """Gradient reversal: a backward that its forward does not tell."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.factor * gradient, None


class Net(nn.Module):
    """Layers of width 8 for a body to use; further attributes by keyword."""

    def __init__(self, body: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = GCNConv(8, 8)
        self.cached = GCNConv(8, 8, cached=True)
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("memory", torch.ones(8))
        self.body = body
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs):
        return self.body(self, *inputs)


class Traps:
    """A file's traps.

    ``@trap("right")`` demands that the program is right on every unseen size, ``"guarded"`` that it is right or a guard
    fails, ``"not wrong"`` allows a refusal too, ``"refused"`` demands one. Further arguments: ``sizes``, ``unseen``,
    ``sample`` (makes the inputs of a size), and attributes of the module.
    """

    def __init__(self) -> None:
        self._traps: dict[str, tuple[str, Callable[..., Any], dict[str, Any]]] = {}

    def __call__(self, verdict: str, **options: Any) -> Callable[..., Any]:
        def register(body: Callable[..., Any]) -> Callable[..., Any]:
            assert body.__name__ not in self._traps
            self._traps[body.__name__] = verdict, body, options
            return body

        return register

    @property
    def names(self) -> list[str]:
        return list(self._traps)

    def check(self, name: str) -> None:
        wanted, body, options = self._traps[name]
        found, why = _judge(body, **options)
        assert found in _ALLOWED[wanted], f"{found}: {why}"


def _judge(
    body: Callable[..., Any],
    sizes: Sequence[Any] = SIZES,
    unseen: Sequence[Any] = UNSEEN,
    sample: Callable[[Any], tuple[Any, ...]] | None = None,
    **attributes: Any,
) -> tuple[str, str]:
    def make(size: Any) -> tuple[Any, ...]:
        if sample is not None:
            return sample(size)
        return graph(*size) if isinstance(size, tuple) else graph(size)

    model = Net(body, **attributes)
    traced = _trace_without_mark(model, [make(size) for size in sizes])
    if traced.program is None:
        return "refused", traced.reason or ""
    guards = []
    for size in unseen:
        verdict, why = _compare(traced.program, model, make(size))
        if verdict == "wrong":
            return verdict, f"on size {size}: {why}"
        if verdict == "guarded":
            guards.append(why)
    return ("guarded", guards[0]) if guards else ("right", "")


def _trace_without_mark(model: nn.Module, inputs: list) -> Traced:
    before = repr(model.state_dict())
    generator = torch.get_rng_state()
    traced = generalise_module(model, inputs)
    assert repr(model.state_dict()) == before, "tracing changed the model"
    assert torch.equal(torch.get_rng_state(), generator), "tracing drew random numbers"
    return traced


def _compare(program: Program, model: nn.Module, inputs: tuple[Any, ...]) -> tuple[str, str]:
    """The program on a copy of the model against another copy, run eagerly."""
    eager, bound = copy.deepcopy(model), copy.deepcopy(model)
    with portable():
        try:
            expected = _three_calls(eager, eager, inputs)
        except Exception:  # whatever a model raises on an input it does not take
            expected = None
        before = repr(bound.state_dict())
        try:
            found = _three_calls(bind(program, bound), bound, inputs)
        except GuardError as failure:
            assert repr(bound.state_dict()) == before, "a failed guard left state behind"
            return "guarded", str(failure)
    if expected is None:
        return "wrong", "the module raises, the program does not"
    if len(expected) != len(found):
        return "wrong", f"{len(found)} results, {len(expected)} expected"
    for i, (want, have) in enumerate(zip(expected, found, strict=True)):
        if want.shape != have.shape or not torch.allclose(want, have, rtol=1e-6, atol=1e-7):
            return "wrong", f"result {i} of {len(expected)}"
    return "right", ""


def _three_calls(function: Callable[..., Any], model: nn.Module, inputs: Any) -> list[torch.Tensor]:
    """Outputs, gradients and buffers over three calls in a row."""
    results: list[torch.Tensor] = []
    for seed in range(3):
        torch.manual_seed(seed)
        outputs = [
            output
            for output in tree_leaves(function(*clone_tensors(inputs)))
            if isinstance(output, (torch.Tensor, int, float))
        ]
        results += [torch.as_tensor(output).detach().double() for output in outputs]
        results += _gradients(outputs, model)
        results += [buffer.detach().double().clone() for buffer in model.buffers()]
    return results


def _gradients(outputs: list, model: nn.Module) -> list[torch.Tensor]:
    terms = [
        (output.double() ** 2).sum()
        for output in outputs
        if isinstance(output, torch.Tensor) and output.requires_grad
    ]
    if not terms:
        return []
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(torch.stack(terms).sum(), parameters, allow_unused=True)
    missing = torch.full((1,), -99.0, dtype=torch.double)
    return [missing if g is None else g.double() for g in gradients]


def program_of(body: Callable[..., Any], **attributes: Any) -> tuple[nn.Module, Program]:
    """A model with this body and its program. Fails the test where there is none."""
    model = Net(body, **attributes)
    traced = generalise_module(model, samples())
    if traced.program is None:
        pytest.fail(f"refused: {traced.reason}")
    return model, traced.program


def refusal_of(body: Callable[..., Any], **attributes: Any) -> str:
    """Why a model with this body has no program. Fails the test where it has one."""
    traced = generalise_module(Net(body, **attributes), samples())
    assert traced.program is None, "not refused"
    assert traced.reason is not None
    return traced.reason
