"""The tables of a plan's explanation: candidates, memory, communication, partition, states. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoplan.opgraph import type_of_axis
from autoplan.opnames import made_by
from autoplan.plan import (
    Alternative,
    MemorySheet,
    PartitionUse,
    PlanData,
    PlannedTransfer,
    StagePlan,
)
from autoplan.report.units import count, percent, seconds, size
from autoplan.search.refusals import refusals
from autoplan.states import STATE_WORDS

RANKS_SHOWN = 6
"""With more ranks than this a table shows the least, the mean and the most instead of a column for each."""

MODULES_SHOWN = 24
"""With more modules than this, modules are shown by the first part of their path."""

_SHEET: tuple[tuple[str, Callable[[MemorySheet], float]], ...] = (
    ("weights", lambda sheet: sheet.weights),
    ("gradients", lambda sheet: sheet.gradients),
    ("optimizer", lambda sheet: sheet.optimizer),
    ("activations kept", lambda sheet: sheet.activations),
    ("messages", lambda sheet: sheet.messages),
    ("graph", lambda sheet: sheet.inputs),
    ("transient", lambda sheet: sheet.transient),
    ("buffers", lambda sheet: sheet.buffers),
    ("peak", lambda sheet: sheet.peak),
    ("reserved", lambda sheet: sheet.head_room),
)


def plain_table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """An empty table without borders; the columns in ``numbers`` are set to the right and never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        right = column in numbers
        # Folded: words that are too long, such as paths, stay whole over two lines.
        table.add_column(
            column, justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    return table


def dense_table() -> Table:
    """An empty table like `plain_table`, its columns two blanks apart: for those of many figures."""
    return Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style=""
    )


def _rank_columns(plan: PlanData) -> list[str]:
    if len(plan.devices) > RANKS_SHOWN:
        return ["least", "mean", "most"]
    return [f"rank {use.rank}" for use in plan.devices]


def _by_rank(values: Sequence[float], show: Callable[[float], str]) -> list[str]:
    if len(values) > RANKS_SHOWN:
        return [show(min(values)), show(sum(values) / len(values)), show(max(values))]
    return [show(value) for value in values]


def candidates(alternatives: Sequence[Alternative]) -> RenderableType:
    """Every candidate with its price, against the chosen one; below, why the others were rejected, equal reasons once."""
    numbers = ("devices", "step", "peak", "against")
    table = plain_table("candidate", *numbers, "", numbers=numbers)
    chosen = next((a.step_seconds for a in alternatives if a.chosen), None)
    for alternative in alternatives:
        price = alternative.step_seconds
        if alternative.reason is not None and not alternative.chosen:
            continue
        ratio = f"{price / chosen:.2f} x" if price is not None and chosen else ""
        table.add_row(
            alternative.name,
            str(alternative.devices),
            "" if price is None else seconds(price),
            "" if alternative.peak_bytes is None else size(alternative.peak_bytes),
            ratio,
            "chosen" if alternative.chosen else "",
        )
    rejected = refusals(alternatives)
    if not rejected:
        return table
    return Group(table, Text(""), Text("rejected:"), *(Text(line) for line in rejected))


_MEMORY = {
    "messages": "messages: values of edges kept for backward",
    "graph": "graph: its tensors",
    "transient": "transient: what lives only while ops run",
    "buffers": "buffers: of the largest exchange",
    "reserved": "reserved: the share of the capacity that plans leave free",
}
"""What the rows of the memory table are that do not say it themselves."""


def memory(plan: PlanData) -> RenderableType:
    """What fills each device, one row a kind, with the capacity it must fit."""
    columns = _rank_columns(plan)
    table = plain_table("", *columns, numbers=columns)
    placed = {
        rank: sheet
        for stage in plan.stages
        for rank, sheet in zip(stage.devices, stage.memory, strict=True)
    }
    sheets = [placed[rank] for rank in sorted(placed)]
    shown = []
    for name, of in _SHEET:
        values = [of(sheet) for sheet in sheets]
        # what no rank has is left out: no messages are kept, nothing is sent
        if not any(values) and name != "peak":
            continue
        if name == "peak":
            table.add_section()
        shown.append(name)
        table.add_row(name, *_by_rank(values, size))
    capacities = [sheet.capacity for sheet in sheets if sheet.capacity is not None]
    if len(capacities) == len(sheets):
        table.add_row("capacity", *_by_rank(capacities, size))
    kinds = Counter(use.profile for use in plan.devices)
    devices = ", ".join(f"{number} x {profile}" for profile, number in kinds.items())
    legend = "; ".join(what for name, what in _MEMORY.items() if name in shown)
    return Group(table, *([Text(legend)] if legend else []), Text(f"devices: {devices}"))


def communication(plan: PlanData) -> RenderableType:
    """What is sent between states and between stages, forward and backward, and what is left: gradients and what ops add up."""
    columns = _rank_columns(plan)
    table = plain_table("tensor", "exchange", *columns, numbers=columns)
    rest = [float(total) for total in plan.predicted.communication_bytes]
    for what, exchange, ranks, values in _payloads(plan):
        if not any(values):
            continue
        sent = [0.0] * len(rest)
        for rank, value in zip(ranks, values, strict=True):
            sent[rank] += value
            rest[rank] -= value
        table.add_row(what, exchange, *_by_rank(sent, size))
    # a loss that is summed inside an op, and the headers of messages, are not listed by themselves
    if any(rest) or not table.rows:
        table.add_row("parameters", "gradients, and reductions inside ops", *_by_rank(rest, size))
    table.add_section()
    table.add_row("", "all", *_by_rank(plan.predicted.communication_bytes, size))
    used = {
        state
        for stage in plan.stages
        for step in stage.transitions
        if any(step.forward_bytes) or any(step.backward_bytes)
        for state in (step.source, step.target)
    }
    legend = "; ".join(f"{state}: {what}" for state, what in STATE_WORDS.items() if state in used)
    return Group(table, *([Text(legend)] if legend else []))


