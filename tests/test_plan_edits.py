"""Plan files edited by hand: a leaf of every kind of a plan of every strategy, changed in several ways, is refused by name.

What is not refused is told to people and read by nothing that runs; the list says why.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import autoplan
from autoplan.api import Plan
from autoplan.cluster import parse_cluster
from autoplan.errors import PlanError
from autoplan.plan import PlanData
from autoplan.planner.bound import Bound, bind_plan
from autoplan.planner.held import hold_to_program
from tests.integration.many import Classifier, small_graphs
from tests.report.plans import data_plan, pipeline_plan, single_plan

TOLD = {
    r"autoplan_version|loss|devices_text|notes|unknown_ops|generality_reason": "text",
    r"forced|rebound|status|gap|deterministic": "how the search went",
    r"pipeline\.bubble": "sealed, too, but a price",
    r"stages\[\d+\]\.(memory|busy_seconds)": "a prediction; rows that add up to another peak are refused",
    r"predicted\.": "a prediction; figures that contradict each other are refused",
    r"alternatives": "what was not chosen; the chosen one is held to the plan",
    r"cluster\.": "held to the devices that are here when the plan is bound",
    r"fingerprints\.": "held to model, graph and devices when the plan is bound",
}
"""By pattern of a JSON path, why a change that is not refused when a file is read has no effect on what runs."""


OTHER_WORD = {
    "R": "O",
    "gpipe": "1f1b",
    "1f1b": "gpipe",
    "adam": "adamw",
    "metis": "closed",
    "closed": "metis",
    "time": "memory",
}
"""For a word, another one of the same vocabulary."""
HEADER = ("version", "autoplan_version")
"""Without them a document is no plan, which tests/test_plan.py shows."""
NAMED_ELSEWHERE: tuple[str, ...] = ()


MADE = {
    "hand single": single_plan(),
    "hand data": data_plan(),
    "hand hybrid": pipeline_plan(2, 2),
}
REAL = "traced pipeline"


@pytest.fixture(scope="module", params=[*MADE, REAL])
def document(request: pytest.FixtureRequest) -> Any:
    plan = MADE.get(request.param) or request.getfixturevalue("bindable").data
    text = plan.to_json()
    assert PlanData.from_json(text).to_json() == text
    return json.loads(text)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all leaves and lists."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        yield path
        for position, part in enumerate(value):
            yield from leaves(part, (*path, position))
    else:
        yield path


def one_of_each_kind(document: Any) -> list[tuple[str | int, ...]]:
    """Of the leaves that differ in list positions only one: the first of one kind, the last of the next, and so on."""
    kinds: dict[tuple[str, ...], list[tuple[str | int, ...]]] = {}
    for path in leaves(document):
        kind = tuple("[]" if isinstance(key, int) else key for key in path)
        kinds.setdefault(kind, []).append(path)
    return [paths[-(number % 2)] for number, paths in enumerate(kinds.values())]


def edits(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values for a field, each with what was done."""
    yield "null", None
    if isinstance(value, list):
        yield "doubled", [*value, *value[-1:]]
        yield "shortened", value[:-1]
        yield "swapped", value[::-1]
        yield "emptied", []
    elif isinstance(value, bool):
        yield "flipped", not value
        yield "number", 1
    elif isinstance(value, int | float):
        for other in (-1, 0, value + 1, 99):
            yield f"set to {other}", other
        yield "text", "much"
        yield "yes", True
    elif isinstance(value, str):
        for other in ("other", OTHER_WORD.get(value, "R")):
            yield f"set to {other!r}", other
        yield "number", 3
    else:
        yield "number", 7
        yield "text", "none"


def others(value: Any, most: int | None) -> list[tuple[str, Any]]:
    """So many edits of a value that change it, null last."""
    found = [(said, other) for said, other in edits(value) if other != value]
    return [*found[1:], *found[:1]][:most]


