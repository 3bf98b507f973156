"""What a plan says of each stage: ops, slices between states, loaded attributes, and what is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoplan.opgraph import State
from autoplan.plan import MemorySheet, PlannedTransfer, PlannedTransition
from autoplan.search.local import local_transitions
from autoplan.search.result import StagePart
from autoplan.search.stage_price import StagedPlan
from autoplan.search.stage_setting import StagedProgram
from autoplan.simulate_stages import PipelineRun
from autoplan.stages import Crossing
from autoplan.states import way


def stage_parts(
    plan: StagedPlan, sheets: Sequence[MemorySheet], run: PipelineRun
) -> tuple[StagePart, ...]:
    """What a plan says of each stage; ``run`` is its step as simulated."""
    layout = plan.layout
    busy = [0.0] * layout.stages
    for entry in run.entries:
        busy[entry.rank % layout.stages] += entry.seconds / layout.replicas
    crossing = plan.crossings
    makers = made_by(plan.program)
    found = []
    for stage in range(layout.stages):
        sends = [_transfer(plan, c, makers) for c in crossing if c.source == stage]
        ranks = [layout.rank(replica, stage) for replica in range(layout.replicas)]
        found.append(
            StagePart(
                ops=tuple(sorted(plan.ops(stage))),
                transitions=_transitions(plan, stage, makers),
                inputs=_inputs(plan, stage),
                sends=tuple(sends),
                sources=plan.sources(stage),
                memory=tuple(sheets[rank] for rank in ranks),
                busy_seconds=busy[stage],
            )
        )
    return tuple(found)


def _transfer(plan: StagedPlan, crossing: Crossing, makers: Mapping[str, str]) -> PlannedTransfer:
    layout = plan.layout
    sizes = plan.tensor_bytes(crossing)
    sent = tuple(int(sizes[layout.of_replica(d)].sum()) for d in range(layout.replicas))
    back = sent if plan.program.training and crossing.gradient else (0,) * layout.replicas
    return PlannedTransfer(
        crossing.tensor,
        makers.get(crossing.tensor, ""),
        crossing.state,
        crossing.target,
        sent,
        back,
    )


def _transitions(
    plan: StagedPlan, stage: int, makers: Mapping[str, str]
) -> tuple[PlannedTransition, ...]:
    """Slices within parts; nothing of them is sent."""
    graph, strategies = plan.program.graph, plan.program.strategies
    made = plan.program.state_made()
    needed: dict[str, dict[State, None]] = {}
    for op in graph.ops:
        if plan.stage_of[op.index] == stage:
            for name, state in zip(op.inputs, strategies[op.index].inputs, strict=True):
                needed.setdefault(name, {})[state] = None
    nothing = (0,) * plan.layout.replicas
    return tuple(
        PlannedTransition(
            name, step.source, step.target, "none", nothing, nothing, makers.get(name, "")
        )
        for name, states in needed.items()
        if name in made
        for step in way(local_transitions(graph, name), made[name], states) or ()
    )


def _inputs(plan: StagedPlan, stage: int) -> tuple[tuple[str, State], ...]:
    """Graph attributes in the states they are loaded in; owned rows are there where owned and halo rows are."""
    tensors = plan.program.graph.tensors
    needed: dict[str, dict[State, None]] = {}
    for position, op in enumerate(plan.program.graph.ops):
        if plan.stage_of[op.index] == stage:
            for name, state in plan.program.loads(position):
                if tensors[name].origin == "input":
                    needed.setdefault(tensors[name].source or name, {})[state] = None
    return tuple(
        (name, state)
        for name, states in sorted(needed.items())
        for state in sorted(states)
        if state != "O" or "H" not in states
    )


def made_by(program: StagedProgram) -> dict[str, str]:
    """Tensor -> where it comes from, ``aten.mm in convs.1.lin``."""
    return {
        name: f"{op.name.rpartition('.')[0]} in {op.module or 'forward'}"
        for op in program.graph.ops
        for name in op.outputs
    }
