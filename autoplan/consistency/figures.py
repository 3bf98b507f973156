"""How a plan's document cuts its graph, and whether its figures add up. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autoplan.consistency.contradiction import Contradiction, Document, shown
from autoplan.opgraph import is_node_axis, is_primary_relation
from autoplan.optimizermemory import OPTIMIZER_STATES

_TOLERANCE = 1e-6
"""Relative, of sums of floats."""
_ROWS = (
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "messages",
    "inputs",
    "transient",
    "buffers",
)
"""Of a memory sheet, those that make the peak."""


def parts(document: Document) -> Iterator[Contradiction]:
    """A step's graph is cut into one part for each rank, or each micro-batch of each replica."""
    cut, pipeline = document["partition"], document["pipeline"]
    if pipeline is None:
        parts, whose = len(document["devices"]), "devices"
    else:
        parts, whose = pipeline["replicas"] * pipeline["micro_batches"], "micro-batches in all"
    if cut is None:
        if parts > 1:
            yield Contradiction("partition", None, f"there are {parts} {whose}")
        return
    if parts == 1:
        yield Contradiction("partition.parts", cut["parts"], "the graph is not cut")
        return
    if cut["parts"] != parts:
        # where both counts are written, the lists of the partition say which of them was changed
        at, value = "partition.parts", cut["parts"]
        if pipeline is not None and len(cut["owned_nodes"]) == cut["parts"]:
            at, value = "pipeline.micro_batches", pipeline["micro_batches"]
        yield Contradiction(
            at, value, f"there are {parts} {whose} and a partition of {cut['parts']}"
        )
    prints = document["fingerprints"]
    cut_anywhere = "model" if prints["graph"] == prints["schema"] else "metis"
    known = ("closed",) if pipeline is not None else (cut_anywhere, "closed")
    if cut["method"] not in known:
        yield Contradiction("partition.method", cut["method"], f"it can be {', '.join(known)}")
    for field in ("owned_nodes", "halo_nodes", "owned_edges"):
        if len(cut[field]) != cut["parts"]:
            yield Contradiction(f"partition.{field}", cut[field], f"parts are {cut['parts']}")
    if cut["method"] == "closed":
        for field in ("seed", "cut_edges"):
            if cut[field]:
                yield Contradiction(
                    f"partition.{field}", cut[field], "a closed partition has 0: it cuts no edge"
                )
        if any(cut["halo_nodes"]):
            yield Contradiction(
                "partition.halo_nodes", cut["halo_nodes"], "a closed partition has no halo"
            )
    batch = document["batch"]
    for counted, axis, field in (
        (is_node_axis, "node", "owned_nodes"),
        (is_primary_relation, "edge", "owned_edges"),
    ):
        there = sum(rows for name, rows in document["graph_rows"] if counted(name))
        total = sum(cut[field])
        streamed = batch is not None and batch["batch_size"] < batch["units"]
        if total > there or (total < there and not streamed):
            yield Contradiction(
                f"partition.{field}", cut[field], f"graph_rows has {there} rows of axis {axis!r}"
            )
    yield from _types(document, cut)


def _types(document: Document, cut: Document) -> Iterator[Contradiction]:
    """Of a graph of several node types each is listed with its rows of every part; together they are the part's rows."""
    types = cut.get("types", ())
    axes = [name for name, _ in document["graph_rows"] if is_node_axis(name)]
    named = [kind["axis"] for kind in types]
    if sorted(named) != (sorted(axes) if len(axes) > 1 else []):
        yield Contradiction("partition.types", named, f"graph_rows has node axes {shown(axes)}")
        return
    for position, kind in enumerate(types):
        for field in ("owned", "halo"):
            if len(kind[field]) != cut["parts"]:
                yield Contradiction(
                    f"partition.types[{position}].{field}", kind[field], f"parts are {cut['parts']}"
                )
                return
    for field, total in (("owned", "owned_nodes"), ("halo", "halo_nodes")):
        sums = [sum(rows) for rows in zip(*(kind[field] for kind in types), strict=True)]
        if types and sums != list(cut[total]):
            yield Contradiction(
                "partition.types",
                [kind[field] for kind in types],
                f"partition.{total} is {cut[total]}",
            )


def batch(document: Document) -> Iterator[Contradiction]:
    """Units, steps and parts go together."""
    batch, cut = document["batch"], document["partition"]
    if batch is None:
        return
    for field in ("units", "batch_size", "steps_per_epoch"):
        if batch[field] < 1:
            yield Contradiction(f"batch.{field}", batch[field], "there is 1 at least")
            return
    if batch["batch_size"] > batch["units"]:
        yield Contradiction("batch.batch_size", batch["batch_size"], f"units are {batch['units']}")
    steps = math.ceil(batch["units"] / batch["batch_size"])
    if batch["steps_per_epoch"] != steps:
        yield Contradiction(
            "batch.steps_per_epoch",
            batch["steps_per_epoch"],
            f"batch.units {batch['units']} in steps of batch.batch_size {batch['batch_size']} are {steps}",
        )
    if cut is not None and cut["method"] == "closed" and cut["parts"] > batch["batch_size"]:
        yield Contradiction(
            "batch.batch_size",
            batch["batch_size"],
            f"they are shared out over {cut['parts']} parts",
        )
    if batch["unit"] == "component" and document["pipeline"] is None:
        yield Contradiction("batch.unit", batch["unit"], "only pipelines run components one by one")