def text_of(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def edited(document: Any, path: tuple[str | int, ...], value: Any, *, delete: bool = False) -> str:
    """The document as a file, with a field set or deleted."""
    other = copy.deepcopy(document)
    inner = other
    for key in path[:-1]:
        inner = inner[key]
    if delete:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(other)


def test_no_edit_of_a_plan_goes_unseen(document: Any) -> None:
    # a traced plan, which is long, gets one edit a leaf, besides deletion; the hand-made ones get all
    most = 1 if len(document["stages"][0]["choices"]) > 9 else None
    unexplained, unnamed = [], []
    content = {key: part for key, part in document.items() if key not in ("seals", *HEADER)}
    for path in one_of_each_kind(content):
        value = document
        for key in path:
            value = value[key]
        name = text_of(path)
        cases = [(said, edited(document, path, v)) for said, v in others(value, most)]
        cases.append(("deleted", edited(document, path, None, delete=True)))
        for said, text in cases:
            try:
                PlanData.from_json(text)
            except PlanError as error:
                if str(path[0]) not in str(error) and name not in NAMED_ELSEWHERE:
                    unnamed.append((name, said, str(error)))
            else:
                if not any(re.match(pattern, name) for pattern in TOLD):
                    unexplained.append((name, said))
    assert not unexplained
    assert not unnamed


def moved(plan: PlanData) -> PlanData:
    """The last op of the first stage, in the second one."""
    first, second = plan.stages
    op = first.choices[-1]
    return replace(
        plan,
        stages=(
            replace(first, choices=first.choices[:-1]),
            replace(second, choices=(op, *second.choices)),
        ),
    )


def chosen(plan: PlanData, **change: object) -> PlanData:
    """The plan with another choice for its first op."""
    first, *rest = plan.stages
    choice, *choices = first.choices
    return replace(
        plan, stages=(replace(first, choices=(replace(choice, **change), *choices)), *rest)
    )


def parted(plan: PlanData, micro_batches: int) -> PlanData:
    """The plan with other micro-batches, and a partition that says so, too."""
    assert plan.pipeline is not None
    assert plan.partition is not None
    return replace(
        plan,
        pipeline=replace(plan.pipeline, micro_batches=micro_batches),
        partition=replace(plan.partition, parts=plan.pipeline.replicas * micro_batches),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved, r"stages\[0\]\.sends is .*but later stages read"),
        (lambda p: chosen(p, op=1), r"stages\[0\]\.choices\[0\]\.op is 1, but the program has no"),
        (lambda p: chosen(p, name="aten.mm"), r"choices\[0\]\.name is \"aten.mm\", but op"),
        (lambda p: chosen(p, strategy="Q"), r"choices\[0\]\.strategy is \"Q\", but op .* offers"),
        (lambda p: replace(p, exact=False), "exact is false, but every strategy is exact"),
    ],
)
def test_what_only_the_program_tells_is_held_to_it(
    bindable: Plan, bound: Bound, change: Callable[[PlanData], PlanData], message: str
) -> None:
    hold_to_program(bindable.data, bound.workload)
    with pytest.raises(PlanError, match=f"{message}.*plan again"):
        hold_to_program(change(bindable.data), bound.workload)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: parted(p, 99), r"partition\.parts is 99, but a step has 4 graphs"),
        (
            lambda p: replace(p, partition=replace(p.partition, owned_nodes=(1, 29))),
            r"partition\.owned_nodes is \[1, 29\], but here it is",
        ),
    ],
)
def test_a_plan_is_held_to_its_graph_when_it_is_bound(
    bindable: Plan, change: Callable[[PlanData], PlanData], message: str
) -> None:
    plan = replace(bindable, data=change(bindable.data))
    with pytest.raises(PlanError, match=f"{message}.*plan again"):
        plan.train(Classifier(5, 3), small_graphs(), epochs=1, progress=False)


@pytest.fixture(scope="module")
def bindable() -> Plan:
    return autoplan.optimize(
        Classifier(5, 3), small_graphs(), "2xcpu", strategy="pipeline", batch_size=4
    )


@pytest.fixture(scope="module")
def bound(bindable: Plan) -> Bound:
    data = bindable.data
    cluster = parse_cluster("2xcpu")
    return bind_plan(data, cluster, bindable.request, Classifier(5, 3), small_graphs())