def _payloads(
    plan: PlanData,
) -> Iterator[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    """(tensor, exchange, ranks that send, bytes of each) of every transition and transfer, in each direction."""
    for stage in plan.stages:
        for step in stage.transitions:
            what = f"{step.exchange.replace('_', ' ')} {step.source}→{step.target}"
            name = made_by(step.made_by) or step.tensor
            yield name, f"{what}, forward", stage.devices, step.forward_bytes
            yield name, f"{what}, backward", stage.devices, step.backward_bytes
    for position, stage in enumerate(plan.stages):
        for target, what, forward, backward in by_target(stage):
            yield what, f"stage {position} to {target}", stage.devices, forward
            back = plan.stages[target].devices
            yield what, f"gradient, stage {target} to {position}", back, backward


def by_target(stage: StagePlan) -> list[tuple[int, str, tuple[int, ...], tuple[int, ...]]]:
    """What a stage sends: target, what made it, bytes of each of its ranks, and of each rank of the target back."""

    def key(transfer: PlannedTransfer) -> tuple[int, str]:
        return transfer.target, made_by(transfer.made_by) or transfer.tensor

    found = []
    for (target, what), group in groupby(sorted(stage.sends, key=key), key=key):
        same = list(group)
        forward = _sums([transfer.forward_bytes for transfer in same])
        found.append((target, what, forward, _sums([t.backward_bytes for t in same])))
    return found


def _sums(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


METHODS = {
    "model": "stated halo model (the graph is not here; see the notes)",
    "metis": "METIS",
}
"""How parts were made, for people; other methods go by their own names."""


def partition(use: PartitionUse) -> RenderableType:
    """Owned nodes, edges and halo of every part, and the edges that cross."""
    closed = use.method == "closed"
    edges = sum(use.owned_edges)
    share = use.cut_edges / edges if edges else 0.0
    seed = "" if use.method == "model" else f", seed {use.seed}"
    summary = (
        f"{count(use.parts, 'part')} of whole graphs: none of {count(edges, 'edge')} crosses"
        if closed
        else f"{METHODS.get(use.method, use.method)}, {count(use.parts, 'part')}{seed}: "
        f"{use.cut_edges:,} of {count(edges, 'edge')} cross ({percent(share)})"
    )
    many = use.parts > RANKS_SHOWN
    what = "part" if closed else "rank"
    columns = ["least", "mean", "most"] if many else [f"{what} {r}" for r in range(use.parts)]
    table = plain_table("", *columns, numbers=columns)
    rows = [("nodes owned", use.owned_nodes), ("edges owned", use.owned_edges)]
    if not closed:
        rows.append(("halo nodes", use.halo_nodes))
    for of in use.types:
        kind = type_of_axis(of.axis) or of.axis
        rows.append((f"  {kind} owned", of.owned))
        if not closed:
            rows.append((f"  {kind} halo", of.halo))
    for name, values in rows:
        table.add_row(name, *_by_rank(values, lambda value: f"{value:,.0f}"))
    return Group(Text(summary), table)


LEGEND: dict[str, str] = {
    **{str(state): words for state, words in STATE_WORDS.items()},
    "counted": "owned rows, with the count of all rows",
}
"""What the names of strategies say."""


def states(plan: PlanData) -> RenderableType:
    """In which state each module's ops run."""
    tables: list[RenderableType] = []
    whole = all(choice.strategy == "R" for stage in plan.stages for choice in stage.choices)
    if whole and all(len(stage.devices) == 1 for stage in plan.stages):
        number = count(sum(len(stage.choices) for stage in plan.stages), "op")
        holds = "one device holds everything" if len(plan.stages) == 1 else "nothing is cut"
        return Text(f"{holds}: all {number} in R")
    for position, stage in enumerate(plan.stages):
        paths = {choice.module for choice in stage.choices}
        short = len(paths) > MODULES_SHOWN
        ops: dict[str, Counter[str]] = {}
        for choice in stage.choices:
            path = choice.module.split(".")[0] if short else choice.module
            ops.setdefault(path or "(model)", Counter())[choice.strategy] += 1
        table = plain_table("module", "ops", "states", numbers=("ops",))
        for path, strategies in ops.items():
            shown = ", ".join(f"{name} {number}" for name, number in strategies.most_common())
            table.add_row(path, str(strategies.total()), shown)
        if len(plan.stages) > 1:
            ranks = "rank" if len(stage.devices) == 1 else "ranks"
            tables.append(Text(f"stage {position}, {ranks} {', '.join(map(str, stage.devices))}"))
        tables.append(table)
    used = {choice.strategy for stage in plan.stages for choice in stage.choices}
    tables.append(
        Text("; ".join(f"{name}: {what}" for name, what in LEGEND.items() if name in used))
    )
    return Group(*tables)
