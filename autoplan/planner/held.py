"""A plan held to the traced program and the measured graph: what its file says of them must be so (torch).

`autoplan.consistency` holds a plan to itself. Here it is told whether its ops are the program's, its cut one that the program
allows, and what crosses, is loaded, held and cut what follows from them. Prices and memory are not worked out again: they
are predictions, and nothing that runs reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any

from autoplan.consistency import Contradiction
from autoplan.errors import PlanError
from autoplan.opgraph import OpGraph
from autoplan.plan import PlanData
from autoplan.planner.arrangement import Arrangement
from autoplan.planner.measured import MeasuredGraph
from autoplan.planner.source import Source
from autoplan.planner.workload import Workload, model_forms
from autoplan.search.assemble import cut_use
from autoplan.search.fingerprint import model_fingerprint
from autoplan.search.local import lossy_notes
from autoplan.stages import check_stages, crossings, strategies_of

_REMEDY = "do not edit plan files: plan again with autoplan.optimize"
_MOST_TOLD = 4
"""Of the weights that differ, so many are named."""


def check_attributes(data: PlanData, measured: MeasuredGraph) -> None:
    """Raises PlanError where a graph has other attributes than the plan's, sizes aside; says which."""
    if measured.schema_fingerprint == data.fingerprints.schema:
        return
    different = _differences(dict(data.graph_attributes), dict(measured.attributes)) or [
        "the same tensors mean something else"
    ]
    raise PlanError(
        f"the plan was made for a graph with other attributes: {'; '.join(different)}; "
        "plan again with autoplan.optimize"
    )


def check_program(data: PlanData, workload: Workload) -> None:
    """Raises PlanError where the model with its loss is another program than the plan's; names the op or the weights that differ."""
    if data.generality == "general" and not workload.general:
        raise PlanError(
            f"the plan's program does not hold for this graph: {workload.opgraph.reason}; plan again with autoplan.optimize"
        )
    if model_fingerprint(workload.opgraph) == data.fingerprints.model:
        hold_to_program(data, workload)
        return
    said = f"the plan was made for another program than this model with its loss ({workload.traced.loss})"
    different = _first_difference(data, workload)
    if different is not None:
        raise PlanError(
            f"{said}: {different}; plan again with autoplan.optimize, or load the plan with its own "
            f"loss: Plan.load(path, loss=...)"
        )
    tensors = _differences(dict(data.model_tensors), dict(model_forms(workload.opgraph)))
    if tensors:
        more = f" and {len(tensors) - _MOST_TOLD} more" if len(tensors) > _MOST_TOLD else ""
        raise PlanError(
            f"the model is not as it was planned: its ops are the same, but {'; '.join(tensors[:_MOST_TOLD])}{more}; give it "
            "as it was, or plan again with autoplan.optimize"
        )
    raise PlanError(
        f"{said}: its ops and weights are the same, but not the shapes or dtypes in between; plan again with "
        "autoplan.optimize, or load the plan with its own loss: Plan.load(path, loss=...)"
    )


def hold_to_program(data: PlanData, workload: Workload) -> None:
    """Raises PlanError where a plan's ops, strategies and stages cannot be those of the program; names the field."""
    for found in _program(data, workload):
        raise PlanError(f"the plan does not fit this model: {found}; {_REMEDY}")


def hold_to_graph(data: PlanData, source: Source, priced: MeasuredGraph) -> None:
    """Raises PlanError where a plan's rows, batches or partition are not those of the graph; names the field.

    Args:
        data: the plan.
        source: its data.
        priced: the graph of the priced step, cut as the plan cuts.
    """
    for found in _graph(data, source, priced):
        raise PlanError(f"the plan does not fit this graph: {found}; {_REMEDY}")


