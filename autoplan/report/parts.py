"""The parts of a plan as documents in JSON's types: what each section of `explain` shows, in seconds and bytes. No torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Literal

from autoplan.plan import PlanData, StagePlan
from autoplan.report.stages import stages_document

Part = Literal["candidates", "stages", "memory", "communication", "states"]


def part_document(plan: PlanData, part: Part) -> dict[str, Any]:
    """One part of a plan under its own name."""
    if part == "candidates":
        return {part: [asdict(alternative) for alternative in plan.alternatives]}
    if part == "stages":
        return stages_document(plan)
    if part == "memory":
        return {part: memory(plan)}
    if part == "communication":
        return {part: communication(plan)}
    return {part: states(plan)}


def memory(plan: PlanData) -> list[dict[str, Any]]:
    """One sheet a rank of each stage: bytes by kind, their peak, and the capacity."""
    return [
        {
            "stage": position,
            "rank": rank,
            "profile": plan.devices[rank].profile,
            "peak": sheet.peak,
            **asdict(sheet),
        }
        for position, stage in enumerate(plan.stages)
        for rank, sheet in zip(stage.devices, stage.memory, strict=True)
    ]


def communication(plan: PlanData) -> dict[str, Any]:
    """Payload sent per rank in one step, and the transitions and sends between stages that are part of it."""
    return {
        "bytes_per_rank": list(plan.predicted.communication_bytes),
        "transitions": [
            {"stage": position, "ranks": list(stage.devices), **asdict(transition)}
            for position, stage in enumerate(plan.stages)
            for transition in stage.transitions
        ],
        "sends": [
            {
                "stage": position,
                "ranks": list(stage.devices),
                "target_ranks": list(plan.stages[transfer.target].devices),
                **asdict(transfer),
            }
            for position, stage in enumerate(plan.stages)
            for transfer in stage.sends
        ],
    }


def states(plan: PlanData) -> list[dict[str, Any]]:
    """Per stage and module, how many ops run in which state."""
    return [
        {
            "stage": position,
            "ranks": list(stage.devices),
            "modules": [
                {"module": module, "ops": counted.total(), "states": dict(counted)}
                for module, counted in states_by_module(stage).items()
            ],
        }
        for position, stage in enumerate(plan.stages)
    ]


def states_by_module(stage: StagePlan) -> dict[str, Counter[str]]:
    """How many of a module's ops run in which state; modules in the order of the program, the model itself as ``""``."""
    modules: dict[str, Counter[str]] = {}
    for choice in stage.choices:
        modules.setdefault(choice.module, Counter())[choice.strategy] += 1
    return modules
