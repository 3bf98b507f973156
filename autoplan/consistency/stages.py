"""Stages, ops and what passes between them in a plan's document. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from autoplan.consistency.contradiction import Contradiction, Document, twice
from autoplan.states import Exchange

_EXCHANGES = get_args(Exchange)


def arrangement(document: Document) -> Iterator[Contradiction]:
    """Stages, replicas, strategy and ranks go together; rank d * S + s runs stage s of replica d."""
    stages, pipeline = document["stages"], document["pipeline"]
    ranks, count = len(document["devices"]), len(stages)
    if not stages:
        yield Contradiction("stages", [], "a plan has a stage at least")
        return
    if (pipeline is not None) != (count > 1):
        said = "there is a pipeline where there are several" if pipeline else "so there is one"
        yield Contradiction("pipeline", pipeline, f"stages are {count}: {said}")
        return
    replicas = ranks if pipeline is None else pipeline["replicas"]
    if pipeline is not None:
        for field in ("replicas", "micro_batches"):
            if pipeline[field] < 1:
                yield Contradiction(f"pipeline.{field}", pipeline[field], "there is 1 at least")
        if pipeline["bubble"] > 1:
            yield Contradiction(
                "pipeline.bubble", pipeline["bubble"], "it is a share of the step, at most 1"
            )
        if replicas * count != ranks:
            yield Contradiction(
                "pipeline.replicas", replicas, f"{count} stages share {ranks} devices"
            )
            return
    for number, stage in enumerate(stages):
        expected = [replica * count + number for replica in range(replicas)]
        if list(stage["devices"]) != expected:
            yield Contradiction(
                f"stages[{number}].devices",
                stage["devices"],
                f"of {count} stages on {ranks} devices its ranks are {expected}; each device runs one stage",
            )
    family = _family(pipeline, ranks)
    if document["strategy"] != family:
        yield Contradiction("strategy", document["strategy"], f"its stages are those of {family!r}")


def _family(pipeline: Document | None, ranks: int) -> str:
    """The strategy of a plan with these stages (DESIGN 2)."""
    if pipeline is None:
        return "data" if ranks > 1 else "single"
    if pipeline["replicas"] > 1:
        return "hybrid"
    return "pipeline" if pipeline["micro_batches"] > 1 else "model"


def ops(document: Document) -> Iterator[Contradiction]:
    """Every op is in one stage, in program order, after all that it reads from."""
    stage_of: dict[int, int] = {}
    for number, stage in enumerate(document["stages"]):
        last = -1
        for position, choice in enumerate(stage["choices"]):
            path = f"stages[{number}].choices[{position}].op"
            if choice["op"] in stage_of:
                yield Contradiction(
                    path, choice["op"], f"the op is in stage {stage_of[choice['op']]}, too"
                )
            elif choice["op"] < last:
                yield Contradiction(path, choice["op"], f"op {last} stands before it")
            stage_of.setdefault(choice["op"], number)
            last = choice["op"]
    for number, stage in enumerate(document["stages"]):
        for position, choice in enumerate(stage["choices"]):
            path = f"stages[{number}].choices[{position}].after"
            yield from twice(path, choice["after"])
            for place, earlier in enumerate(choice["after"]):
                where = stage_of.get(earlier)
                if where is None:
                    reason = "no stage has this op"
                elif earlier >= choice["op"]:
                    reason = f"op {choice['op']} reads from earlier ops alone"
                elif where > number:
                    reason = f"op {earlier} is in the later stage {where}"
                else:
                    continue
                yield Contradiction(f"{path}[{place}]", earlier, reason)


def stage(document: Document, number: int) -> Iterator[Contradiction]:
    """Lists by rank, what is sent, what is loaded and held."""
    own = document["stages"][number]
    path, ranks = f"stages[{number}]", len(own["devices"])
    if len(own["memory"]) != ranks:
        yield Contradiction(
            f"{path}.memory", len(own["memory"]), f"stage {number} has {ranks} devices"
        )
    for kind in ("transitions", "sends"):
        for position, moved in enumerate(own[kind]):
            for field in ("forward_bytes", "backward_bytes"):
                if len(moved[field]) != ranks:
                    yield Contradiction(
                        f"{path}.{kind}[{position}].{field}",
                        moved[field],
                        f"stage {number} has {ranks} devices",
                    )
    for position, step in enumerate(own["transitions"]):
        at = f"{path}.transitions[{position}]"
        if step["exchange"] not in _EXCHANGES:
            yield Contradiction(
                f"{at}.exchange", step["exchange"], f"there are {', '.join(_EXCHANGES)}"
            )
        if step["source"] == step["target"]:
            yield Contradiction(f"{at}.target", step["target"], "it is in that state already")
    moved_to = [(step["tensor"], step["target"]) for step in own["transitions"]]
    yield from twice(f"{path}.transitions", moved_to)
    later = range(number + 1, len(document["stages"]))
    for position, sent in enumerate(own["sends"]):
        if sent["target"] not in later:
            yield Contradiction(
                f"{path}.sends[{position}].target",
                sent["target"],
                f"stage {number} sends to later stages, and there are {len(document['stages'])}",
            )
    yield from twice(f"{path}.sends", [(sent["tensor"], sent["target"]) for sent in own["sends"]])
    yield from twice(f"{path}.inputs", [tuple(pair) for pair in own["inputs"]])
    attributes = {name for name, _ in document["graph_attributes"]}
    for position, (name, _) in enumerate(own["inputs"]):
        if name not in attributes:
            yield Contradiction(
                f"{path}.inputs[{position}]", name, "graph_attributes has no such attribute"
            )
    for field in ("parameters", "buffers", "attributes"):
        yield from twice(f"{path}.{field}", own[field])
