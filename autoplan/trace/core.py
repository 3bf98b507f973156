"""From a module and samples of distinct sizes to one program, checked against the module itself."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from autoplan.errors import GuardError, TraceError
from autoplan.program.exclusive import EXCLUSIVE
from autoplan.program.ir import Program
from autoplan.program.structure import clone_tensors
from autoplan.program.torch_internals import has_backward_hooks, import_compiler
from autoplan.trace.generalise import SharedResidueError, common_steps, concrete, generalise
from autoplan.trace.model_state import ModelState, SavedState
from autoplan.trace.places import RefusalError
from autoplan.trace.recording import Recording, record, record_leniently
from autoplan.trace.validation import validate


@dataclass(frozen=True, slots=True)
class Traced:
    """What became of a module.

    Attributes:
        program: valid for any sizes and exact on the held-back sample, or None.
        reason: why there is no program.
        recording: without a program, one pass over the first sample with plain numbers (for sizes and costs only); None
            where even that cannot be had.
    """

    program: Program | None
    reason: str | None
    recording: Program | None


def generalise_module(
    module: torch.nn.Module, samples: Sequence[tuple[Any, ...]], *, tolerance: float = 1e-5
) -> Traced:
    """Records ``module`` on all samples but the last and checks the generalised program on that one.

    The module and all random generators are left bit-identical, save that lazy parameters are initialised. While it runs,
    names in `math`, in torch and in the user's modules are replaced: no other thread may use torch meanwhile.

    Args:
        module: called as ``module(*sample)``, in its current training mode.
        samples: arguments of distinct sizes that share no residue modulo 2 or 3, three to record and one to hold back.
        tolerance: largest relative difference from the module in outputs, gradients and state on the held-back sample.

    Raises:
        TraceError: the module itself fails on a sample.
        ValueError: fewer than four samples.
    """
    if len(samples) < 4:
        raise ValueError(f"{len(samples)} samples; three to record and one to hold back are needed")
    import_compiler()
    with _generators_kept():
        torch.manual_seed(0)
        try:
            return Traced(_program(module, samples, tolerance), None, None)
        except RefusalError as refusal:
            reason = str(refusal)
        except GuardError as failure:
            reason = f"not valid at the held-back size: {failure}"
        except Exception as error:
            # The recorder, torch under it, or the user's code: `_one_recording` raises where it is the user's.
            first_line = (str(error).strip().splitlines() or [""])[0]
            reason = f"{type(error).__name__}: {first_line}"
        return Traced(None, reason, _one_recording(module, samples[0]))


def _program(
    module: torch.nn.Module, samples: Sequence[tuple[Any, ...]], tolerance: float
) -> Program:
    _refuse_unrecordable(module)
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        module(*clone_tensors(samples[0]))
    state = ModelState(module)
    with state.kept() as start:
        runs = _recordings(module, samples[:-1], state, start)
        program = generalise(runs, module)
    differences = validate(program, module, samples[-1])
    if max(differences.values()) > tolerance:
        found = ", ".join(f"{what} by {value:.1e}" for what, value in differences.items())
        raise RefusalError(f"the program differs from the module on the held-back sample: {found}")
    return program


def _refuse_unrecordable(module: torch.nn.Module) -> None:
    for path, submodule in module.named_modules():
        what = f"{path or 'the model'} ({type(submodule).__name__})"
        if isinstance(submodule, torch.jit.ScriptModule):
            raise RefusalError(f"{what} is TorchScript")
        if has_backward_hooks(submodule):
            raise RefusalError(f"{what} has backward hooks")


def _recordings(
    module: torch.nn.Module,
    samples: Sequence[tuple[Any, ...]],
    state: ModelState,
    start: SavedState,
) -> list[Recording]:
    """One recording per sample, with other parameter values and another seed each.

    The first sample is recorded twice: what differs then is state that the program would not have.
    """
    shadows = state.user_globals()
    known = -1
    while known != len(shadows):  # a module found late to need shadows: start over with them
        known = len(shadows)
        runs: list[Recording] = []
        python: list[dict[str, str]] = []
        state.put(start)
        for i, sample in enumerate([samples[0], *samples]):
            torch.manual_seed(i)
            state.perturb(i)
            runs.append(record(module, sample, shadows, state))
            python.append(state.python())
    _refuse_python_state(python[0], python[1])
    try:
        common_steps([runs[0], runs[1], runs[1]])
    except SharedResidueError:
        pass  # the same sample twice: of course
    except RefusalError as refusal:
        raise RefusalError(f"a second pass over the same sample differs: {refusal}") from refusal
    return runs[1:]


def _refuse_python_state(before: dict[str, str], after: dict[str, str]) -> None:
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    if changed:
        raise RefusalError(f"forward changes Python state: {changed[0]}")


def _one_recording(module: torch.nn.Module, sample: tuple[Any, ...]) -> Program | None:
    """A lenient recording; None where recording fails although the module itself runs."""
    state = ModelState(module)
    try:
        with state.kept():
            return concrete(record_leniently(module, sample), module)
    except Exception:
        with state.kept():
            _run_plainly(module, sample)
        return None


def _run_plainly(module: torch.nn.Module, sample: tuple[Any, ...]) -> None:
    try:
        module(*clone_tensors(sample))
    except Exception as error:
        raise TraceError(
            f"the model or its loss fails on a sample of the graph: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Torch's, Python's and NumPy's random generators come out as they went in."""
    python = random.getstate()
    numpy = np.random.get_state()  # the user's code may draw from it
    try:
        with EXCLUSIVE, torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