def sheets(document: Document) -> Iterator[Contradiction]:
    """A sheet's rows follow from each other, and add up to the predicted peak."""
    states = OPTIMIZER_STATES.get(document["optimizer"])
    for number, stage in enumerate(document["stages"]):
        for position, (rank, sheet) in enumerate(
            zip(stage["devices"], stage["memory"], strict=False)
        ):
            path = f"stages[{number}].memory[{position}]"
            limit = (
                document["devices"][rank]["memory_bytes"]
                if rank < len(document["devices"])
                else None
            )
            if sheet["capacity"] != limit:
                yield Contradiction(
                    f"{path}.capacity", sheet["capacity"], f"device {rank} has {limit}"
                )
            if sheet["gradients"] > sheet["weights"]:
                yield Contradiction(
                    f"{path}.gradients",
                    sheet["gradients"],
                    f"weights have {sheet['weights']} bytes",
                )
            if states is not None and sheet["optimizer"] != states * sheet["gradients"]:
                yield Contradiction(
                    f"{path}.optimizer",
                    sheet["optimizer"],
                    f"{document['optimizer']} keeps {states:g} numbers for each gradient",
                )


def prediction(document: Document) -> Iterator[Contradiction]:
    """Lists are one entry a rank, a value lies in its range, and peaks and times are those of the stages."""
    predicted, pipeline = document["predicted"], document["pipeline"]
    ranks = len(document["devices"])
    for field in ("peak_bytes", "communication_bytes"):
        if len(predicted[field]) != ranks:
            yield Contradiction(
                f"predicted.{field}", len(predicted[field]), f"there are {ranks} devices"
            )
            return
    step = predicted["step_seconds"]
    yield from _range("predicted.step_seconds", step)
    for rank, peak in enumerate(predicted["peak_bytes"]):
        yield from _range(f"predicted.peak_bytes[{rank}]", peak)
    # devices of stages wait for each other, so that their times add up to no step
    times = (predicted["compute_seconds"], predicted["communication_seconds"])
    spent = sum(times) if pipeline is None else max(times)
    if spent > step["value"] * (1 + _TOLERANCE) or (
        pipeline is None and not _equal(spent, step["value"])
    ):
        yield Contradiction(
            "predicted.step_seconds.value",
            step["value"],
            f"compute_seconds and communication_seconds are {spent}",
        )
    for number, part in enumerate(document["stages"]):
        busy = part["busy_seconds"]
        if busy > step["value"] * (1 + _TOLERANCE):
            yield Contradiction(
                f"stages[{number}].busy_seconds", busy, f"a step takes {step['value']} seconds"
            )
        for rank, sheet in zip(part["devices"], part["memory"], strict=True):
            total = sum(sheet[row] for row in _ROWS)
            peak = predicted["peak_bytes"][rank]["value"]
            if not _equal(total, peak):
                yield Contradiction(
                    f"predicted.peak_bytes[{rank}].value",
                    peak,
                    f"the rows of its memory sheet in stages[{number}] add up to {total}",
                )


def _range(path: str, number: Document) -> Iterator[Contradiction]:
    if not number["low"] <= number["value"] <= number["high"]:
        yield Contradiction(
            f"{path}.value", number["value"], f"low is {number['low']} and high {number['high']}"
        )


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-12)


def alternatives(document: Document) -> Iterator[Contradiction]:
    """Candidates have a price or a reason; one is chosen, and it is the plan."""
    offered = sum(run["count"] for run in document["cluster"]["devices"])
    chosen = []
    for position, other in enumerate(document["alternatives"]):
        path = f"alternatives[{position}]"
        rejected = other["reason"] is not None
        for field in ("step_seconds", "peak_bytes"):
            if (other[field] is None) != rejected:
                yield Contradiction(
                    f"{path}.{field}", other[field], f"reason is {shown(other['reason'])}"
                )
        if not 1 <= other["devices"] <= max(offered, 1) and not rejected:
            yield Contradiction(f"{path}.devices", other["devices"], f"{offered} were offered")
        if other["chosen"]:
            chosen.append((path, other))
    if len(chosen) != 1:
        yield Contradiction(
            "alternatives", [other["name"] for _, other in chosen], "exactly one is chosen"
        )
        return
    ((path, other),) = chosen
    predicted = document["predicted"]
    for field, value in (
        ("strategy", document["strategy"]),
        ("devices", len(document["devices"])),
        ("step_seconds", predicted["step_seconds"]["value"]),
        ("peak_bytes", max(peak["value"] for peak in predicted["peak_bytes"])),
    ):
        if other[field] != value:
            yield Contradiction(
                f"{path}.{field}", other[field], f"the plan's own is {shown(value)}"
            )
