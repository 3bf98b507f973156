"""`autoplan verify`: a plan against one device, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result, say

if TYPE_CHECKING:
    from autoplan.api import Plan, Verification
    from autoplan.plan import Alternative

ERRORS = ("loss", "output", "gradient", "weight", "buffer", "eager")
"""What a verification compares; ``eager`` is one device's program against the model in plain PyTorch."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan that was verified, and why that one."""

    plan: Plan
    why: str
    verification: Verification


def verify(
    context: typer.Context,
    target: options.TargetArgument,
    devices: options.Devices = "2xcpu",
    strategy: options.Strategy = "auto",
    batch_size: options.BatchSize = None,
    micro_batches: options.MicroBatches = None,
    schedule: options.Schedule = None,
    plan: options.PlanFile = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps to compare.")] = 3,
    as_json: options.Json = False,
) -> None:
    """Train on one device and by the plan, both in float64, and compare loss, gradients and weights.

    The plan is the one that `run` takes with the same options. Where that is one device alone, the fastest plan that spreads
    the work is verified as well.
    """
    with clean_stdout():
        from autoplan.api import verify as verify_plan
        from autoplan.cli.planning import given, load_plan, make_plan, saved_plan_alone
        from autoplan.cli.target import load_target
        from autoplan.report.text import arrangement, reasons

        if plan is not None:
            saved_plan_alone(context, "strategy", "batch_size", "micro_batches", "schedule")
        loaded = load_target(target)

        def planned(family: str) -> Plan:
            return make_plan(
                loaded,
                devices,
                strategy=family,
                batch_size=batch_size,
                micro_batches=micro_batches,
                schedule=schedule,
            )

        def checked(used: Plan, why: str) -> Checked:
            say(f"verifying {arrangement(used.data)} against one device")
            return Checked(used, why, verify_plan(used, loaded.model, loaded.graph, steps=steps))

        if plan is not None:
            used = load_plan(plan, loaded, devices if given(context, "devices") else None)
            checks = [checked(used, f"read from {plan}")]
        else:
            used = planned(strategy)
            checks = [checked(used, reasons(used.data)[0])]
            spread = _fastest_spread(used) if strategy == "auto" else None
            if spread is not None:
                why = "the fastest on several devices, as the plan above runs on one"
                checks.append(checked(planned(spread.strategy), why))
    ok = all(each.verification.ok for each in checks)
    if as_json:
        document({"ok": ok, "checks": [_document(each) for each in checks]})
    else:
        result(_text(checks))
    if not ok:
        raise typer.Exit(1)


def _fastest_spread(plan: Plan) -> Alternative | None:
    """Of a plan for one device, the fastest candidate on several; None where there is none, or the plan has several."""
    if len(plan.data.devices) > 1:
        return None
    rivals = [
        each
        for each in plan.data.alternatives
        if each.devices > 1 and each.step_seconds is not None
    ]
    # model computes on one device at a time, so it comes last, as in the search
    return min(
        rivals,
        key=lambda each: (each.strategy == "model", each.step_seconds or 0.0),
        default=None,
    )


def _text(checks: list[Checked]) -> str:
    from rich.console import Group
    from rich.text import Text

    from autoplan.report.text import arrangement, render

    sections = []
    for number, each in enumerate(checks):
        lines = [arrangement(each.plan.data), each.why]
        if each.verification.workers == 1:
            lines.append("nothing is shared out: what counts is the comparison with plain PyTorch")
        body = Group(*map(Text, lines), Text(""), Text(str(each.verification)))
        sections.append(("Verified as well" if number else "Verified", body))
    return render(*sections)


def _document(checked: Checked) -> dict[str, object]:
    """In JSON's types; an error that has no size (a gradient that only one has, not a number) is null."""
    data, verification = checked.plan.data, checked.verification
    use = data.pipeline
    errors: dict[str, Any] = {
        f"{name}_error": getattr(verification, f"{name}_error") for name in ERRORS
    }
    return {
        "strategy": data.strategy,
        "devices": data.devices_text,
        "ranks": len(data.devices),
        "stages": len(data.stages),
        "replicas": None if use is None else use.replicas,
        "micro_batches": None if use is None else use.micro_batches,
        "schedule": None if use is None else use.schedule,
        "why": checked.why,
        "ok": verification.ok,
        "steps": verification.steps,
        **{name: error if math.isfinite(error) else None for name, error in errors.items()},
        "worst_parameter": verification.worst_parameter,
        "bound": verification.bound,
        "sentence": str(verification),
    }
