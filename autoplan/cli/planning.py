"""From a command's arguments to a plan: made, or read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoplan.cli.output import say
from autoplan.cli.target import InputError, Target
from autoplan.plan import PlanData

if TYPE_CHECKING:
    from autoplan.api import Plan


def make_plan(
    target: Target,
    devices: str,
    *,
    strategy: str = "auto",
    objective: str = "time",
    optimizer: str = "adam",
    exact: bool = True,
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
        exact=exact,
    )


def read_plan(path: Path) -> PlanData:
    """A saved plan as data; needs no torch. Raises InputError where there is no such file, PlanError for no plan."""
    _must_exist(path)
    return PlanData.from_json(path.read_text(encoding="utf-8"))


def load_plan(path: Path) -> Plan:
    """A saved plan that can run. Raises InputError where there is no such file, PlanError for no plan."""
    from autoplan.api import Plan

    _must_exist(path)
    return Plan.load(path)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"there is no plan {path}; `autoplan plan ... --save {path}` makes one")
