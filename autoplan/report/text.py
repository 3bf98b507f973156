"""A plan as plain text at 100 columns: what was chosen, why, what it costs and how each part runs. No torch."""

from __future__ import annotations

import textwrap
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from autoplan.plan import Alternative, PlanData
from autoplan.report import tables
from autoplan.report.parts import Part
from autoplan.report.stages import stages
from autoplan.report.units import count, percent, seconds, seconds_range, size

WIDTH = 100


def explain(plan: PlanData) -> str:
    """The whole plan for a reader, the answer first."""
    sections: list[tuple[str, RenderableType]] = [
        ("Plan", _lines(headline(plan), *reasons(plan))),
        _section(plan, "candidates"),
        ("Predicted step", _lines(*prediction(plan))),
    ]
    if plan.pipeline is not None:
        sections.append(_section(plan, "stages"))
    sections.append(_section(plan, "memory"))
    if len(plan.devices) > 1:
        sections.append(_section(plan, "communication"))
    if plan.partition is not None:
        sections.append(("Partition", tables.partition(plan.partition)))
    sections.append(_section(plan, "states"))
    sections.append(("Basis", _lines(*basis(plan))))
    if plan.notes:
        sections.append(("Notes", _lines(*plan.notes)))
    return render(*sections)


def explain_part(plan: PlanData, part: Part) -> str:
    """One section of `explain`."""
    return render(_section(plan, part))


def _section(plan: PlanData, part: Part) -> tuple[str, RenderableType]:
    if part == "candidates":
        return "Candidates", tables.candidates(plan.alternatives)
    if part == "stages":
        return "Stages", stages(plan)
    if part == "memory":
        return "Memory per device, at its peak", tables.memory(plan)
    if part == "communication":
        return "Communication per step, payload sent", tables.communication(plan)
    return "States by module", tables.states(plan)


def render(*sections: tuple[str, RenderableType]) -> str:
    """Titled sections as plain text of at most `WIDTH` columns, without trailing spaces or colour."""
    buffer = StringIO()
    # Without markup: a reason or a module's name may have brackets and colons of its own.
    console = Console(
        file=buffer,
        width=WIDTH,
        color_system=None,
        force_terminal=False,
        markup=False,
        emoji=False,
    )
    for title, body in sections:
        console.print(Text(title))
        console.print(Padding(body, (0, 0, 1, 2)))
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join(lines).rstrip() + "\n"


def wrapped(sentence: str) -> str:
    """One sentence on lines of at most `WIDTH` columns; numbers and names stay whole."""
    return textwrap.fill(sentence, WIDTH, break_long_words=False, break_on_hyphens=False)


def _lines(*lines: str) -> Group:
    return Group(*(Text(line) for line in lines))


def headline(plan: PlanData) -> str:
    """Strategy, devices, exactness and how sure the search is, in one sentence."""
    exact = "exact" if plan.exact else "not exact"
    # what is cut into stages has no bound on all its cuts
    unproven = any(
        a.step_seconds is not None and a.lower_bound_seconds is None for a in plan.alternatives
    )
    among = " among plans without stages" if unproven and plan.pipeline is None else ""
    best = "the best" if plan.pipeline is None or plan.rebound else "the best cut into stages"
    sure = {
        "optimal": f"proven optimal for these prices{among}",
        "feasible": f"at most {percent(plan.gap)} from {best}",
        "heuristic": "found by a heuristic, without a bound",
    }[plan.status]
    only = "; planning only" if plan.planning_only else ""
    return f"{plan.strategy} on {_where(plan)}: {exact}, {sure}{only}"


def _where(plan: PlanData) -> str:
    """``2 devices (2xcpu)``, or ``1 of 2 devices (2xcpu)``."""
    used = len(plan.devices)
    given = max([used, *(alternative.devices for alternative in plan.alternatives)])
    devices = count(used, "device") if used == given else f"{used} of {count(given, 'device')}"
    return f"{devices} ({plan.devices_text})"


def arrangement(plan: PlanData) -> str:
    """Strategy, devices, stages and micro-batches in one clause: what tells this plan from others of its model and graph."""
    words = [f"{plan.strategy} on {_where(plan)}"]
    use = plan.pipeline
    if use is not None:
        words.append(count(len(plan.stages), "stage"))
        if use.replicas > 1:
            words.append(count(use.replicas, "replica"))
        micro = count(use.micro_batches, "micro-batch", "micro-batches")
        words.append(f"{micro} ({use.schedule})" if use.micro_batches > 1 else micro)
    return ", ".join(words)


def reasons(plan: PlanData) -> list[str]:
    """Why this strategy: forced or cheapest, and what each priced rival would take."""
    if plan.rebound:
        lines = ["kept from a plan for another graph or other devices (plan.rebind)"]
    elif plan.forced:
        lines = [f'chosen because strategy="{plan.strategy}" was asked for']
    else:
        priced = [a for a in plan.alternatives if a.step_seconds is not None]
        measure = {"time": "least predicted step time", "memory": "least peak memory"}.get(
            plan.objective, f"least {plan.objective}"
        )
        lines = [f"chosen for the {measure} of {count(len(priced), 'priced candidate')}"]
    chosen = next((a for a in plan.alternatives if a.chosen), None)
    if chosen is not None:
        lines += [against(chosen, rival) for rival in _rivals(plan, chosen)]
    if (
        chosen is not None
        and not plan.forced
        and plan.objective == "time"
        and _passed_over(plan, chosen)
    ):
        lines.append(
            "model is taken only where nothing else fits: it computes on one device at a time, for memory and not for "
            "speed"
        )
    if not plan.deterministic:
        lines.append("the search was stopped by the clock: another run may plan differently")
    return lines


