"""What differs between two plans, by meaning: answer, devices, prices, candidates, memory, communication, states. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from autoplan.opgraph import type_of_axis
from autoplan.opnames import made_by
from autoplan.plan import MemorySheet, PlanData
from autoplan.report.parts import states_by_module
from autoplan.report.stages import layers
from autoplan.report.units import count

Subject = Literal[
    "answer",
    "fingerprints",
    "graph",
    "devices",
    "predicted",
    "partition",
    "stages",
    "candidates",
    "memory",
    "communication",
    "states",
    "document",
]
Unit = Literal["", "seconds", "bytes"]
Value = str | float | bool | None
"""A fact of a plan; None where a plan has no such thing."""

_ANSWER = (
    "strategy",
    "forced",
    "rebound",
    "exact",
    "status",
    "gap",
    "deterministic",
    "objective",
    "optimizer",
    "loss",
    "generality",
    "generality_reason",
    "autoplan_version",
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement about a plan: where it belongs, what it is about, its value and the value's unit."""

    part: Subject
    name: str
    value: Value
    unit: Unit = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A fact that two plans do not share; a value is None where that plan has no such thing."""

    part: Subject
    name: str
    first: Value
    second: Value
    unit: Unit = ""


def compare(first: PlanData, second: PlanData) -> tuple[Change, ...]:
    """The changes from one plan to another, part by part; empty only for equal plans."""
    if first == second:
        return ()
    changed = tuple(_changes(_facts(first), _facts(second)))
    return changed or tuple(_changes(_leaves("", asdict(first)), _leaves("", asdict(second))))


def _changes(first: Iterator[Fact], second: Iterator[Fact]) -> Iterator[Change]:
    """Facts of the same part and name with other values, and facts of one plan alone; in the order of the parts."""
    before = {(fact.part, fact.name): fact for fact in first}
    after = {(fact.part, fact.name): fact for fact in second}
    order = get_args(Subject)
    for part, name in sorted({**before, **after}, key=lambda key: order.index(key[0])):
        old, new = before.get((part, name)), after.get((part, name))
        old_value = old.value if old else None
        new_value = new.value if new else None
        if old_value != new_value:
            unit = old.unit if old else after[part, name].unit
            yield Change(part, name, old_value, new_value, unit)


def _facts(plan: PlanData) -> Iterator[Fact]:
    for name in _ANSWER:
        yield Fact("answer", name.replace("_", " "), getattr(plan, name))
    for note in plan.notes:
        yield Fact("answer", f"note: {note}", True)
    for op in plan.unknown_ops:
        yield Fact("answer", f"no rule for {op}", True)
    for name in ("model", "graph", "devices"):
        yield Fact("fingerprints", name, getattr(plan.fingerprints, name))
    yield from _graph(plan)
    yield from _devices(plan)
    yield from _prediction(plan)
    yield from _partition(plan)
    yield from _stages(plan)
    yield from _candidates(plan)
    yield from _memory(plan)
    yield from _communication(plan)
    yield from _states(plan)


def _graph(plan: PlanData) -> Iterator[Fact]:
    for axis, number in plan.graph_rows:
        yield Fact("graph", f"rows of {axis}", number)
    for name, form in plan.graph_attributes:
        yield Fact("graph", name, form)


def _devices(plan: PlanData) -> Iterator[Fact]:
    yield Fact("devices", "devices", plan.devices_text)
    yield Fact("devices", "ranks", len(plan.devices))
    kinds = Counter((use.profile, use.host, use.memory_bytes) for use in plan.devices)
    for (profile, host, memory), number in kinds.items():
        limit = "" if memory is None else f" with {memory:,} bytes"
        yield Fact("devices", f"{profile} on host {host}{limit}", number)
    for kind in plan.cluster.profiles:
        for name, value in kind.figures:
            yield Fact("devices", f"{kind.name}: {name}", value)
    for where, link in (("within", plan.cluster.intra_host), ("between", plan.cluster.inter_host)):
        if link is not None:
            yield Fact("devices", f"link {where} hosts: latency", link.latency_seconds, "seconds")
            yield Fact("devices", f"link {where} hosts: bytes per second", link.bytes_per_s)


def _prediction(plan: PlanData) -> Iterator[Fact]:
    predicted = plan.predicted
    times = {
        "step": predicted.step_seconds.value,
        "step, at least": predicted.step_seconds.low,
        "step, at most": predicted.step_seconds.high,
        "computing": predicted.compute_seconds,
        "communicating": predicted.communication_seconds,
    }
    for name, value in times.items():
        yield Fact("predicted", name, value, "seconds")
    peak = max((peak.value for peak in predicted.peak_bytes), default=0.0)
    yield Fact("predicted", "peak memory of the fullest device", peak, "bytes")
    sent = predicted.communication_bytes
    yield Fact("predicted", "sent by all devices", sum(sent), "bytes")
    yield Fact("predicted", "sent by the busiest device", max(sent, default=0), "bytes")


def _partition(plan: PlanData) -> Iterator[Fact]:
    cut = plan.partition
    if cut is None:
        return
    yield Fact("partition", "method", cut.method)
    yield Fact("partition", "seed", cut.seed)
    yield Fact("partition", "parts", cut.parts)
    yield Fact("partition", "edges that cross", cut.cut_edges)
    yield Fact("partition", "most nodes owned", max(cut.owned_nodes, default=0))
    yield Fact("partition", "most halo nodes", max(cut.halo_nodes, default=0))
    yield Fact("partition", "most edges owned", max(cut.owned_edges, default=0))
    for of in cut.types:
        kind = type_of_axis(of.axis) or of.axis
        yield Fact("partition", f"most nodes of {kind} owned", max(of.owned, default=0))
        yield Fact("partition", f"most halo nodes of {kind}", max(of.halo, default=0))


def _stages(plan: PlanData) -> Iterator[Fact]:
    """How stages work together, and what each has; nothing where there is one group of devices."""
    use = plan.pipeline
    if use is None:
        return
    yield Fact("stages", "stages", len(plan.stages))
    yield Fact("stages", "schedule", use.schedule)
    yield Fact("stages", "micro-batches of a replica", use.micro_batches)
    yield Fact("stages", "replicas", use.replicas)
    yield Fact("stages", "share of the step that a device waits", use.bubble)
    for position, (stage, words) in enumerate(zip(plan.stages, layers(plan.stages), strict=True)):
        yield Fact("stages", f"stage {position}: layers", words)
        yield Fact("stages", f"stage {position}: ops", len(stage.choices))
        yield Fact("stages", f"stage {position}: busy", stage.busy_seconds, "seconds")


def _candidates(plan: PlanData) -> Iterator[Fact]:
    for candidate in plan.alternatives:
        name = candidate.name
        verdict = "chosen" if candidate.chosen else candidate.reason or "priced"
        yield Fact("candidates", name, verdict)
        yield Fact("candidates", f"{name}: step", candidate.step_seconds, "seconds")
        yield Fact("candidates", f"{name}: peak", candidate.peak_bytes, "bytes")


_WORDS = {"activations": "activations kept", "inputs": "graph", "head_room": "reserved"}
"""Fields of a memory sheet as the table of a plan's memory names them."""


