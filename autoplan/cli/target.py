"""Reads ``FILE.py:build``: the user's function that returns ``(model, graph)``, ``(model, graph, loss)`` or a dict of them."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoplan.errors import AutoplanError


class InputError(AutoplanError):
    """A file, function or option of the command line that cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Target:
    """What ``build()`` returned: torch's module, PyG's graph or many, and the loss or None for the default one.

    ``batch_size``: of many graphs, how many make a step where the command line does not say.
    """

    model: Any
    graph: Any
    loss: Callable[..., Any] | None
    batch_size: int | None = None


_KEYS = ("model", "graph", "graphs", "loss", "batch_size")
_RETURNS = (
    "(model, graph), (model, graph, loss) or a dict of model, graph (or graphs), loss, batch_size"
)


def load_target(text: str) -> Target:
    """Imports the file and calls its function.

    Raises InputError when the file or function is absent, fails (with its own traceback) or returns something else.
    """
    path, function = _split(text)
    build = _function(path, function)
    try:
        built = build()
    except AutoplanError:
        raise
    # the user's own code: whatever it raises is told with its traceback
    except (Exception, SystemExit) as error:
        raise InputError(_failure(f"{function}() of {path} failed", error)) from error
    target = _target(built, f"{function}() of {path}")
    if target.loss is not None and not callable(target.loss):
        raise InputError(
            f"the loss that {function}() of {path} returned is {_shape(target.loss)}, not a function loss(out, graph)"
        )
    return target


def _target(built: object, builder: str) -> Target:
    """From what the function returned, by position or by name. Raises InputError."""
    if isinstance(built, Mapping):
        unknown = [str(key) for key in built if key not in _KEYS]
        graphs = [key for key in ("graph", "graphs") if key in built]
        if unknown or "model" not in built or len(graphs) != 1:
            raise InputError(
                f"{builder} returned a dict of {', '.join(map(str, built)) or 'nothing'}; it must return {_RETURNS}"
            )
        return Target(built["model"], built[graphs[0]], built.get("loss"), built.get("batch_size"))
    if not isinstance(built, tuple) or len(built) not in (2, 3):
        raise InputError(f"{builder} returned {_shape(built)}; it must return {_RETURNS}")
    model, graph, loss = built if len(built) == 3 else (*built, None)
    return Target(model, graph, loss)


def _split(text: str) -> tuple[Path, str]:
    file, colon, function = text.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise InputError(
            f"{text!r} does not name a function; write FILE.py:FUNCTION, for example model.py:build"
        )
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no file {path} (from {Path.cwd()})")
    return path, function


def _function(path: Path, function: str) -> Callable[[], object]:
    # Neighbours of the file can be imported. Last, not first as for `python FILE.py`: the workers inherit the path, and
    # a neighbour called random.py must not take the place of Python's.
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.append(directory)
    # A file may be called like a module that is already there (random.py).
    name = path.stem if path.stem not in sys.modules else f"autoplan_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except AutoplanError:
        raise
    # the user's own code, as above
    except (Exception, SystemExit) as error:
        raise InputError(_failure(f"{path} cannot be imported", error)) from error
    build = getattr(module, function, None)
    if not callable(build):
        names = ", ".join(
            found
            for found, value in vars(module).items()
            if getattr(value, "__module__", None) == name
            and callable(value)
            and not isinstance(value, type)
        )
        raise InputError(f"{path} has no function {function!r}; it has {names or 'no functions'}")
    builder: Callable[[], object] = build
    return builder


def _failure(what: str, error: BaseException) -> str:
    """The user's own error with its traceback, from their file on."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen")
    ]
    lines = "".join(traceback.format_list(own))
    last = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SystemExit):
        last = f"it called sys.exit({error.code!r}); a file that is imported must return"
    return f"{what}:\n{lines}{last}{_advice(error, own)}"


def _advice(error: BaseException, frames: Sequence[traceback.FrameSummary]) -> str:
    """What to do where a conversion of PyG raises an error of torch's: its message alone does not tell."""
    if not any(frame.name in ("to_hetero", "to_hetero_with_bases") for frame in frames):
        return ""
    # torch is there: the user's file has it
    from autoplan.trace.conversion import pooling_advice, pooling_in

    function = pooling_in(error)
    return "" if function is None else f"\n{pooling_advice(function)}"


def _shape(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"an object of type {type(value).__name__}"
