"""A step in float64, in which strategies are checked and plans verified (torch).

First the user's code is traced again in float64, under that default dtype, so that tensors made inside it follow. Code that
names a narrower dtype itself (``dtype=torch.float32``, ``.float()``, NumPy's float32) is another program there, or fails. Where
all of its floating tensors have one dtype, the recorded program is taken instead with that dtype replaced by float64 wherever
it is named, and with its constants cast: the same ops on the same values without the rounding, so that one rank and many are
compared as closely. Plain PyTorch cannot run that, and is compared in the model's own dtype. Mixed precision is refused.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from autoplan.errors import TraceError
from autoplan.execute.loop import default_dtype
from autoplan.opgraph import OpGraph
from autoplan.planner.workload import Workload, cast, make_workload
from autoplan.program.ir import ConstantStep, Expression, GuardStep, OpStep, Program, Step
from autoplan.trace.scope import AnyGraph

_WIDE = torch.float64


def in_double(model: nn.Module, graph: AnyGraph, workload: Workload) -> Workload:
    """The same step in float64.

    Raises:
        TraceError: it is another program there, and has floating tensors of several dtypes.
    """
    mine = [(op.index, op.name, op.inputs) for op in workload.opgraph.ops]
    try:
        double = make_workload(model, graph, workload.request, dtype=_WIDE)
        theirs = [(op.index, op.name, op.inputs) for op in double.opgraph.ops]
        same, why = double.general and mine == theirs, double.opgraph.reason or "its ops differ"
    except TraceError as error:
        same, why = False, str(error)
    if same:
        # the strategies that are to be checked, not those of the second trace
        own = zip(double.opgraph.ops, workload.opgraph.ops, strict=True)
        ops = tuple(replace(op, strategies=offered.strategies) for op, offered in own)
        return replace(double, opgraph=replace(double.opgraph, ops=ops))
    program = workload.traced.program
    found = set() if program is None else _floating(program) - {_WIDE}
    if program is None or len(found) != 1:
        raise TraceError(
            f"in float64 this model is another program ({why}), so a plan cannot be compared with one device; "
            "make its dtypes follow its parameters' dtype"
        )
    return _widened(workload, program, found.pop())


def is_widened(double: Workload, workload: Workload) -> bool:
    """Whether a step in float64 is a rewriting of the recorded program, which plain PyTorch does not run."""
    return double.traced.schema is workload.traced.schema


@contextlib.contextmanager
def default_of(double: Workload) -> Iterator[None]:
    """Float64 as torch's default dtype, where an op of the program makes a tensor of that dtype out of integers or nothing.

    The default belongs to the whole process, so it is left alone where nothing depends on it.
    """
    program = double.traced.program
    if program is None or not any(_by_default(step, program) for step in program.steps):
        yield
        return
    with default_dtype(_WIDE):
        yield


def _by_default(step: Step, program: Program) -> bool:
    if not isinstance(step, OpStep):
        return False
    dtypes = program.samples[0].dtypes
    if any(isinstance(argument, torch.dtype) for argument in step.args):
        return False
    read = [dtypes[name] for name in step.reads if name in dtypes]
    made = [dtypes[name] for name in step.outs if name in dtypes]
    floating = any(dtype.is_floating_point for dtype in made)
    return floating and not any(dtype.is_floating_point for dtype in read)


def _floating(program: Program) -> set[torch.dtype]:
    return {
        dtype
        for sample in program.samples
        for dtype in sample.dtypes.values()
        if dtype.is_floating_point
    }


def _widened(workload: Workload, program: Program, narrow: torch.dtype) -> Workload:
    """The workload with ``narrow`` replaced by float64 in program, model and description."""
    module = copy.deepcopy(workload.traced.module).to(_WIDE)
    for slot in program.state:
        if slot.kind == "attribute":
            owner = module.get_submodule(slot.module)
            setattr(owner, slot.key, cast(getattr(owner, slot.key), _WIDE))
    samples = tuple(
        replace(
            sample,
            dtypes={n: _WIDE if d == narrow else d for n, d in sample.dtypes.items()},
        )
        for sample in program.samples
    )
    steps = tuple(_wider(step, narrow) for step in program.steps)
    modes = replace(program.modes, default_dtype=_WIDE)
    wide = replace(program, steps=steps, samples=samples, modes=modes)
    traced = replace(workload.traced, program=wide, module=module)
    return replace(workload, traced=traced, opgraph=_described(workload.opgraph, narrow))


def _wider(step: Step, narrow: torch.dtype) -> Step:
    if isinstance(step, OpStep):
        return replace(step, args=tuple(_value(argument, narrow) for argument in step.args))
    if isinstance(step, GuardStep):
        return replace(step, expected=_value(step.expected, narrow))
    if isinstance(step, ConstantStep):
        text = step.expression
        if text is not None:
            text = Expression(text.text.replace(f"dtype={narrow}", f"dtype={_WIDE}"))
        return replace(step, value=_value(step.value, narrow), expression=text)
    return step


def _value(value: Any, narrow: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return cast(value, _WIDE)
    return _WIDE if isinstance(value, torch.dtype) and value == narrow else value


def _described(opgraph: OpGraph, narrow: torch.dtype) -> OpGraph:
    own, wide = (str(dtype).removeprefix("torch.") for dtype in (narrow, _WIDE))
    tensors: Mapping[str, Any] = {
        name: replace(tensor, dtype=wide) if tensor.dtype == own else tensor
        for name, tensor in opgraph.tensors.items()
    }
    return replace(opgraph, tensors=tensors)
