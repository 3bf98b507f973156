"""From a command's arguments to a plan: made, or read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autoplan.cli.output import say
from autoplan.cli.target import InputError, Target
from autoplan.errors import PlanError
from autoplan.plan import PlanData

if TYPE_CHECKING:
    from autoplan.api import Plan


def make_plan(
    target: Target,
    devices: str,
    *,
    strategy: str = "auto",
    objective: Literal["time", "memory"] = "time",
    optimizer: str = "adam",
) -> Plan:
    """`autoplan.optimize` with the options of the command line."""
    from autoplan.api import optimize

    say(f"planning for {devices}")
    return optimize(
        target.model,
        target.graph,
        devices,
        loss=target.loss,
        strategy=strategy,
        objective=objective,
        optimizer=optimizer,
    )


def read_plan(path: Path) -> PlanData:
    """A saved plan as data; needs no torch.

    Raises:
        InputError: there is no such file, or it cannot be read.
        PlanError: it holds no plan, or one of another version; names the file.
    """
    _must_exist(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: this is no plan, it is not text: {error}") from error
    try:
        return PlanData.from_json(text)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error


def load_plan(path: Path, target: Target) -> Plan:
    """A saved plan that can run, with the target's loss. Raises InputError where there is no such file, PlanError for no plan."""
    from autoplan.api import Plan

    _must_exist(path)
    return Plan.load(path, loss=target.loss)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"there is no plan {path}; `autoplan plan ... --save {path}` makes one")
