"""What autograd does with an op: which results ask for gradients, where they flow, what is kept for backward (torch).

Torch is asked, not a table: the op runs once on blank tensors of a sample's shapes, and the graph that autograd built is
looked at. So views, ``detach``, integer results and ``no_grad`` parts come out as they do in training.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.ir import Expression, OpStep, Sample
from autoplan.program.torch_internals import tree_leaves, tree_unflatten
from autoplan.trace.alias import written

_NAMES = {"torch": torch, "math": math, "inf": math.inf, "nan": math.nan}
"""What formulas may name beside the program's own."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What autograd does with one op.

    Attributes:
        requires_grad: per tensor returned, whether it asks for a gradient.
        reaches: values that a gradient of a result flows to.
        saved: values, arguments or results, that are kept for backward.
        copied: values that the op writes in place and of whose earlier content autograd keeps a copy.
    """

    requires_grad: tuple[bool, ...]
    reaches: frozenset[str] = frozenset()
    saved: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


def flow_of(step: OpStep, sample: Sample, wanting: frozenset[str]) -> Flow:
    """Asks autograd about an op.

    Args:
        step: the op.
        sample: shapes and dtypes of its arguments.
        wanting: the values that require a gradient.
    """
    outputs = [name for name in step.outs if name.startswith("v")]
    if not wanting.intersection(step.reads):
        return Flow((False,) * len(outputs))
    if not step.grad:
        # what is written unseen (a weight clamped under no_grad) is the same leaf, and is trained as before
        kept = wanting.intersection(written(step), outputs)
        return Flow(tuple(name in kept for name in outputs), kept)
    try:
        return _asked(step, sample, wanting, outputs)
    except (RuntimeError, ValueError, IndexError, NameError, TypeError, NotImplementedError):
        # blank tensors are not in the op's domain (or it is no ATen op): take the most that can be
        floats = tuple(sample.dtypes[name].is_floating_point for name in outputs)
        reads = [name for name in step.reads if name.startswith("v")]
        return Flow(floats, wanting.intersection(reads), tuple(reads))


def _asked(step: OpStep, sample: Sample, wanting: frozenset[str], outputs: Sequence[str]) -> Flow:
    if step.opaque:
        raise NotImplementedError
    leaves: dict[str, torch.Tensor] = {}
    given: dict[str, torch.Tensor] = {}
    arguments = [_argument(argument, sample, wanting, leaves, given) for argument in step.args]
    args, kwargs = tree_unflatten(arguments, step.spec)
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[_storage(tensor)] = tensor
        return tensor

    with (
        EXCLUSIVE,
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        returned = tree_leaves(step.func(*args, **kwargs))
    results = [result for result in returned if isinstance(result, torch.Tensor)]
    storages = {_storage(tensor): name for name, tensor in given.items()}
    storages.update(
        (_storage(result), name)
        for name, result in zip(outputs, results, strict=True)
        if name not in given
    )
    reached = _leaves_below([result for result in results if result.requires_grad])
    return Flow(
        tuple(result.requires_grad for result in results),
        frozenset(name for name, leaf in leaves.items() if id(leaf) in reached),
        tuple(dict.fromkeys(storages[at] for at in saved if at in storages)),
        tuple(
            name
            for name in written(step)
            if name in given and _has_copy(given[name], saved, storages)
        ),
    )


def _argument(
    argument: Any,
    sample: Sample,
    wanting: frozenset[str],
    leaves: dict[str, torch.Tensor],
    given: dict[str, torch.Tensor],
) -> Any:
    if not isinstance(argument, Expression):
        return torch.device("cpu") if isinstance(argument, torch.device) else argument
    name = argument.text
    if name not in sample.shapes:
        scope = {key: _known(key, sample) for key in argument.names}
        return eval(name, _NAMES, scope)
    if name not in given:
        blank = torch.ones if sample.dtypes[name] == torch.bool else torch.zeros
        tensor = blank(sample.shapes[name], dtype=sample.dtypes[name])
        if name in wanting:
            leaves[name] = tensor.requires_grad_()
            # in-place ops refuse leaves
            with torch.enable_grad():
                tensor = tensor.clone()
        given[name] = tensor
    return given[name]


def _known(name: str, sample: Sample) -> Any:
    """What a formula reads: a tensor's shape, a size (``s12_0``, ``n12`` of v12); 1 for a number that was read from a tensor."""
    if name in sample.shapes:
        return torch.empty(sample.shapes[name], dtype=sample.dtypes[name], device="meta")
    number, _, dim = name[1:].partition("_")
    shape = sample.shapes.get(f"v{number}")
    if shape is None or name[0] not in "sn":
        return 1
    return shape[int(dim)] if dim else math.prod(shape)


def _has_copy(
    tensor: torch.Tensor, saved: Mapping[int, torch.Tensor], known: Mapping[int, str]
) -> bool:
    """Whether something is saved that is none of the op's tensors and has this one's shape and dtype."""
    return any(
        at not in known and other.shape == tensor.shape and other.dtype == tensor.dtype
        for at, other in saved.items()
    )


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _leaves_below(results: Sequence[torch.Tensor]) -> set[int]:
    """Identities of the leaves that a gradient of the results reaches."""
    found: set[int] = set()
    seen: set[Any] = set()
    pending = [result.grad_fn for result in results]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        pending.extend(following for following, _ in node.next_functions)
    return found