def _memory(plan: PlanData) -> Iterator[Fact]:
    """By kind, the most that a device holds."""
    sheets = [sheet for stage in plan.stages for sheet in stage.memory]
    for name in MemorySheet.__dataclass_fields__:
        held = [value for sheet in sheets if (value := getattr(sheet, name)) is not None]
        most = max(held) if held else None
        yield Fact("memory", _WORDS.get(name, name), most, "bytes")


def _communication(plan: PlanData) -> Iterator[Fact]:
    """By transition, what all ranks send; transitions of one op and kind together."""
    sent: Counter[str] = Counter()
    for stage in plan.stages:
        for moved in stage.transitions:
            name = (
                f"{made_by(moved.made_by) or moved.tensor}: {moved.exchange.replace('_', ' ')} "
                f"{moved.source}→{moved.target}"
            )
            sent[name] += sum(moved.forward_bytes) + sum(moved.backward_bytes)
    for position, stage in enumerate(plan.stages):
        for transfer in stage.sends:
            name = f"{made_by(transfer.made_by) or transfer.tensor}: stage {position} to {transfer.target}"
            sent[name] += sum(transfer.forward_bytes) + sum(transfer.backward_bytes)
    for name, total in sent.items():
        yield Fact("communication", name, total, "bytes")


def _states(plan: PlanData) -> Iterator[Fact]:
    for position, stage in enumerate(plan.stages):
        of_stage = f"stage {position}: " if len(plan.stages) > 1 else ""
        yield Fact("states", f"{of_stage}ranks", _listed(stage.devices))
        for name, state in stage.inputs:
            yield Fact("states", f"{of_stage}input {name} in {state}", True)
        for module, counted in states_by_module(stage).items():
            shown = ", ".join(f"{state} {number}" for state, number in sorted(counted.items()))
            yield Fact("states", f"{of_stage}{module or '(model)'}", shown)


def _listed(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 4:
        return f"{ranks[0]} to {ranks[-1]} ({count(len(ranks), 'device')})"
    return ", ".join(map(str, ranks))


def _leaves(path: str, value: object) -> Iterator[Fact]:
    """Every number and text of a plan's document by its path: for plans that differ in no fact above."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), item)
    elif isinstance(value, tuple | list):
        for position, item in enumerate(value):
            yield from _leaves(f"{path}[{position}]", item)
    elif value is None or isinstance(value, str | int | float):
        yield Fact("document", path, value)