def _rivals(plan: PlanData, chosen: Alternative) -> list[Alternative]:
    """The cheapest of each strategy with a price, in the order of the candidates; the table has them all."""

    def worth(candidate: Alternative) -> float:
        value = candidate.peak_bytes if plan.objective == "memory" else candidate.step_seconds
        return value or 0.0

    best: dict[str, Alternative] = {}
    for rival in plan.alternatives:
        if rival is chosen or rival.step_seconds is None:
            continue
        if rival.strategy not in best or worth(rival) < worth(best[rival.strategy]):
            best[rival.strategy] = rival
    return list(best.values())


def _passed_over(plan: PlanData, chosen: Alternative) -> bool:
    """Whether a model candidate has a lower price than the chosen one."""
    return chosen.step_seconds is not None and any(
        rival.strategy == "model"
        and rival.step_seconds is not None
        and rival.step_seconds < chosen.step_seconds
        for rival in plan.alternatives
    )


def against(chosen: Alternative, rival: Alternative) -> str:
    """The chosen candidate beside a rival, both predicted; says plainly when one device is faster."""
    mine, theirs = chosen.step_seconds, rival.step_seconds
    if mine is None or theirs is None:
        raise ValueError("both candidates need a price")
    prices = f"{seconds(theirs)} against {seconds(mine)} a step"
    if mine == theirs:
        return f"{rival.name} would take the same {seconds(mine)} a step"
    single_wins = (chosen.devices == 1) == (mine < theirs)
    if single_wins and min(chosen.devices, rival.devices) == 1 < max(chosen.devices, rival.devices):
        speed = faster(max(mine, theirs) / min(mine, theirs))
        return f"one device is {speed}: {rival.name} would take {prices}"
    if theirs < mine:
        return f"{rival.name} would be {faster(mine / theirs)}: {prices}"
    return f"{rival.name} would take {longer(theirs / mine)}: {prices}"


def faster(ratio: float) -> str:
    """A ratio of times above one as ``12 % faster`` or ``2.1 times as fast``."""
    return f"{percent(ratio - 1)} faster" if ratio < 1.5 else f"{ratio:.1f} times as fast"


def longer(ratio: float) -> str:
    """A ratio of times above one as ``12 % longer`` or ``2.1 times as long``."""
    return f"{percent(ratio - 1)} longer" if ratio < 1.5 else f"{ratio:.1f} times as long"


def prediction(plan: PlanData) -> list[str]:
    """Step time with its range, what it is made of, peak memory and communication."""
    predicted = plan.predicted
    lines = [f"time     {seconds_range(predicted.step_seconds)}"]
    if len(plan.devices) > 1:
        lines += [f"         {line}" for line in _made_of(plan)]
    peaks = [peak.value for peak in predicted.peak_bytes]
    if peaks:
        lines.append(f"memory   {size(max(peaks))} at the peak of the fullest device")
    sent = sum(predicted.communication_bytes)
    if len(plan.devices) > 1:
        lines.append(
            f"traffic  {size(sent)} in all, {size(max(predicted.communication_bytes))} by the busiest device"
        )
    return lines


def _made_of(plan: PlanData) -> list[str]:
    """What a step's time is made of; with stages, of the devices that do most of each."""
    compute = plan.predicted.compute_seconds
    communicate = plan.predicted.communication_seconds
    if compute + communicate == 0:
        return []
    dominant = "communication dominates" if communicate > compute else "computing dominates"
    if plan.pipeline is not None:
        return [
            f"computing {seconds(compute)} on the device that computes longest,",
            f"communicating {seconds(communicate)} on the one that communicates longest: {dominant}",
        ]
    share = communicate / (compute + communicate)
    return [
        f"computing {seconds(compute)} ({percent(1 - share)}), "
        f"communicating {seconds(communicate)} ({percent(share)}): {dominant}"
    ]


def basis(plan: PlanData) -> list[str]:
    """What the plan rests on: loss, optimizer, trace and what no rule covers."""
    lines = [plan.loss, f"the optimizer is {plan.optimizer}"]
    use = plan.batch
    if use is not None and use.batch_size < use.units:
        lines.append(
            f"a step takes {use.batch_size} of {use.units} graphs, an epoch {use.steps_per_epoch} steps; prices are for "
            "the largest batch of one epoch"
        )
    if plan.generality == "general":
        lines.append("the trace is general: the program holds for any graph of this schema")
    else:
        reason = plan.generality_reason or "no reason recorded"
        lines.append(f"the trace is {plan.generality}: {reason}")
    if plan.unknown_ops:
        names = ", ".join(plan.unknown_ops)
        lines.append(f"no rule covers {names}: replicated, priced by tensor sizes")
    else:
        lines.append("a rule covers every op")
    return lines