def _differences(planned: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """By name, what something was when it was planned and is here."""
    return [
        f"{name} was {planned.get(name, 'absent')}, here {found.get(name, 'absent')}"
        for name in sorted({*planned, *found})
        if planned.get(name) != found.get(name)
    ]


def _first_difference(data: PlanData, workload: Workload) -> str | None:
    """Where the plan's ops and the model's part; None where they are the same."""
    choices = sorted((c for stage in data.stages for c in stage.choices), key=lambda c: c.op)
    planned = [(choice.name, choice.module) for choice in choices]
    found = [(op.name, op.module) for op in workload.opgraph.ops]
    for position, (then, now) in enumerate(zip_longest(planned, found)):
        if then != now:
            was, has = (
                f"{op[0]} in {op[1] or 'the model'}" if op else "none" for op in (then, now)
            )
            return f"its op {position} was {was} and is {has}"
    return None


def _program(data: PlanData, workload: Workload) -> Iterator[Contradiction]:
    graph = workload.opgraph
    yield from _ops(data, graph)
    if len(data.devices) > 1 and not workload.shardable:
        why = graph.reason or graph.single_only
        yield Contradiction("strategy", data.strategy, f"one device must run this program: {why}")
    yield from _strategies(data, graph)
    arrangement = Arrangement.of_plan(data)
    if arrangement.stage_of is None:
        return
    try:
        check_stages(graph, arrangement.stage_of, arrangement.stages)
    except PlanError as error:
        yield Contradiction("stages", f"{arrangement.stages} stages", str(error))
    yield from _sends(data, graph, arrangement)
    try:
        arrangement.programs(workload)
    except PlanError as error:
        yield Contradiction(
            "pipeline.micro_batches", data.pipeline and data.pipeline.micro_batches, str(error)
        )


def _ops(data: PlanData, graph: OpGraph) -> Iterator[Contradiction]:
    """Each op of the program is in one stage, under its name, and reads from what it reads from."""
    flow = graph.to_networkx()
    ops = {op.index: op for op in graph.ops}
    for number, stage in enumerate(data.stages):
        for position, choice in enumerate(stage.choices):
            path = f"stages[{number}].choices[{position}]"
            op = ops.get(choice.op)
            if op is None:
                yield Contradiction(f"{path}.op", choice.op, "the program has no such op")
                continue
            for field, there in (
                ("name", op.name),
                ("module", op.module),
                ("after", sorted(flow.predecessors(op.index))),
            ):
                said = getattr(choice, field)
                if (list(said) if field == "after" else said) != there:
                    yield Contradiction(f"{path}.{field}", said, f"op {op.index} has {there!r}")
    planned = {choice.op for stage in data.stages for choice in stage.choices}
    for op in graph.ops:
        if op.index not in planned:
            yield Contradiction(
                "stages",
                f"{len(data.stages)} stages",
                f"none has op {op.index} {op.name} ({op.where})",
            )


def _strategies(data: PlanData, graph: OpGraph) -> Iterator[Contradiction]:
    """Each op has the strategy that the plan chose, and a plan whose numbers are others says so."""
    ops = {op.index: op for op in graph.ops}
    for number, stage in enumerate(data.stages):
        for position, choice in enumerate(stage.choices):
            offered = [strategy.name for strategy in ops[choice.op].strategies]
            if choice.strategy not in offered:
                yield Contradiction(
                    f"stages[{number}].choices[{position}].strategy",
                    choice.strategy,
                    f"op {choice.op} {choice.name} offers {', '.join(offered)}",
                )
    choices = {choice.op: choice.strategy for stage in data.stages for choice in stage.choices}
    lossy = lossy_notes(graph, strategies_of(graph, choices))
    if data.exact == bool(lossy):
        yield Contradiction("exact", data.exact, lossy[0] if lossy else "every strategy is exact")


def _sends(data: PlanData, graph: OpGraph, arrangement: Arrangement) -> Iterator[Contradiction]:
    """What a stage sends is what later stages read of it."""
    assert arrangement.stage_of is not None
    found = crossings(graph, arrangement.choices, arrangement.stage_of)
    for number, stage in enumerate(data.stages):
        needed = [(c.tensor, c.target, c.state) for c in found if c.source == number]
        said = [(sent.tensor, sent.target, sent.state) for sent in stage.sends]
        if said != needed:
            differing = next(
                (pair for pair in (*said, *needed) if pair not in said or pair not in needed),
                needed,
            )
            yield Contradiction(
                f"stages[{number}].sends",
                [tensor for tensor, _, _ in said],
                f"later stages read {[tensor for tensor, _, _ in needed]}: {differing[0]} differs",
            )


def _graph(data: PlanData, source: Source, priced: MeasuredGraph) -> Iterator[Contradiction]:
    use = source.use
    if use is not None and data.batch is not None:
        yield from _differing(
            "batch", data.batch, use, ("unit", "units", "batch_size", "steps_per_epoch")
        )
    elif use is not None:
        yield Contradiction("batch", None, f"a step takes {use.batch_size} of {use.units} graphs")
    elif data.batch is not None:
        if priced.stats.unit != data.batch.unit:
            yield Contradiction(
                "batch.unit", data.batch.unit, f"the graph has {priced.stats.unit}s"
            )
        if priced.stats.units != data.batch.units:
            yield Contradiction("batch.units", data.batch.units, f"there are {priced.stats.units}")
    cut = data.partition
    if cut is None:
        return
    arrangement = Arrangement.of_plan(data)
    units = priced.stats.units
    if cut.method == "closed" and arrangement.parts > units:
        yield Contradiction(
            "partition.parts", cut.parts, f"a step has {units} {priced.stats.unit}s to share out"
        )
        return
    table = priced.stats.closed if arrangement.closed else priced.stats.partitions
    there = cut_use(table[arrangement.parts])
    yield from _differing("partition", cut, there, [field.name for field in fields(cut)])


def _differing(path: str, said: Any, there: Any, names: Sequence[str]) -> Iterator[Contradiction]:
    for field in names:
        if getattr(said, field) != getattr(there, field):
            yield Contradiction(
                f"{path}.{field}", getattr(said, field), f"here it is {getattr(there, field)!r}"
            )
