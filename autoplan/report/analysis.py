"""`autoplan analyze` as plain text at 100 columns and as a document: costs by layer, class and op, and traffic. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from autoplan.analysis import Analysis, Figures, Group, OpFigures
from autoplan.graphstats import GraphStats
from autoplan.graphstructure import GraphStructure
from autoplan.opnames import op_name
from autoplan.report.names import Name
from autoplan.report.structure import structure
from autoplan.report.tables import dense_table
from autoplan.report.text import render
from autoplan.report.units import count, decimal, digits, listed, percent, size
from autoplan.search.refusals import refusals
from autoplan.search.volumes import Volume
from autoplan.unread import is_waste

UNKNOWN = (
    "no rule covers them: they run replicated, and are priced by the sizes of their tensors (each read or written once, one "
    "operation an element, twice that backward)"
)
"""Why the figures of an unknown op are what they are."""

CLASSES = (
    "update: rows of nodes from rows of nodes (dense layers); gather: rows read along edges; message: rows of edges "
    "computed; aggregate: rows of edges added up in nodes (the classes of Besta and Hoefler's survey of parallel GNNs); "
    "other: the rest."
)
"""What the kinds of work are."""

OPS = (
    "below each op: how it is priced, its kind of work, and what each dimension of its first result counts ([node, "
    "feature]; const: a fixed size)."
)
"""What the lines of an op say."""

LEGEND = (
    "(model), (loss): ops of the model's own forward, and of the loss; fwd, bwd: forward and backward pass; bytes: read and written; nnz: rows gathered or scattered, nonzeros of sparse factors; density: of these among all row "
    "pairs; work: operations and elements moved; depth: the longest chain of them; parallel: work / depth; kept: for "
    "backward; once: ops that depend on the graph alone and can leave the training loop; unread: ops whose results nothing "
    "reads."
)

_COLUMNS = (
    ("FLOPs", 6),
    ("bytes", 8),
    ("nnz", 6),
    ("density", 7),
    ("work", 6),
    ("depth", 6),
    ("parallel", 8),
)
_OP_WIDTH = 32


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A program's figures on a graph, and what it would send over devices.

    Attributes:
        figures: by op, layer and class, and in all.
        stats: of the graph that it is priced on; structure: what else is known of that.
        loss: what is differentiated, in words; training: the mode.
        generality, reason: of the trace.
        devices: whose traffic is told, as the user named them; volumes: of each candidate, empty where that was not asked.
        notes: what else there is to say.
    """

    figures: Analysis
    stats: GraphStats
    loss: str
    training: bool
    generality: str
    reason: str | None
    devices: str
    volumes: tuple[Volume, ...]
    structure: GraphStructure | None = None
    notes: tuple[str, ...] = ()


def analysis_text(report: ProgramReport, *, ops: bool = False) -> str:
    """The report for a reader; ``ops``: every op, too."""
    figures = report.figures
    sections: list[tuple[str, RenderableType]] = [
        ("Program", _lines(*_program(report))),
        ("By layer", _layers(figures)),
        ("By kind of work, forward", Stack(_phases(figures), Text(CLASSES))),
    ]
    if ops:
        sections.append(("By op", _ops(figures)))
    if report.volumes:
        title = f"Sent in one step on {report.devices}, payload of all ranks together"
        sections.append((title, _volumes(report.volumes)))
    if report.structure is not None:
        sections.append(("Graph", structure(report.structure)))
    sections.append(("Unknown ops", _lines(*_unknown(figures))))
    notes = notes_of(report)
    if notes:
        sections.append(("Notes", _lines(*notes)))
    sections.append(("Legend", Text(LEGEND)))
    return render(*sections)


def analysis_document(report: ProgramReport) -> dict[str, Any]:
    """The report in JSON's types: bytes, operations and rows as numbers, None where there is no such figure."""
    figures = report.figures
    return {
        "loss": report.loss,
        "training": report.training,
        "generality": report.generality,
        "reason": report.reason,
        "rows": dict(report.stats.rows),
        "layers": [_group_document(group) for group in figures.layers],
        "classes": [_group_document(group) for group in figures.phases],
        "total": _group_document(figures.total),
        "ops": [_op_document(op) for op in figures.ops],
        "unknown": [
            {"name": name, "ops": number, "reason": UNKNOWN}
            for name, number in _unknown_names(figures).items()
        ],
        "hoisted": [asdict(value) for value in figures.hoisted],
        "devices": report.devices,
        "communication": [asdict(volume) for volume in report.volumes],
        "structure": None if report.structure is None else asdict(report.structure),
        "notes": list(notes_of(report)),
    }


