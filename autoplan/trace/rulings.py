"""Recorded calls as the rules see them, and what the rules say, held against what the samples saw (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autoplan.program.ir import Expression, OpStep, Program, Sample
from autoplan.program.torch_internals import callable_name
from autoplan.symbolic import INSTANT
from autoplan.trace import alias
from autoplan.trace.rules import work
from autoplan.trace.rules.axes import AxisTable
from autoplan.trace.rules.call import Call, Output, Ruling
from autoplan.trace.rules.depth import ONE
from autoplan.trace.rules.numbers import Numbers
from autoplan.trace.rules.registry import OWN, base_name, find
from autoplan.trace.size_reads import is_tensor
from autoplan.trace.tensors import TensorTable


def call_of(
    step: OpStep,
    outs: Sequence[str],
    program: Program,
    tensors: TensorTable,
    axes: AxisTable,
    numbers: Numbers,
) -> Call:
    """A step for the rules.

    Args:
        step: the call.
        outs: the program's names of the tensors that it returns.
        program: for what the samples saw.
        tensors: what is known of its arguments.
        axes: the program's axes.
        numbers: the program's numbers.
    """
    name = callable_name(step.func)
    samples = program.samples
    read = dict.fromkeys(
        argument.text
        for argument in step.args
        if isinstance(argument, Expression) and is_tensor(argument.text)
    )
    return Call(
        name,
        base_name(name),
        {key: _resolved(value, tensors) for key, value in alias.arguments_of(step).items()},
        tuple(tensors.of(value) for value in read),
        tuple(tuple(tuple(sample.shapes[out]) for sample in samples) for out in outs),
        tuple(str(samples[0].dtypes[out]).removeprefix("torch.") for out in outs),
        axes,
        numbers,
        tensors.identities,
        tensors.owned_where,
        {tensors.current[value]: _repeated(value, samples[0]) for value in read},
        tensors.metas,
    )


def ruling_of(call: Call) -> tuple[str | None, Ruling]:
    """The family that covers a call and what it says; None: by the sizes of its tensors, in R."""
    known = find(call.base)
    if known is not None and call.name.split(".")[0] in OWN:
        family, rule = known
        ruling = rule(call)
        if ruling is not None:
            return family, _with_depths(call, ruling)
    dims = tuple(call.matched(output) for output in range(len(call.shapes)))
    forward, backward = work.unknown(call, dims)
    return None, Ruling(tuple(Output(each) for each in dims), forward, backward)


def _with_depths(call: Call, ruling: Ruling) -> Ruling:
    """Work of which the rule gives no depth: a reduction is a tree, anything else that moves or computes is one deep."""
    both = []
    for each in (ruling.forward, ruling.backward):
        if each.kind == "view" or each.depth != INSTANT:
            both.append(each)
        elif each.kind in ("reduce", "scatter", "sort", "dense", "spmm", "other"):
            both.append(replace(each, depth=work.deep(call)))
        else:
            both.append(replace(each, depth=ONE))
    return replace(ruling, forward=both[0], backward=both[1])


def checked_outputs(call: Call, ruling: Ruling) -> tuple[tuple[Output, ...], bool]:
    """What a call returns: what the rule says where the samples agree, else by the sizes they saw.

    Rows that content chooses are an axis even where it chose equally many in every sample.

    Returns:
        The outputs, and whether the samples agree with the rule in all of them.
    """
    outputs: list[Output] = []
    agreed = True
    for k in range(len(call.shapes)):
        output = ruling.outputs[k] if k < len(ruling.outputs) else None
        seen = call.seen(k)
        if (
            output is not None
            and len(output.dims) == len(seen)
            and all(
                call.axes.agrees(dim, sizes) for dim, sizes in zip(output.dims, seen, strict=True)
            )
        ):
            outputs.append(output)
        else:
            outputs.append(Output(call.matched(k)))
            agreed = False
        dims, at = outputs[k].dims, call.chosen_dim
        if at is not None and isinstance(dims[at], int):
            dims = (*dims[:at], call.axes.other(seen[at]), *dims[at + 1 :])
            outputs[k] = replace(outputs[k], dims=dims)
    return tuple(outputs), agreed


def _resolved(value: Any, tensors: TensorTable) -> Any:
    if isinstance(value, list | tuple):
        return [_resolved(entry, tensors) for entry in value]
    if isinstance(value, Expression) and is_tensor(value.text):
        return tensors.of(value.text)
    return value


def _repeated(value: str, sample: Sample) -> frozenset[int]:
    """Dimensions without a stride: an expanded tensor holds its content once."""
    # a sparse tensor has no strides
    pairs = zip(sample.shapes[value], sample.strides[value], strict=False)
    return frozenset(
        position for position, (size, stride) in enumerate(pairs) if stride == 0 and size > 1
    )
