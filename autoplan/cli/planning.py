"""From a command's arguments to a plan: made, or read from a file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from autoplan.cli.output import say
from autoplan.cli.target import InputError, Target
from autoplan.errors import PlanError
from autoplan.plan import PlanData, Schedule

if TYPE_CHECKING:
    from autoplan.api import Plan
    from autoplan.report.analysis import ProgramReport


def make_plan(
    target: Target,
    devices: str,
    *,
    strategy: str = "auto",
    objective: Literal["time", "memory"] = "time",
    optimizer: str = "adam",
    batch_size: int | None = None,
    micro_batches: int | None = None,
    schedule: Schedule | None = None,
    exact: bool = True,
) -> Plan:
    """`autoplan.optimize` with the options of the command line."""
    from autoplan.api import optimize
    from autoplan.search import SearchOptions

    say(f"planning for {devices}")
    search = SearchOptions()
    if micro_batches is not None:
        search = replace(search, micro_batches=(micro_batches,))
    if schedule is not None:
        search = replace(search, schedules=(schedule,))
    return optimize(
        target.model,
        target.graph,
        devices,
        batch_size=target.batch_size if batch_size is None else batch_size,
        loss=target.loss,
        strategy=strategy,
        objective=objective,
        exact=exact,
        optimizer=optimizer,
        options=search,
    )


def analyse(
    target: Target, devices: str, *, optimizer: str = "adam", batch_size: int | None = None
) -> ProgramReport:
    """What a target's step costs and sends.

    Raises:
        TraceError: see `autoplan.api.optimize`.
        DeviceError: unknown devices.
        PlanError: no such optimizer.
    """
    from autoplan.cluster import parse_cluster
    from autoplan.execute.optimizers import OptimizerSpec
    from autoplan.planner.analysis import analyse_step
    from autoplan.planner.source import source_of
    from autoplan.planner.workload import StepRequest

    OptimizerSpec(optimizer)
    cluster = parse_cluster(devices)
    size = target.batch_size if batch_size is None else batch_size
    request = StepRequest(target.loss)
    return analyse_step(
        target.model, source_of(target.graph, size), cluster, request, optimizer=optimizer
    )


def with_sizes(target: Target, name: str | None) -> Target:
    """The target with the sizes of a public graph in the place of its own, where a name is given.

    Raises:
        PlanError: no such sizes are known.
    """
    from autoplan.graphspec import GraphSpec

    return target if name is None else replace(target, graph=GraphSpec.named(name), batch_size=None)


def check_present(devices: str) -> None:
    """Before minutes of work: raises DeviceError where workers for these devices cannot be started on this machine."""
    from autoplan.cluster import parse_cluster
    from autoplan.presence import require_present

    require_present(parse_cluster(devices))


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


def load_plan(path: Path, target: Target, devices: str | None = None) -> Plan:
    """A saved plan that can run, with the target's loss.

    Raises:
        InputError: there is no such file.
        PlanError: it holds no plan, or one for other devices than those given.
    """
    from autoplan.api import Plan

    _must_exist(path)
    return Plan.load(path, loss=target.loss, devices=devices)


def given(context: typer.Context, option: str) -> bool:
    """Whether an option is on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def written(context: typer.Context, option: str) -> str:
    """An option as the user wrote it: of two that switch each other off (``--exact/--lossy``), the one that holds."""
    for parameter in context.command.params:
        if parameter.name == option:
            off = bool(parameter.secondary_opts) and context.params.get(option) is False
            return (parameter.secondary_opts if off else parameter.opts)[0]
    return f"--{option.replace('_', '-')}"


def saved_plan_alone(context: typer.Context, *options: str, plan: str = "--plan") -> None:
    """Raises InputError for an option given beside a saved plan (``plan``, as the user wrote it) that the plan decides."""
    for option in options:
        if given(context, option):
            name = written(context, option)
            what = "decides whether it is exact" if option == "exact" else f"has its {name[2:]}"
            raise InputError(
                f"{plan} and {name} exclude each other: a saved plan {what}; "
                f"leave out {name}, or plan again without {plan}"
            )


def check_writable(path: Path | None, option: str) -> None:
    """Before minutes of work: raises InputError where a file cannot be written because its folder is not there."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{option} {path}: this is a folder; give the name of a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: this may not be written")


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"there is no plan {path}; `autoplan plan ... --save {path}` makes one")