def notes_of(report: ProgramReport) -> tuple[str, ...]:
    """What is said beside the figures, in the text and in the document."""
    return (*_hoisted(report.figures), *_wasted(report.figures), *report.notes)


def _lines(*lines: str) -> Text:
    return Text("\n".join(lines))


def _program(report: ProgramReport) -> list[str]:
    total = report.figures.total
    mode = "training" if report.training else "evaluation"
    lines = [f"{count(len(total.ops), 'op')} in {mode} mode; {report.loss}"]
    if report.generality == "general":
        lines.append("the trace is general: the program holds for any graph of this schema")
    else:
        lines.append(f"the trace is {report.generality}: {report.reason or 'no reason recorded'}")
    rows = ", ".join(f"{axis} {number:,}" for axis, number in report.stats.rows.items())
    lines.append(f"rows: {rows}")
    return lines


def _table(first: str, *, least: int = 0, passes: bool = True) -> Table:
    """An empty table of figures, none of which is cut or wrapped: the first column gives way."""
    table = dense_table()
    table.add_column(Name(first, width=least), overflow="fold")
    if passes:
        table.add_column("", no_wrap=True)
    for name, width in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    return table


def _cells(figures: Figures) -> list[str]:
    density, parallelism = figures.density, figures.parallelism
    return [
        decimal(figures.flops),
        size(figures.bytes),
        decimal(figures.nnz) if figures.nnz else "",
        "" if density is None else _small(density),
        decimal(figures.work),
        digits(figures.depth),
        "" if parallelism is None else decimal(parallelism),
    ]


def _small(share: float) -> str:
    """A share between 0 and 1 in at most seven columns: ``0.25``, ``2.1e-4``."""
    return f"{share:.2g}" if share >= 0.01 else f"{share:.1e}".replace("e-0", "e-")


def _both(forward: Figures, backward: Figures | None) -> list[str]:
    """Cells of two lines: forward above backward."""
    above = _cells(forward)
    below = [""] * len(above) if backward is None else _cells(backward)
    names = "fwd" if backward is None else "fwd\nbwd"
    return [names, *(f"{a}\n{b}" for a, b in zip(above, below, strict=True))]


def _layers(figures: Analysis) -> Table:
    table = _table("layer")
    table.add_column("kept", justify="right", no_wrap=True, min_width=8)
    for group in (*figures.layers, figures.total):
        backward = group.backward if group.backward.bytes else None
        kept = size(group.saved_bytes) if group.saved_bytes else ""
        if group is figures.total:
            table.add_section()
        table.add_row(Name(group.name, [_members(group)]), *_both(group.forward, backward), kept)
    return table


def _members(group: Group) -> str:
    """``12 ops, 3 once, 1 unknown, 2 unread``."""
    words = [count(len(group.ops), "op")]
    if group.hoistable:
        words.append(f"{group.hoistable} once")
    if group.unknown:
        words.append(f"{group.unknown} unknown")
    if group.unread:
        words.append("all unread" if group.unread == len(group.ops) else f"{group.unread} unread")
    return f" {', '.join(words)}"


def _phases(figures: Analysis) -> Table:
    table = _table("kind", passes=False)
    for name in ("of bytes", "of work"):
        table.add_column(name, justify="right", no_wrap=True)
    total = figures.total.forward
    for group in figures.phases:
        shares = [
            percent(part / whole) if whole else ""
            for part, whole in (
                (group.forward.bytes, total.bytes),
                (group.forward.work, total.work),
            )
        ]
        table.add_row(group.name, *_cells(group.forward), *shares)
    return table


