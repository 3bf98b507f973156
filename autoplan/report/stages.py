"""The stages of a plan side by side, and how they work together. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autoplan.plan import PipelineUse, PlanData, StagePlan
from autoplan.report.tables import plain_table
from autoplan.report.units import count, percent, seconds, size

WORDS_SHOWN = 4
"""With more layers (or runs of them) than this a stage names the first and the last."""


def stages(plan: PlanData) -> RenderableType:
    """One row a stage: where it runs, which layers it has, how long it is busy, what it holds and sends."""
    numbers = ("ranks", "ops", "busy", "peak", "sends")
    table = plain_table("stage", "ranks", "layers", "ops", "busy", "peak", "sends", numbers=numbers)
    words = layers(plan.stages)
    for position, stage in enumerate(plan.stages):
        sent = sum(sum(transfer.forward_bytes) for transfer in stage.sends)
        table.add_row(
            f"{position} ({_profiles(plan, stage)})",
            ranks(stage),
            words[position],
            str(len(stage.choices)),
            seconds(stage.busy_seconds),
            size(max((sheet.peak for sheet in stage.memory), default=0.0)),
            _sent(stage, sent),
        )
    use = plan.pipeline
    unit = "graphs" if plan.batch is None or plan.batch.unit == "graph" else "components"
    lines = [] if use is None else [Text(line) for line in together(use, len(plan.stages), unit)]
    return Group(table, *lines)


def together(use: PipelineUse, number: int, unit: str = "graphs") -> list[str]:
    """How stages and micro-batches (of whole units) follow each other, in sentences."""
    if use.micro_batches == 1 and use.replicas == 1:
        return [
            f"one micro-batch: the {number} stages compute one after the other, so a device waits "
            f"{percent(use.bubble)} of the step;",
            "stages of one micro-batch buy memory and no speed",
        ]
    orders = {
        "gpipe": "all forward, then all backward (GPipe)",
        "1f1b": "one forward, one backward in turn (1F1B)",
    }
    lines = [
        f"{count(use.micro_batches, 'micro-batch', 'micro-batches')} of whole {unit}"
        f"{f' in each of {use.replicas} replicas' if use.replicas > 1 else ''}"
        f"{f', {orders[use.schedule]}' if use.micro_batches > 1 else ''}",
        f"a device waits {percent(use.bubble)} of the step (bubble)",
    ]
    if use.micro_batches == 1:
        lines.append(
            "stages of one micro-batch buy memory and no speed; speed is from the replicas"
        )
    return lines


def ranks(stage: StagePlan) -> str:
    """``0, 3`` or, of many, ``0 to 12``."""
    if len(stage.devices) > 4:
        return f"{stage.devices[0]} to {stage.devices[-1]}"
    return ", ".join(map(str, stage.devices))


def layers(plans: Sequence[StagePlan]) -> list[str]:
    """What each stage has of the model in words: ``convs.0 to convs.15``; ``conv2 (in part)`` where others have the rest."""
    of_stage = [
        list(dict.fromkeys(layer for choice in stage.choices if (layer := _layer(choice.module))))
        for stage in plans
    ]
    shared = {
        layer
        for layer, number in Counter(layer for found in of_stage for layer in found).items()
        if number > 1
    }
    return [_in_words(found, shared) for found in of_stage]


def _layer(module: str) -> str:
    """A module's path to its first number, or its first part: ``convs.3.lin`` is of ``convs.3``, ``conv1.lin`` of ``conv1``."""
    parts = module.split(".")
    for position, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: position + 1])
    return parts[0]


def _in_words(found: Sequence[str], shared: set[str]) -> str:
    runs: list[list[str]] = []
    for layer in found:
        if (
            runs
            and layer not in shared
            and runs[-1][-1] not in shared
            and _follows(runs[-1][-1], layer)
        ):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    words = []
    for run in runs:
        if len(run) > 2:
            words.append(f"{run[0]} to {run[-1]}")
        else:
            words += [f"{layer} (in part)" if layer in shared else layer for layer in run]
    if len(words) > WORDS_SHOWN:
        words = [*words[:2], "...", words[-1]]
    return ", ".join(words) or "ops of no layer"


def _follows(before: str, after: str) -> bool:
    """Whether two paths end in neighbouring numbers and are the same before."""
    first, _, low = before.rpartition(".")
    second, _, high = after.rpartition(".")
    return first == second and low.isdigit() and high.isdigit() and int(high) == int(low) + 1


def _profiles(plan: PlanData, stage: StagePlan) -> str:
    kinds = Counter(plan.devices[rank].profile for rank in stage.devices)
    return ", ".join(kind if number == 1 else f"{number} {kind}" for kind, number in kinds.items())


def _sent(stage: StagePlan, sent: float) -> str:
    targets = sorted({transfer.target for transfer in stage.sends})
    return f"{size(sent)} to {', '.join(map(str, targets))}" if targets else ""


def stages_document(plan: PlanData) -> dict[str, Any]:
    """`stages` in JSON's types: seconds and bytes, all that is sent."""
    words = layers(plan.stages)
    return {
        "pipeline": None if plan.pipeline is None else asdict(plan.pipeline),
        "stages": [
            {
                "stage": position,
                "ranks": list(stage.devices),
                "layers": words[position],
                "ops": len(stage.choices),
                "busy_seconds": stage.busy_seconds,
                "peak_bytes": max((sheet.peak for sheet in stage.memory), default=0.0),
                "parameters": list(stage.parameters),
                "sends": [asdict(transfer) for transfer in stage.sends],
            }
            for position, stage in enumerate(plan.stages)
        ],
    }
