"""Programs on models: bound as functions of the inputs, and their input guards checked alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from autoplan.errors import GuardError
from autoplan.program.codegen import (
    ConstantTable,
    compile_source,
    format_step,
    generate,
    guard_message,
    numbers_named,
)
from autoplan.program.ir import Expression, GuardStep, OpStep, Program, SizeStep, StateSlot, Step
from autoplan.program.modes import Modes, training_modes
from autoplan.program.structure import map_leaves
from autoplan.program.torch_internals import (
    module_tensors,
    tree_unflatten,
    written_arguments,
)


def bind(program: Program, module: torch.nn.Module) -> Callable[..., Any]:
    """The program as a function of the module's inputs.

    The module's tensors are read at every call. A failing guard leaves them as they were.

    Raises:
        GuardError: (the returned function) the input's structure, the modes or a recorded decision differ.
    """
    run = generate(program).run
    slots = [(_tensors_of(module, slot), slot.key) for slot in program.state]
    undo = written_state(program) if _guards_late(program) else ()

    def call(*inputs: Any) -> Any:
        flat = flatten_inputs(program, inputs)
        _check_modes(program, module)
        state = [tensors[key] for tensors, key in slots]
        kept = [(state[i], state[i].detach().clone()) for i in undo]
        try:
            outputs = run(state, flat, _device(state, flat))
        except GuardError:
            with torch.no_grad():
                for tensor, value in kept:
                    tensor.copy_(value)
            raise
        finally:
            torch.set_grad_enabled(program.modes.grad)
        return tree_unflatten(outputs, program.out_spec)

    return call


def flatten_inputs(program: Program, inputs: tuple[Any, ...]) -> list[Any]:
    """The call's leaves in the program's order. Raises GuardError where structure or identities differ from the recorded."""
    flat: list[Any] = []
    paths: list[str] = []

    def note(leaf: Any, path: str) -> Any:
        flat.append(leaf)
        paths.append(path)
        return leaf

    map_leaves(inputs, note)
    if tuple(paths) != program.input_paths:
        raise GuardError(
            f"the input has another structure: {paths}, recorded {list(program.input_paths)}"
        )
    seen: dict[int, str] = {}
    for name, leaf, path in zip(program.inputs, flat, paths, strict=True):
        if isinstance(leaf, Tensor) != name.startswith("v"):
            raise GuardError(f"input{path} is a tensor, or no longer is, unlike when recorded")
        if isinstance(leaf, Tensor) and seen.setdefault(id(leaf), path) != path:
            raise GuardError(
                f"input{path} and input{seen[id(leaf)]} are one tensor, recorded as two; give a clone of it"
            )
    return flat


def input_guards(program: Program) -> tuple[GuardStep, ...]:
    """Guards that depend only on the inputs' and the model's metadata: dtypes, sizes, layouts, plain numbers."""
    return tuple(step for step in _metadata_steps(program) if isinstance(step, GuardStep))


def check_input_guards(program: Program, inputs: tuple[Any, ...], module: torch.nn.Module) -> None:
    """Checks structure and `input_guards` on given inputs, without running the program. Raises GuardError."""
    input_check(program, module)(inputs)


def input_check(program: Program, module: torch.nn.Module) -> Callable[[tuple[Any, ...]], None]:
    """`check_input_guards` for many inputs of one model, compiled once.

    The module's tensors are read when this is called, not at every check.
    """
    state = [_tensors_of(module, slot)[slot.key] for slot in program.state]
    table = ConstantTable()
    steps = _metadata_steps(program)
    body = [
        f"[{', '.join(slot.name for slot in program.state)}] = state",
        f"[{', '.join(program.inputs)}] = inputs",
        *(format_step(step, table, _first_failing(i, step)) for i, step in enumerate(steps)),
    ]
    source = "def check(state, inputs, device):\n    " + "\n    ".join(body) + "\n"
    first_failing = compile_source(source, table, "check")

    def check(inputs: tuple[Any, ...]) -> None:
        flat = flatten_inputs(program, inputs)
        failed = first_failing(state, flat, _device(state, flat))
        if failed is not None:
            number, found = failed
            step = steps[number]
            assert isinstance(step, GuardStep)
            raise GuardError(guard_message(step, found))

    return check


def _first_failing(number: int, step: Step) -> str:
    """What the check does where a guard fails."""
    return f"return {number}, {numbers_named(step)}" if isinstance(step, GuardStep) else ""


def _metadata_steps(program: Program) -> list[Step]:
    """Guards on metadata and the sizes that they read."""
    known = set(program.inputs) | {slot.name for slot in program.state}
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, SizeStep) and step.value in known:
            known.add(step.name)
            steps.append(step)
        elif _is_metadata_guard(step) and known.issuperset(step.test.names):
            steps.append(step)
    return steps


def _is_metadata_guard(step: Step) -> TypeGuard[GuardStep]:
    """Not a guard on a tensor's content (its names may still be other values than the inputs)."""
    return isinstance(step, GuardStep) and not isinstance(step.expected, Tensor)


def written_state(program: Program) -> tuple[int, ...]:
    """Positions in ``program.state`` of what the program may write: targets of in-place ops, and every buffer.

    (Batch norm's schema does not tell that it writes its running statistics.)
    """
    alias = program.samples[0].alias
    owners = {alias[slot.name]: i for i, slot in enumerate(program.state)}
    written = {i for i, slot in enumerate(program.state) if slot.kind == "buffer"}
    for step in program.steps:
        if not isinstance(step, OpStep):
            continue
        for writes, argument in zip(written_arguments(step.func), step.args, strict=False):
            if writes and isinstance(argument, Expression):
                owner = owners.get(alias.get(argument.text, ""))
                if owner is not None:
                    written.add(owner)
    return tuple(sorted(written))


def _guards_late(program: Program) -> bool:
    kinds = [type(step) for step in program.steps if isinstance(step, (OpStep, GuardStep))]
    return OpStep in kinds and GuardStep in kinds[kinds.index(OpStep) :]


def _tensors_of(module: torch.nn.Module, slot: StateSlot) -> dict[str, Any]:
    return module_tensors(module.get_submodule(slot.module), slot.kind)


def _check_modes(program: Program, module: torch.nn.Module) -> None:
    now = Modes.current()
    if now != program.modes:
        raise GuardError(f"the program was recorded in {program.modes}, and is called in {now}")
    training = training_modes(module)
    if training != program.training:
        differing = [p for p in program.training if training.get(p) != program.training[p]]
        raise GuardError(
            f"the training mode of {differing[0] or 'the model'!r} differs from the recorded one"
            if differing
            else "the model has other submodules than when recorded"
        )


def _device(state: Sequence[Any], flat: Sequence[Any]) -> torch.device:
    for value in (*flat, *state):
        if isinstance(value, Tensor):
            return value.device
    return torch.get_default_device()