def _ops(figures: Analysis) -> Stack:
    """One table a layer."""
    tables: list[RenderableType] = []
    by_index = {op.index: op for op in figures.ops}
    for group in figures.layers:
        # equally wide where that can be: columns stand below each other from layer to layer
        table = _table(group.name, least=_OP_WIDTH)
        for op in (by_index[index] for index in group.ops):
            table.add_row(Name(*_op_lines(op)), *_both(op.forward, op.backward))
        tables += [table, Text("")]
    return Stack(*tables, Text(OPS))


def _op_lines(op: OpFigures) -> tuple[str, list[str]]:
    """``12 mm, once``, and below it ``dense update [node, feature]``."""
    marks = [
        word
        for word, holds in (
            ("once", op.hoistable),
            ("unknown", not op.known),
            ("unread", op.unread),
        )
        if holds
    ]
    name = f"{op.index} {op_name(op.name)}"
    return ", ".join([name, *marks]), [f" {op.kind} {op.phase} [{', '.join(op.roles)}]"]


def _volumes(volumes: Sequence[Volume]) -> Stack:
    """A row for each candidate that has a price; the reasons of the others below."""
    names = ("halo", "gather", "reduce", "stages", "gradients")
    table = dense_table()
    table.add_column("candidate", overflow="fold")
    for name in (*names, "all", "busiest"):
        table.add_column(name, justify="right", no_wrap=True)
    for volume in volumes:
        if volume.reason is not None:
            continue
        values = [getattr(volume, name) for name in names]
        cells = [size(value) if value else "" for value in values]
        table.add_row(volume.name, *cells, size(volume.total), size(volume.busiest))
    refused = [Text(line) for line in refusals(volumes)]
    return Stack(
        table,
        Text(
            "halo: rows of others that edges read; gather: whole tensors put together; reduce: sums; stages: from stage to stage."
        ),
        *([Text(""), *refused] if refused else []),
    )


def _unknown_names(figures: Analysis) -> Mapping[str, int]:
    return Counter(op.name for op in figures.ops if not op.known)


def _unknown(figures: Analysis) -> list[str]:
    names = _unknown_names(figures)
    if not names:
        return ["none: a rule covers every op"]
    total = figures.total.forward.bytes
    guessed = sum(op.forward.bytes for op in figures.ops if not op.known)
    share = percent(guessed / total) if total else "none"
    listed = ", ".join(f"{name} ({number})" for name, number in names.items())
    return [f"{listed}; {share} of the bytes of a forward pass", UNKNOWN]


def _hoisted(figures: Analysis) -> list[str]:
    total = figures.total
    if not total.hoistable:
        return []
    kept = sum(value.bytes for value in figures.hoisted)
    return [
        f"{count(total.hoistable, 'op')} may run once for the graph and not in every step: "
        f"{decimal(total.once.work)} of {decimal(total.forward.work)} operations of a forward pass, for "
        f"{size(kept)} that are kept"
    ]


def _wasted(figures: Analysis) -> list[str]:
    """What is computed for nothing, by layer."""
    total = figures.total
    unread = [op for op in figures.ops if op.unread]
    if not any(is_waste(op.kind, computes=op.forward.flops > 0) for op in unread):
        return []
    work = sum(op.forward.work for op in unread)
    layers = [
        f"{group.unread} in {group.name}"
        if group.unread < len(group.ops)
        else f"all of {group.name}"
        for group in figures.layers
        if group.unread
    ]
    return [
        f"nothing reads the results of {count(total.unread, 'op')} ({listed(layers)}): {decimal(work)} of "
        f"{decimal(total.forward.work)} operations of a forward pass are wasted; leave them out of forward where you can; "
        "--ops marks them unread"
    ]


def _figures_document(figures: Figures) -> dict[str, Any]:
    return {
        **asdict(figures),
        "bytes": figures.bytes,
        "density": figures.density,
        "parallelism": figures.parallelism,
    }


def _group_document(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "ops": list(group.ops),
        "forward": _figures_document(group.forward),
        "backward": _figures_document(group.backward),
        "saved_bytes": group.saved_bytes,
        "unknown": group.unknown,
        "hoistable": group.hoistable,
        "once": _figures_document(group.once),
        "loop": _figures_document(group.loop),
    }


def _op_document(op: OpFigures) -> dict[str, Any]:
    backward = None if op.backward is None else _figures_document(op.backward)
    return {**asdict(op), "forward": _figures_document(op.forward), "backward": backward}
